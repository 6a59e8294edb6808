//! What is written is read again, over layouts, alignments and openings.

use spindle_base::{FileId, Redundancy};

use crate::scene::{EXTERNAL, FINE, MIB, NORMAL, Scene, assert_sound, create, pattern, read};

#[test]
fn what_was_written_at_any_alignment_is_read_again_and_after_a_close() {
    let scene = Scene::new(1, Redundancy::Normal, &[(0, 64), (1, 64), (2, 48), (2, 96)]);
    for (id, layout) in (10..).zip([EXTERNAL, NORMAL, FINE]) {
        let group = scene.open();
        let file = create(&group, id, layout);
        let mut model = vec![0_u8; 12 << 20];
        for (step, (offset, length)) in [
            (0_usize, 100_usize),
            (50, 5000),
            (4096, 8192),
            (1 << 20, 3 << 20),
            ((5 << 20) + 77, 70_000),
            ((9 << 20) - 3, 4096),
            (3 << 20, 1 << 20),
        ]
        .into_iter()
        .enumerate()
        {
            let data = pattern(step as u64, length);
            group.write(&file, offset as u64, &data).unwrap();
            model[offset..offset + length].copy_from_slice(&data);
        }
        assert!(read(&group, &file, 0, model.len()) == model);
        assert!(read(&group, &file, 4095, 9000) == model[4095..13_095]);
        assert_sound(&group);
        group.close().unwrap();
        drop(group);
        let group = scene.open();
        let file = group.file(FileId(id)).unwrap();
        assert!(read(&group, &file, 0, model.len()) == model);
        assert_sound(&group);
        group.close().unwrap();
    }
}

#[test]
fn punched_and_cut_ranges_read_as_zeros_and_give_space_back() {
    let scene = Scene::mirrored(2);
    let group = scene.open();
    for (id, layout) in (20..).zip([NORMAL, FINE]) {
        let free = group.view().free_bytes;
        let file = create(&group, id, layout);
        let mut model = pattern(3, 12 << 20);
        group.write(&file, 0, &model).unwrap();
        for (from, to) in [
            (10_usize, 20_usize),
            (5000, 300_000),
            ((1 << 20) + 5, (4 << 20) + 9),
            ((6 << 20) - 4096, 7 << 20),
        ] {
            group.punch(&file, from as u64, (to - from) as u64).unwrap();
            model[from..to].fill(0);
            assert!(read(&group, &file, 0, model.len()) == model);
        }
        group.truncate(&file, (10 << 20) + 1000).unwrap();
        model[(10 << 20) + 1000..].fill(0);
        assert!(read(&group, &file, 0, model.len()) == model);
        assert_sound(&group);
        group.truncate(&file, 0).unwrap();
        assert_eq!(group.allocated_bytes(&file), 0);
        group.sync().unwrap();
        assert_eq!(group.view().free_bytes, free);
        assert!(
            read(&group, &file, 0, 100_000)
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn seek_finds_data_and_holes() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let file = create(&group, 30, NORMAL);
    group.write(&file, 3 * MIB, &[1; 4096]).unwrap();
    let end = 5 * MIB;
    assert_eq!(group.seek(&file, 0, end, false), Some(3 * MIB));
    assert_eq!(
        group.seek(&file, 3 * MIB + 7, end, false),
        Some(3 * MIB + 7)
    );
    assert_eq!(group.seek(&file, 0, end, true), Some(0));
    assert_eq!(group.seek(&file, 3 * MIB, end, true), Some(3 * MIB + 4096));
    assert_eq!(group.seek(&file, 3 * MIB + 4096, end, false), None);
    assert_eq!(group.seek(&file, 3 * MIB, 3 * MIB + 100, true), None);
}

#[test]
fn reserved_space_reads_as_zeros_whatever_an_earlier_file_left() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    let first = create(&group, 40, NORMAL);
    group.write(&first, 0, &pattern(9, 30 << 20)).unwrap();
    group.remove_file(&group.change(), &first).unwrap();
    group.sync().unwrap();
    let second = create(&group, 41, NORMAL);
    group.allocate(&second, 0, 30 * MIB).unwrap();
    assert!(group.allocated_bytes(&second) >= 30 * MIB);
    group.write(&second, 8 * MIB + 600, b"here").unwrap();
    let mut model = vec![0_u8; 30 << 20];
    model[(8 << 20) + 600..(8 << 20) + 604].copy_from_slice(b"here");
    assert!(read(&group, &second, 0, 30 << 20) == model);
    assert_sound(&group);
}

#[test]
fn a_full_group_says_so_and_harms_nothing_and_takes_writes_again_after_a_removal() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    let kept = create(&group, 50, NORMAL);
    group.write(&kept, 0, &pattern(1, 1 << 20)).unwrap();
    let big = create(&group, 51, NORMAL);
    let mut offset = 0;
    let error = loop {
        match group.write(&big, offset, &pattern(offset, 1 << 20)) {
            Ok(()) => offset += MIB,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, spindle_group::GroupErrorKind::NoSpace);
    assert!(offset >= 40 * MIB, "{offset} bytes went in");
    assert!(group.usable_bytes(NORMAL) < MIB);
    assert_eq!(
        group.allocate(&big, 0, 200 * MIB).unwrap_err().kind,
        error.kind
    );
    assert_sound(&group);
    assert!(read(&group, &kept, 0, 1 << 20) == pattern(1, 1 << 20));
    assert!(read(&group, &big, offset - MIB, 1 << 20) == pattern(offset - MIB, 1 << 20));
    group.remove_file(&group.change(), &big).unwrap();
    let again = create(&group, 52, NORMAL);
    group.write(&again, 0, &pattern(2, 20 << 20)).unwrap();
    group.close().unwrap();
}
