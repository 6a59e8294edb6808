//! Bytes: sizes, holes, reserved space, copies, and running out of space.

use spindle_base::Redundancy;
use spindle_fs::{AttributeChange, FILE_SIZE_BYTES_MAX, FsResult, Handle};

use crate::fixture::{Fixture, ROOT, class, name};

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

fn set_size(fixture: &Fixture, handle: &Handle, size_bytes: u64) -> FsResult<()> {
    let change = AttributeChange {
        size_bytes: Some(size_bytes),
        ..Default::default()
    };
    fixture
        .fs()
        .set_attributes(handle.id(), &change, fixture.now())
        .map(|_| ())
}

fn size(fixture: &Fixture, handle: &Handle) -> u64 {
    fixture.fs().attributes(handle.id()).unwrap().size_bytes
}

fn allocate(fixture: &Fixture, handle: &Handle, range: (u64, u64), mode: u32) -> FsResult<()> {
    fixture
        .fs()
        .allocate(handle, range.0, range.1, mode, fixture.now())
}

#[test]
fn what_was_cut_off_reads_as_zeros_when_the_file_grows_again() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &[7; 20_000]);
    set_size(&fixture, &handle, 5000).unwrap();
    set_size(&fixture, &handle, 20_000).unwrap();
    let contents = fixture.contents(&handle);
    assert!(contents[..5000].iter().all(|byte| *byte == 7));
    assert!(contents[5000..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_write_behind_the_end_leaves_a_hole_of_zeros() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &[7; 100]);
    set_size(&fixture, &handle, 10).unwrap();
    fixture.write(&handle, 3 << 20, b"end");
    let contents = fixture.contents(&handle);
    assert_eq!(contents.len(), (3 << 20) + 3);
    assert!(contents[..10].iter().all(|byte| *byte == 7));
    assert!(contents[10..3 << 20].iter().all(|byte| *byte == 0));
    let fs = fixture.fs();
    assert!(fs.attributes(handle.id()).unwrap().allocated_bytes < 2 << 20);
    assert_eq!(fs.seek(&handle, 0, false).unwrap(), Some(0));
    assert_eq!(fs.seek(&handle, 0, true).unwrap(), Some(4096));
    assert_eq!(fs.seek(&handle, 4096, false).unwrap(), Some(3 << 20));
    assert_eq!(
        fs.seek(&handle, 3 << 20, true).unwrap(),
        Some((3 << 20) + 3)
    );
    assert_eq!(fs.seek(&handle, (3 << 20) + 3, false).unwrap(), None);
    assert_eq!(fs.seek(&handle, (3 << 20) + 3, true).unwrap(), None);
}

#[test]
fn bytes_beyond_the_end_that_a_crash_left_are_never_read() {
    let mut fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &[1; 100]);
    fixture.fs().sync_file(&handle, false).unwrap();
    // Data and marks of the longer file become durable by the sync of another file; its size,
    // which nobody synced, does not.
    fixture.write(&handle, 100, &[2; 50_000]);
    let other = fixture.make(ROOT, "other");
    fixture.fs().sync_file(&other, false).unwrap();
    fixture.fs().group().sync().unwrap();
    drop((handle, other));
    fixture.crash();
    let handle = fixture.fs().open_file(fixture.find("a").id).unwrap();
    assert_eq!(size(&fixture, &handle), 100);
    fixture.write(&handle, 60_000, b"x");
    let contents = fixture.contents(&handle);
    assert!(contents[..100].iter().all(|byte| *byte == 1));
    assert!(contents[100..60_000].iter().all(|byte| *byte == 0));
}

#[test]
fn reading_ends_at_the_end_of_the_file() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, b"0123456789");
    let mut out = [0; 4];
    let fs = fixture.fs();
    assert_eq!(fs.read(&handle, 8, &mut out).unwrap(), 2);
    assert_eq!(&out[..2], b"89");
    assert_eq!(fs.read(&handle, 10, &mut out).unwrap(), 0);
    assert_eq!(fs.read(&handle, u64::MAX, &mut out).unwrap(), 0);
}

#[test]
fn appends_ignore_the_offset() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    for piece in [b"one ".as_slice(), b"two ", b"three"] {
        fixture
            .fs()
            .write(&handle, 1, piece, true, fixture.now())
            .unwrap();
    }
    assert_eq!(fixture.contents(&handle), b"one two three");
}

#[test]
fn appends_of_several_threads_are_all_there_and_whole() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    let now = fixture.now();
    let fs = fixture.fs();
    std::thread::scope(|scope| {
        for writer in 1..=4_u8 {
            let handle = &handle;
            scope.spawn(move || {
                for _ in 0..50 {
                    fs.write(handle, 0, &[writer; 777], true, now).unwrap();
                }
            });
        }
    });
    let contents = fixture.contents(&handle);
    assert_eq!(contents.len(), 4 * 50 * 777);
    let mut counts = [0; 5];
    for piece in contents.chunks(777) {
        assert!(piece.iter().all(|byte| *byte == piece[0]));
        counts[usize::from(piece[0])] += 1;
    }
    assert_eq!(counts, [0, 50, 50, 50, 50]);
}

#[test]
fn writers_behind_the_end_in_any_order_give_the_file_that_one_would() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    let now = fixture.now();
    let fs = fixture.fs();
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let handle = &handle;
            scope.spawn(move || {
                for piece in (0..16_u8).rev() {
                    let number = piece * 4 + writer;
                    let at = u64::from(number) * 10_000;
                    fs.write(handle, at, &[number + 1; 10_000], false, now)
                        .unwrap();
                }
            });
        }
    });
    let contents = fixture.contents(&handle);
    assert_eq!(contents.len(), 64 * 10_000);
    for (number, piece) in contents.chunks(10_000).enumerate() {
        assert!(piece.iter().all(|byte| usize::from(*byte) == number + 1));
    }
}

#[test]
fn nothing_goes_beyond_the_largest_file() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    let fs = fixture.fs();
    let now = fixture.now();
    let written = fs.write(&handle, FILE_SIZE_BYTES_MAX, b"x", false, now);
    assert_eq!(class(&written), "too large");
    let written = fs.write(&handle, u64::MAX, b"x", false, now);
    assert_eq!(class(&written), "too large");
    let sized = set_size(&fixture, &handle, FILE_SIZE_BYTES_MAX + 1);
    assert_eq!(class(&sized), "too large");
    let allocated = allocate(&fixture, &handle, (FILE_SIZE_BYTES_MAX, 1), 0);
    assert_eq!(class(&allocated), "too large");
    set_size(&fixture, &handle, FILE_SIZE_BYTES_MAX).unwrap();
    fs.write(&handle, FILE_SIZE_BYTES_MAX - 1, b"x", false, now)
        .unwrap();
    set_size(&fixture, &handle, 0).unwrap();
}

#[test]
fn reserved_space_reads_as_zeros_and_moves_the_end_unless_told_not_to() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    allocate(&fixture, &handle, (0, 3 << 20), KEEP_SIZE).unwrap();
    assert_eq!(size(&fixture, &handle), 0);
    let allocated = fixture
        .fs()
        .attributes(handle.id())
        .unwrap()
        .allocated_bytes;
    assert!(allocated >= 3 << 20);
    allocate(&fixture, &handle, (0, 1 << 20), 0).unwrap();
    assert_eq!(size(&fixture, &handle), 1 << 20);
    assert!(fixture.contents(&handle).iter().all(|byte| *byte == 0));
    assert_eq!(class(&allocate(&fixture, &handle, (0, 0), 0)), "invalid");
    assert_eq!(
        class(&allocate(&fixture, &handle, (0, 1), PUNCH_HOLE)),
        "unsupported"
    );
    assert_eq!(
        class(&allocate(&fixture, &handle, (0, 1), 0x20)),
        "unsupported"
    );
}

#[test]
fn punched_and_zeroed_ranges_read_as_zeros_and_their_neighbours_stay() {
    for (mode, end) in [
        (PUNCH_HOLE | KEEP_SIZE, 3 << 20),
        (ZERO_RANGE, 5 << 20),
        (ZERO_RANGE | KEEP_SIZE, 3 << 20),
    ] {
        let fixture = Fixture::plain();
        let handle = fixture.make(ROOT, "a");
        fixture.write(&handle, 0, &vec![7; 3 << 20]);
        allocate(&fixture, &handle, (5000, (5 << 20) - 5000), mode).unwrap();
        let contents = fixture.contents(&handle);
        assert_eq!(contents.len(), end, "mode {mode}");
        assert!(contents[..5000].iter().all(|byte| *byte == 7));
        assert!(contents[5000..].iter().all(|byte| *byte == 0));
        let allocated = fixture
            .fs()
            .attributes(handle.id())
            .unwrap()
            .allocated_bytes;
        if mode & PUNCH_HOLE == 0 {
            assert!(allocated >= 5 << 20, "mode {mode}");
        } else {
            assert!(allocated < 2 << 20);
        }
        // What lies beyond is zeros too, when the end moves over it.
        set_size(&fixture, &handle, 6 << 20).unwrap();
        assert!(
            fixture.contents(&handle)[5000..]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn a_copy_has_the_bytes_and_the_holes_of_its_source() {
    let fixture = Fixture::plain();
    let from = fixture.make(ROOT, "from");
    fixture.write(&from, 0, &[1; 10_000]);
    fixture.write(&from, 4 << 20, &vec![2; (1 << 20) + 5]);
    let to = fixture.make(ROOT, "to");
    fixture.write(&to, 0, &vec![9; 1 << 20]);
    let fs = fixture.fs();
    let copied = fs
        .copy_range(&from, 0, &to, 0, u64::MAX >> 1, fixture.now())
        .unwrap();
    assert_eq!(copied, (5 << 20) + 5);
    assert!(fixture.contents(&from) == fixture.contents(&to));
    let allocated = |handle: &Handle| fs.attributes(handle.id()).unwrap().allocated_bytes;
    assert!(allocated(&to) < 4 << 20);
    // A source that ends in a hole.
    set_size(&fixture, &from, 8 << 20).unwrap();
    let copied = fs
        .copy_range(&from, 5 << 20, &to, 9 << 20, 8 << 20, fixture.now())
        .unwrap();
    assert_eq!(copied, 3 << 20);
    assert_eq!(size(&fixture, &to), 12 << 20);
    assert_eq!(
        fs.copy_range(&from, 8 << 20, &to, 0, 5, fixture.now())
            .unwrap(),
        0
    );
}

#[test]
fn a_copy_within_a_file_is_right_unless_it_overlaps_itself() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, b"abcdef");
    let fs = fixture.fs();
    let overlapping = fs.copy_range(&handle, 0, &handle, 3, 4, fixture.now());
    assert_eq!(class(&overlapping), "invalid");
    let copied = fs
        .copy_range(&handle, 0, &handle, 6, 6, fixture.now())
        .unwrap();
    assert_eq!(copied, 6);
    assert_eq!(fixture.contents(&handle), b"abcdefabcdef");
}

#[test]
fn sizes_belong_to_regular_files() {
    let fixture = Fixture::plain();
    let directory = fixture.directory(ROOT, "d");
    let change = AttributeChange {
        size_bytes: Some(0),
        ..Default::default()
    };
    let set = fixture
        .fs()
        .set_attributes(directory, &change, fixture.now());
    assert_eq!(class(&set), "is a directory");
    let handle = fixture.fs().open_file(directory).unwrap();
    assert_eq!(
        class(&fixture.fs().read(&handle, 0, &mut [0])),
        "is a directory"
    );
}

#[test]
fn a_strangers_write_takes_set_id_bits_but_no_mandatory_lock() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o4644, 0o644)] {
        let set = |change: AttributeChange| {
            fixture
                .fs()
                .set_attributes(handle.id(), &change, fixture.now())
                .unwrap()
        };
        set(AttributeChange {
            permissions: Some(before),
            ..Default::default()
        });
        let killed = set(AttributeChange {
            kill_privileges: true,
            size_bytes: Some(0),
            ..Default::default()
        });
        assert_eq!(killed.permissions, after, "{before:o}");
    }
}

#[test]
fn a_full_group_refuses_and_harms_nothing() {
    let mut fixture = Fixture::sized("plain", Redundancy::Normal, 24 << 20);
    let kept = fixture.make(ROOT, "kept");
    fixture.write(&kept, 0, &[5; 30_000]);
    let handle = fixture.make(ROOT, "filler");
    let piece = vec![6; 1 << 20];
    let mut written = 0;
    let refused = loop {
        let result = fixture
            .fs()
            .write(&handle, written, &piece, false, fixture.now());
        match result {
            Ok(()) => written += 1 << 20,
            refused => break refused,
        }
        assert!(written < 1 << 30, "the group is smaller than that");
    };
    assert_eq!(class(&refused), "no space");
    assert_eq!(size(&fixture, &handle), written);
    assert_eq!(
        class(&allocate(&fixture, &handle, (0, 1 << 30), 0)),
        "no space"
    );
    assert_eq!(size(&fixture, &handle), written);
    assert!(fixture.contents(&handle).iter().all(|byte| *byte == 6));
    assert_eq!(fixture.contents(&kept), [5; 30_000]);
    // Names can still be changed, and what is removed can be used again.
    drop(handle);
    fixture
        .fs()
        .unlink(ROOT, name("filler"), fixture.now())
        .unwrap();
    fixture.fs().sync().unwrap();
    let again = fixture.make(ROOT, "again");
    fixture.write(&again, 0, &piece);
    fixture.check();
    drop((kept, again));
    fixture.reopen();
    fixture.check();
}

#[test]
fn space_falls_by_what_is_written_and_comes_back() {
    let fixture = Fixture::plain();
    let before = fixture.fs().space().unwrap();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &vec![1; 8 << 20]);
    let after = fixture.fs().space().unwrap();
    let fallen = (before.blocks_free - after.blocks_free) * before.block_size_bytes;
    assert!(((7 << 20)..=(12 << 20)).contains(&fallen), "{fallen}");
    assert!(after.blocks >= after.blocks_free);
    drop(handle);
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    fixture.fs().sync().unwrap();
    assert_eq!(
        fixture.fs().space().unwrap().blocks_free,
        before.blocks_free
    );
}
