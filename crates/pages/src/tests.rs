use proptest::prelude::*;

use crate::innodb::{self, Format, Space};
use crate::postgresql::{self, Checksums, Cluster, segment_of_name};
use crate::sqlite::{self, Database};
use crate::{
    Choice, Origin, PageFile, Position, Undecided, Verdict, choose, fuzzing, is_candidate,
};

fn filled(seed: u64, length_bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length_bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[2]
        })
        .collect()
}

const WITH_CHECKSUMS: Cluster = Cluster::usual(Checksums::On);

/// A page as PostgreSQL would seal it.
fn postgresql_page(seed: u64, block: u32) -> Vec<u8> {
    postgresql_page_at(seed, block, seed, postgresql::PAGE_BYTES)
}

/// The same at a position of the log.
fn postgresql_page_at(seed: u64, block: u32, position: u64, page_bytes: usize) -> Vec<u8> {
    let mut page = filled(seed, page_bytes);
    page[..8].copy_from_slice(&position.rotate_left(32).to_le_bytes());
    page[14..16].copy_from_slice(&800_u16.to_le_bytes());
    let size_and_version = u16::try_from(page_bytes).unwrap() | 4;
    page[18..20].copy_from_slice(&size_and_version.to_le_bytes());
    let sum = postgresql::checksum(&page, block);
    page[8..10].copy_from_slice(&sum.to_le_bytes());
    page
}

/// A page as InnoDB would seal it; page 0 with flags.
fn innodb_page(seed: u64, format: Format, space: u32, number: u32, page_bytes: usize) -> Vec<u8> {
    innodb_page_at(seed, format, space, number, page_bytes, seed)
}

/// The same at a position of the log.
fn innodb_page_at(
    seed: u64,
    format: Format,
    space: u32,
    number: u32,
    page_bytes: usize,
    position: u64,
) -> Vec<u8> {
    let mut page = filled(seed, page_bytes);
    // No key, an index page, and neither encrypted nor compressed.
    page[..4].fill(0);
    page[16..24].copy_from_slice(&position.to_be_bytes());
    page[24..26].copy_from_slice(&17_855_u16.to_be_bytes());
    page[26..34].fill(0);
    let end = page.len();
    page[4..8].copy_from_slice(&number.to_be_bytes());
    page[34..38].copy_from_slice(&space.to_be_bytes());
    let exponent = page_bytes.ilog2() - 9;
    let flags: u32 = match format {
        Format::FullCrc32 => 1 << 4 | exponent,
        Format::Crc32 => exponent << 6,
    };
    page[54..58].copy_from_slice(&flags.to_be_bytes());
    let lsn: [u8; 4] = page[20..24].try_into().unwrap();
    match format {
        Format::FullCrc32 => {
            page[end - 8..end - 4].copy_from_slice(&lsn);
            let sum = spindle_base::crc32c(&page[..end - 4]);
            page[end - 4..].copy_from_slice(&sum.to_be_bytes());
        }
        Format::Crc32 => {
            let sum = spindle_base::crc32c(&page[4..26]) ^ spindle_base::crc32c(&page[38..end - 8]);
            page[..4].copy_from_slice(&sum.to_be_bytes());
            page[end - 8..end - 4].copy_from_slice(&sum.to_be_bytes());
            page[end - 4..].copy_from_slice(&lsn);
        }
    }
    page
}

/// A page as SQLite's extension would seal it, by its description: this repository cannot load
/// the extension.
fn sqlite_page(seed: u64, page_bytes: usize, first: bool) -> Vec<u8> {
    let mut page = filled(seed, page_bytes);
    if first {
        page[..16].copy_from_slice(b"SQLite format 3\0");
        let size = u16::try_from(page_bytes).unwrap_or(1);
        page[16..18].copy_from_slice(&size.to_be_bytes());
        page[20] = 8;
    }
    let body = page_bytes - 8;
    let mut sums = [0_u32; 2];
    for pair in page[..body].chunks(8) {
        let word = |at: usize| u32::from_le_bytes(pair[at..at + 4].try_into().unwrap());
        sums[0] = sums[0].wrapping_add(word(0)).wrapping_add(sums[1]);
        sums[1] = sums[1].wrapping_add(word(4)).wrapping_add(sums[0]);
    }
    page[body..body + 4].copy_from_slice(&sums[0].to_le_bytes());
    page[body + 4..].copy_from_slice(&sums[1].to_le_bytes());
    page
}

#[test]
fn names_of_relations_have_a_segment_and_other_names_have_none() {
    for (name, segment) in [
        ("16384", Some(0)),
        ("16384.1", Some(1)),
        ("16384_vm", Some(0)),
        ("16384_fsm.12", Some(12)),
        ("1_init", Some(0)),
        ("16384.0", None),
        ("16384.x", None),
        ("16384.32768", None),
        ("t3_16384", None),
        ("16384_", None),
        ("pg_filenode.map", None),
        ("PG_VERSION", None),
        ("", None),
    ] {
        assert_eq!(segment_of_name(name), segment, "{name}");
    }
}

#[test]
fn the_path_says_what_may_have_pages() {
    for (path, expected) in [
        ("/pg/main/base/5/1259", true),
        ("/pg/main/global/1262_fsm", true),
        ("/space/PG_15_202209061/5/16390", true),
        ("/pg/main/pg_wal/000000010000000000000001", false),
        ("/pg/main/base/pgsql_tmp/1", false),
        ("/my/db/table.ibd", true),
        ("/my/ibdata1", true),
        ("/my/undo001", true),
        ("/my/ib_logfile0", false),
        ("/my/ibtmp1", false),
        ("base", false),
    ] {
        assert_eq!(is_candidate(path), expected, "{path}");
    }
    let control = Some("/pg/main/global/pg_control".to_owned());
    assert_eq!(PageFile::control_path("/pg/main/base/5/1259"), control);
    assert_eq!(PageFile::control_path("/pg/main/global/1262"), control);
    assert_eq!(PageFile::control_path("/s/PG_15_202209061/5/16390"), None);
    assert_eq!(PageFile::control_path("/my/ibdata1"), None);
}

#[test]
fn without_a_control_file_a_right_checksum_is_proof_and_a_wrong_one_is_not() {
    let mut page = postgresql_page(1, 7);
    let judge = |page: &[u8], checksums| postgresql::judge(page, 0, 7, Cluster::usual(checksums));
    assert!(judge(&page, Checksums::NotKnown).is_good());
    assert!(judge(&page, Checksums::On).is_good());
    assert_eq!(judge(&page, Checksums::Off), Verdict::Unknown);
    page[5000] ^= 1;
    assert_eq!(judge(&page, Checksums::NotKnown), Verdict::Unknown);
    assert_eq!(
        judge(&page, Checksums::On),
        Verdict::Bad(Origin::Here(Position::At(1)))
    );
}

#[test]
fn a_segment_is_of_one_gib_whatever_the_length_of_its_pages() {
    for page_bytes in [1024, 4096, 8192, 32768] {
        let segment_pages = (1 << 30) / u32::try_from(page_bytes).unwrap();
        let page = postgresql_page_at(1, 2 * segment_pages + 7, 1, page_bytes);
        let cluster = Cluster::of_head(&page);
        assert_eq!(cluster.page_bytes, page_bytes);
        assert!(postgresql::judge(&page, 2, 7, cluster).is_good());
    }
}

#[test]
fn a_page_in_the_place_of_another_is_bad() {
    let page = postgresql_page(1, 131_072 * 2 + 7);
    assert!(postgresql::judge(&page, 2, 7, WITH_CHECKSUMS).is_good());
    for (segment, block) in [(0, 7), (2, 8), (1, 131_072 + 8)] {
        assert!(postgresql::judge(&page, segment, block, WITH_CHECKSUMS).is_bad());
    }
    for format in [Format::Crc32, Format::FullCrc32] {
        let space = Space::of_head(&innodb_page(1, format, 5, 0, 16384)).unwrap();
        let page = innodb_page(2, format, 5, 3, 16384);
        assert!(innodb::judge(&page, 3, &space).is_good());
        let elsewhere = Verdict::Bad(Origin::Elsewhere);
        assert_eq!(innodb::judge(&page, 4, &space), elsewhere);
        let other = innodb_page(2, format, 6, 4, 16384);
        assert_eq!(innodb::judge(&other, 3, &space), elsewhere);
    }
}

#[test]
fn a_sound_page_of_another_space_in_its_place_may_be_of_the_file_that_came_over_this_one() {
    for format in [Format::Crc32, Format::FullCrc32] {
        let file = PageFile::InnoDb(Space::of_head(&innodb_page(1, format, 5, 0, 16384)).unwrap());
        // The first page, which says what space the file is, was not written yet.
        let (own, newer) = (
            innodb_page(2, format, 5, 3, 16384),
            innodb_page(3, format, 6, 3, 16384),
        );
        assert!(file.judge(3, &newer).is_bad());
        assert_eq!(
            choose(&file, 3, &[&own, &newer]),
            Choice::Undecided(Undecided::MayBeNewer)
        );
        // With one bit of the number flipped, which `crc32` does not cover, it is the same page.
        let mut moved = own.clone();
        moved[37] ^= 1;
        assert_eq!(choose(&file, 3, &[&own, &moved]), Choice::Right(0));
    }
}

#[test]
fn in_the_systems_space_a_page_stands_in_its_place_but_for_the_doublewrite_buffer() {
    for format in [Format::Crc32, Format::FullCrc32] {
        let page = |space, number| innodb_page(7, format, space, number, 16384);
        let first = Space::of_head(&page(0, 0)).unwrap();
        let second = Space::of_head(&page(0, 768)).unwrap();
        assert_eq!((first.first_page, second.first_page), (0, 768));
        let is_good = |space: &Space, place, bytes: &[u8]| -> bool {
            innodb::judge(bytes, place, space).is_good()
        };
        assert!(is_good(&first, 0, &page(0, 0)) && is_good(&first, 300, &page(0, 300)));
        assert!(is_good(&second, 0, &page(0, 768)) && is_good(&second, 300, &page(0, 1068)));
        for place in [1, 63, 192, 300] {
            let misplaced = page(0, 299);
            let verdict = innodb::judge(&misplaced, place, &first);
            assert_eq!(verdict, Verdict::Bad(Origin::Elsewhere), "{place}");
            let own = page(0, u32::try_from(place).unwrap());
            let file = PageFile::InnoDb(first);
            assert_eq!(choose(&file, place, &[&misplaced, &own]), Choice::Right(1));
        }
        for inside in [64, 128, 191] {
            assert!(is_good(&first, inside, &page(0, 299)), "{inside}");
            assert!(is_good(&first, inside, &page(9, 3)), "{inside}");
        }
        // What a server may have left so, or may be of another of the space's files.
        for (space, place, bytes) in [
            (&first, 300, page(0, 0)),
            (&first, 300, page(9, 300)),
            (&first, 0, page(0, 768)),
            (&second, 0, page(0, 0)),
            (&second, 300, page(0, 300)),
        ] {
            let verdict = innodb::judge(&bytes, place, space);
            assert_eq!(verdict, Verdict::Unknown, "{place}");
        }
    }
}

#[test]
fn an_innodb_file_tells_its_format_and_the_length_of_its_pages() {
    for format in [Format::Crc32, Format::FullCrc32] {
        for page_bytes in [4096, 8192, 16384, 32768, 65536] {
            let head = innodb_page(3, format, 9, 0, page_bytes);
            let space = Space::of_head(&head).unwrap();
            assert_eq!(
                space,
                Space {
                    format,
                    page_bytes,
                    number: 9,
                    first_page: 0,
                    is_coded: false,
                    certain: true
                }
            );
        }
    }
    // Damaged, the first page proves nothing, and no other is called bad because of it.
    let mut head = innodb_page(3, Format::FullCrc32, 9, 0, 16384);
    head[9000] ^= 4;
    let space = Space::of_head(&head).unwrap();
    assert!(!space.certain);
    assert_eq!(innodb::judge(&head, 0, &space), Verdict::Unknown);
    let page = innodb_page(4, Format::FullCrc32, 9, 1, 16384);
    assert!(innodb::judge(&page, 1, &space).is_good());
}

#[test]
fn what_cannot_be_judged_is_unknown_in_all_of_the_doublewrite_buffer_and_bad_beside_it() {
    for (page_bytes, extent) in [
        (4096, 256),
        (8192, 128),
        (16384, 64),
        (32768, 64),
        (65536, 64),
    ] {
        let head = innodb_page(3, Format::FullCrc32, 0, 0, page_bytes);
        let space = Space::of_head(&head).unwrap();
        // As a page of another space lies there that is compressed or encrypted.
        let coded = filled(5, page_bytes);
        for inside in [extent, 2 * extent, 3 * extent - 1] {
            let verdict = innodb::judge(&coded, inside, &space);
            assert_eq!(verdict, Verdict::Unknown, "{page_bytes}:{inside}");
        }
        for beside in [extent - 1, 3 * extent] {
            let verdict = innodb::judge(&coded, beside, &space);
            assert!(verdict.is_bad(), "{page_bytes}:{beside}: {verdict:?}");
        }
    }
}

#[test]
fn a_page_of_an_older_or_of_no_checksum_is_unknown() {
    let head = innodb_page(3, Format::Crc32, 9, 0, 16384);
    let space = Space::of_head(&head).unwrap();
    let mut page = innodb_page(4, Format::Crc32, 9, 1, 16384);
    page[0] ^= 1;
    assert_eq!(innodb::judge(&page, 1, &space), Verdict::Unknown);
    page[..4].copy_from_slice(&0xDEAD_BEEF_u32.to_be_bytes());
    page[16376..16380].copy_from_slice(&0xDEAD_BEEF_u32.to_be_bytes());
    assert_eq!(innodb::judge(&page, 1, &space), Verdict::Unknown);
}

#[test]
fn reserved_bytes_alone_do_not_prove_sums() {
    for page_bytes in [512, 1024, 4096, 65536] {
        let head = sqlite_page(1, page_bytes, true);
        let database = Database::of_head(&head).unwrap();
        assert_eq!(
            database,
            Database {
                page_bytes,
                certain: true
            }
        );
        let mut page = sqlite_page(2, page_bytes, false);
        assert!(sqlite::judge(&page, database).is_good());
        page[300] ^= 0x80;
        assert!(sqlite::judge(&page, database).is_bad());
        let mut head = head;
        head[400] ^= 1;
        let doubtful = Database::of_head(&head).unwrap();
        assert!(!doubtful.certain);
        assert_eq!(sqlite::judge(&page, doubtful), Verdict::Unknown);
        head[20] = 0;
        assert_eq!(Database::of_head(&head), None);
    }
}

#[test]
fn a_page_says_its_position_in_the_log() {
    let page = postgresql_page_at(3, 7, 0x1234_5678_9ABC_DEF0, 8192);
    let good = Verdict::Good(Position::At(0x1234_5678_9ABC_DEF0));
    assert_eq!(postgresql::judge(&page, 0, 7, WITH_CHECKSUMS), good);
    let mut page = innodb_page_at(3, Format::FullCrc32, 9, 0, 16384, 0x1234_5678_9ABC);
    let space = Space::of_head(&page).unwrap();
    let good = Verdict::Good(Position::At(0x1234_5678_9ABC));
    assert_eq!(innodb::judge(&page, 0, &space), good);
    page[300] ^= 1;
    let bad = Verdict::Bad(Origin::Here(Position::At(0x1234_5678_9ABC)));
    assert_eq!(innodb::judge(&page, 0, &space), bad);
}

/// A page with a bit of it flipped that is neither header nor checksum.
fn damaged(page: &[u8]) -> Vec<u8> {
    let mut page = page.to_vec();
    page[500] ^= 8;
    page
}

#[test]
fn a_version_is_right_only_where_no_other_may_be_the_newer_one() {
    let file = PageFile::PostgreSql {
        segment: 0,
        cluster: WITH_CHECKSUMS,
    };
    let page = |position| postgresql_page_at(position, 7, position, 8192);
    let (older, newer) = (page(100), page(200));
    let garbage = filled(77, 8192);
    let zeros = vec![0; 8192];
    for (versions, choice) in [
        (vec![&damaged(&newer), &newer], Choice::Right(1)),
        (vec![&newer, &damaged(&older)], Choice::Right(0)),
        (vec![&garbage, &older], Choice::Right(1)),
        (
            vec![&older, &damaged(&newer)],
            Choice::Undecided(Undecided::MayBeNewer),
        ),
        (
            vec![&older, &newer],
            Choice::Undecided(Undecided::SeveralGood),
        ),
        (vec![&zeros, &newer], Choice::Undecided(Undecided::Zeros)),
        (
            vec![&garbage, &damaged(&newer)],
            Choice::Undecided(Undecided::NoneGood),
        ),
        (
            vec![&garbage, &older, &damaged(&newer)],
            Choice::Undecided(Undecided::MayBeNewer),
        ),
        (vec![], Choice::Undecided(Undecided::NoneGood)),
    ] {
        let versions: Vec<&[u8]> = versions.iter().map(|version| &version[..]).collect();
        assert_eq!(choose(&file, 7, &versions), choice);
    }
    // What differs in nothing but its position takes nothing with it.
    let mut moved = older.clone();
    moved[2] ^= 0x40;
    assert!(
        matches!(file.judge(7, &moved), Verdict::Bad(Origin::Here(Position::At(at))) if at > 100)
    );
    assert_eq!(choose(&file, 7, &[&older, &moved]), Choice::Right(0));
    // A tablespace's cluster is not known: its pages may have been written without checksums.
    let file = PageFile::PostgreSql {
        segment: 0,
        cluster: Cluster::usual(Checksums::NotKnown),
    };
    assert_eq!(
        choose(&file, 7, &[&newer, &damaged(&older)]),
        Choice::Undecided(Undecided::NotJudged)
    );
}

#[test]
fn a_version_at_the_same_place_of_the_log_is_beaten_only_by_the_page_that_it_was() {
    let may_be_newer = Choice::Undecided(Undecided::MayBeNewer);
    let postgresql = PageFile::PostgreSql {
        segment: 0,
        cluster: WITH_CHECKSUMS,
    };
    let head = innodb_page(3, Format::FullCrc32, 9, 0, 16384);
    let innodb = PageFile::InnoDb(Space::of_head(&head).unwrap());
    let page = |file: &PageFile, content, position| match file {
        PageFile::PostgreSql { .. } => postgresql_page_at(content, 7, position, 8192),
        _ => innodb_page_at(content, Format::FullCrc32, 9, 7, 16384, position),
    };
    // Its checksum at the end is proof where the beginning with the position is gone.
    for (space, number) in [(0, 7), (9, 8)] {
        let head = innodb_page(3, Format::FullCrc32, space, 0, 16384);
        let file = PageFile::InnoDb(Space::of_head(&head).unwrap());
        let one = innodb_page_at(1, Format::FullCrc32, space, number, 16384, 100);
        let mut without_head = one.clone();
        without_head[..4096].fill(0);
        let choice = choose(&file, number.into(), &[&one, &without_head]);
        assert_eq!(choice, Choice::Right(0));
    }
    for file in [postgresql, innodb] {
        // Position 0: what PostgreSQL keeps on pages whose changes are not logged.
        for position in [0, 100] {
            let (one, other) = (page(&file, 1, position), page(&file, 2, position));
            assert_eq!(choose(&file, 7, &[&one, &damaged(&other)]), may_be_newer);
            assert_eq!(choose(&file, 7, &[&damaged(&one), &other]), may_be_newer);
            assert_eq!(choose(&file, 7, &[&one, &damaged(&one)]), Choice::Right(0));
            let mut without_sum = one.clone();
            let sum = file.fields_of(&one).unwrap().sum;
            without_sum[sum.start] ^= 1;
            assert_eq!(choose(&file, 7, &[&one, &without_sum]), Choice::Right(0));
        }
        // One that has no position may be of a later time than one that has.
        let (logged, unlogged) = (page(&file, 1, 100), page(&file, 2, 0));
        assert_eq!(
            choose(&file, 7, &[&logged, &damaged(&unlogged)]),
            may_be_newer
        );
    }
}

#[test]
fn a_stored_sum_of_an_older_version_is_no_proof_beside_a_head_that_is_newer() {
    let head = innodb_page(3, Format::FullCrc32, 9, 0, 16384);
    let file = PageFile::InnoDb(Space::of_head(&head).unwrap());
    for number in [0, 7] {
        let page =
            |seed, position| innodb_page_at(seed, Format::FullCrc32, 9, number, 16384, position);
        let choice_beside = |own: &[u8], position, head_bytes: usize| {
            let mut other = own.to_vec();
            other[..head_bytes].copy_from_slice(&page(2, position)[..head_bytes]);
            choose(&file, number.into(), &[own, &other])
        };
        let older = page(1, 100);
        let may_be_newer = Choice::Undecided(Undecided::MayBeNewer);
        // All of the newer write but its last block came to the other disk.
        assert_eq!(choice_beside(&older, 200, 12288), may_be_newer);
        assert_eq!(choice_beside(&older, 200, 4096), may_be_newer);
        assert_eq!(choice_beside(&older, 0, 4096), may_be_newer);
        assert_eq!(choice_beside(&page(1, 0), 200, 4096), may_be_newer);
        // All of it but its first one, and only that.
        assert_eq!(choice_beside(&page(1, 200), 100, 4096), Choice::Right(0));
        let mut without_head = older.clone();
        without_head[..4096].fill(0);
        assert_eq!(
            choose(&file, number.into(), &[&older, &without_head]),
            Choice::Right(0)
        );
    }
}

/// The sum and the position are of one sector: no write brings one without the other.
#[test]
fn a_page_with_its_sum_in_the_header_is_proven_by_it_beside_a_damaged_position() {
    let head = innodb_page(3, Format::Crc32, 9, 0, 16384);
    let file = PageFile::InnoDb(Space::of_head(&head).unwrap());
    let own = innodb_page_at(1, Format::Crc32, 9, 7, 16384, 100);
    let mut damaged = own.clone();
    damaged[22] ^= 0x40;
    damaged[9000] ^= 1;
    assert_eq!(choose(&file, 7, &[&own, &damaged]), Choice::Right(0));
}

#[test]
fn a_flipped_bit_in_its_position_makes_no_newer_page_an_older_one() {
    let may_be_newer = Choice::Undecided(Undecided::MayBeNewer);
    let postgresql = PageFile::PostgreSql {
        segment: 0,
        cluster: WITH_CHECKSUMS,
    };
    let innodb = [Format::Crc32, Format::FullCrc32].map(|format| {
        let head = innodb_page(3, format, 9, 0, 16384);
        PageFile::InnoDb(Space::of_head(&head).unwrap())
    });
    for file in [postgresql, innodb[0], innodb[1]] {
        let page = |position: u64| match &file {
            PageFile::InnoDb(space) => {
                innodb_page_at(position, space.format, 9, 7, 16384, position)
            }
            _ => postgresql_page_at(position, 7, position, 8192),
        };
        let low_byte = match &file {
            PageFile::InnoDb(_) => 23,
            _ => 4,
        };
        // 200 becomes 72.
        let mut flipped = page(200);
        flipped[low_byte] ^= 0x80;
        assert!(file.judge(7, &flipped).is_bad());
        assert_eq!(choose(&file, 7, &[&page(100), &flipped]), may_be_newer);
        // The halves of a position are not compared by themselves.
        let mut flipped = page((1 << 32) + 200);
        let high_byte = match &file {
            PageFile::InnoDb(_) => 19,
            _ => 0,
        };
        flipped[high_byte] ^= 1;
        assert_eq!(choose(&file, 7, &[&page(300), &flipped]), may_be_newer);
        // One that is older with the right bit too is no newer one.
        let mut flipped = page(90);
        flipped[low_byte] ^= 1;
        let expected = match &file {
            PageFile::InnoDb(_) => may_be_newer,
            _ => Choice::Right(0),
        };
        assert_eq!(choose(&file, 7, &[&page(100), &flipped]), expected);
    }
    // Both ends of a page of InnoDB are of one version, or neither tells which.
    let (file, format) = (&innodb[1], Format::FullCrc32);
    let page = |position| innodb_page_at(position, format, 9, 7, 16384, position);
    let mut torn = page(200);
    torn[..4096].copy_from_slice(&page(90)[..4096]);
    assert_eq!(choose(file, 7, &[&page(100), &torn]), may_be_newer);
}

#[test]
fn a_flipped_bit_in_the_field_that_tells_a_page_makes_it_none_of_another_place() {
    let may_be_newer = Choice::Undecided(Undecided::MayBeNewer);
    let file = PageFile::PostgreSql {
        segment: 0,
        cluster: WITH_CHECKSUMS,
    };
    let page = |position| postgresql_page_at(position, 7, position, 8192);
    let (older, newer) = (page(5), page(9));
    for (byte, bits) in [(18, 1), (18, 4), (19, 0x20)] {
        let mut flipped = newer.clone();
        flipped[byte] ^= bits;
        assert_eq!(choose(&file, 7, &[&older, &flipped]), may_be_newer);
    }
    let mut without_upper = newer;
    without_upper[14..16].fill(0);
    assert_eq!(choose(&file, 7, &[&older, &without_upper]), may_be_newer);

    let head = innodb_page(3, Format::FullCrc32, 9, 0, 16384);
    let file = PageFile::InnoDb(Space::of_head(&head).unwrap());
    let page = |position| innodb_page_at(position, Format::FullCrc32, 9, 7, 16384, position);
    let (older, mut flipped) = (page(5), page(9));
    flipped[7] ^= 0x10;
    assert_eq!(choose(&file, 7, &[&older, &flipped]), may_be_newer);
}

#[test]
fn of_several_pages_in_one_block_each_must_be_proven() {
    let cluster = Cluster {
        page_bytes: 1024,
        ..WITH_CHECKSUMS
    };
    let file = PageFile::PostgreSql {
        segment: 0,
        cluster,
    };
    let block = |positions: [u64; 4]| -> Vec<u8> {
        (40..)
            .zip(positions)
            .flat_map(|(number, position)| postgresql_page_at(position, number, position, 1024))
            .collect()
    };
    let right = block([100, 200, 300, 400]);
    let mut rotten = right.clone();
    rotten[1500] ^= 1;
    assert_eq!(choose(&file, 40, &[&rotten, &right]), Choice::Right(1));
    // The one that is damaged in its second page has a newer third one.
    let mut mixed = block([100, 200, 301, 400]);
    mixed[1500] ^= 1;
    assert_eq!(
        choose(&file, 40, &[&mixed, &right]),
        Choice::Undecided(Undecided::SeveralGood)
    );
}

#[test]
fn an_sqlite_page_whose_sums_are_wrong_may_be_one_that_was_written_without_the_extension() {
    let database = Database::of_head(&sqlite_page(1, 4096, true)).unwrap();
    let file = PageFile::Sqlite(database);
    let older = sqlite_page(2, 4096, false);
    // The program changed the page and left its sums as they were.
    let newer = damaged(&older);
    assert!(file.judge(3, &newer).is_bad());
    assert_eq!(
        choose(&file, 3, &[&older, &newer]),
        Choice::Undecided(Undecided::MayBeNewer)
    );
}

#[test]
fn in_an_encrypted_file_no_position_is_proof() {
    let mut head = innodb_page(3, Format::FullCrc32, 9, 0, 16384);
    head[8000..8006].copy_from_slice(b"s\x0e\x0cREt");
    reseal_full_crc32(&mut head);
    let space = Space::of_head(&head).unwrap();
    assert!(space.is_coded && space.certain);
    let file = PageFile::InnoDb(space);
    let plain = innodb_page_at(4, Format::FullCrc32, 9, 1, 16384, 100);
    let mut encrypted = innodb_page_at(5, Format::FullCrc32, 9, 1, 16384, 200);
    encrypted[..4].copy_from_slice(&1_u32.to_be_bytes());
    encrypted[26..16376].reverse();
    assert!(file.judge(1, &encrypted).is_bad());
    reseal_full_crc32(&mut encrypted);
    assert_eq!(file.judge(1, &encrypted), Verdict::Good(Position::Hidden));
    for newer in [encrypted.clone(), damaged(&encrypted)] {
        assert!(matches!(
            choose(&file, 1, &[&plain, &newer]),
            Choice::Undecided(Undecided::SeveralGood | Undecided::MayBeNewer)
        ));
    }
    // Its own checksum, stored on the damaged one, is proof.
    for own in [&plain, &encrypted] {
        assert_eq!(choose(&file, 1, &[own, &damaged(own)]), Choice::Right(0));
    }
    // Bytes that no server wrote as this page are no version of it.
    let garbage = filled(1, 16384);
    assert_eq!(choose(&file, 1, &[&garbage, &encrypted]), Choice::Right(1));
}

fn reseal_full_crc32(page: &mut [u8]) {
    let end = page.len();
    let sum = spindle_base::crc32c(&page[..end - 4]);
    page[end - 4..].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn a_disk_that_has_an_earlier_files_first_page_makes_a_file_doubtful() {
    let path = "/my/d/t.ibd";
    let own = innodb_page_at(3, Format::FullCrc32, 9, 0, 16384, 200);
    let earlier = innodb_page_at(4, Format::FullCrc32, 8, 0, 16384, 300);
    let is_certain = |heads: &[&[u8]]| {
        let Some(PageFile::InnoDb(space)) = PageFile::recognise_copies(path, heads, &[]) else {
            panic!("it is not recognised");
        };
        space.certain
    };
    assert!(is_certain(&[&own, &own]));
    assert!(!is_certain(&[&own, &earlier]));
    // Damage that is proven to be damage leaves it certain, whichever copy has it.
    assert!(is_certain(&[&own, &damaged(&own)]));
    assert!(is_certain(&[&filled(9, 16384), &own]));
    // A page that this judge does not know may be the file's, and the proven one an earlier one.
    let mut compressed = innodb_page_at(5, Format::Crc32, 7, 0, 16384, 100);
    compressed[54..58].copy_from_slice(&(4_u32 << 1).to_be_bytes());
    assert!(!is_certain(&[&earlier, &compressed]));
    assert!(!is_certain(&[&compressed, &earlier]));
}

proptest! {
    #[test]
    fn a_flipped_bit_is_never_good(
        seed in any::<u64>(),
        block in 0_u32..131_072,
        byte in 0_usize..8192,
        bit in 0_u8..8,
    ) {
        let mut page = postgresql_page(seed, block);
        prop_assert!(postgresql::judge(&page, 0, block.into(), WITH_CHECKSUMS).is_good());
        page[byte] ^= 1 << bit;
        prop_assert!(postgresql::judge(&page, 0, block.into(), WITH_CHECKSUMS).is_bad());

        let space = Space::of_head(&innodb_page(1, Format::FullCrc32, 9, 0, 16384)).unwrap();
        let number = block + 1;
        let mut page = innodb_page(seed, Format::FullCrc32, 9, number, 16384);
        prop_assert!(innodb::judge(&page, number.into(), &space).is_good());
        page[byte * 2] ^= 1 << bit;
        prop_assert!(innodb::judge(&page, number.into(), &space).is_bad());

        let space = Space::of_head(&innodb_page(1, Format::Crc32, 9, 0, 16384)).unwrap();
        let mut page = innodb_page(seed, Format::Crc32, 9, number, 16384);
        prop_assert!(innodb::judge(&page, number.into(), &space).is_good());
        page[byte * 2] ^= 1 << bit;
        // Between the two ranges lies what this format does not cover.
        let covered = !(26..34).contains(&(byte * 2));
        prop_assert_eq!(innodb::judge(&page, number.into(), &space).is_good(), !covered);

        let database = Database { page_bytes: 8192, certain: true };
        let mut page = sqlite_page(seed, 8192, false);
        prop_assert!(sqlite::judge(&page, database).is_good());
        page[byte] ^= 1 << bit;
        prop_assert!(sqlite::judge(&page, database).is_bad());
    }

    #[test]
    fn any_bytes_get_a_verdict(first in any::<u8>(), mut bytes in proptest::collection::vec(any::<u8>(), 0..70_000), sqlite in any::<bool>()) {
        if sqlite && bytes.len() > 32 {
            bytes[..16].copy_from_slice(b"SQLite format 3\0");
            bytes[20] = 8;
        }
        bytes.insert(0, first);
        fuzzing::pages(&bytes);
    }
}
