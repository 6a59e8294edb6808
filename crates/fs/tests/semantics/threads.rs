//! Many threads at once: nothing is torn, in memory and after a power cut in the middle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spindle_catalog::{Edit, Table};
use spindle_fs::{AttributeChange, FileSystem, RenameMode, Time};

use crate::fixture::{Fixture, OWNER, ROOT, name};

const NOW: Time = Time {
    seconds: 5,
    nanoseconds: 0,
};

/// Makes, writes, links, renames and removes; each call may lose against another thread, and
/// once the power is gone all do.
fn change_names(fs: &FileSystem, thread: u32, rounds: u32) {
    for round in 0..rounds {
        let text = format!("name{}", (round * 7 + thread) % 5);
        let other = format!("name{}", (round * 3 + thread * 2) % 5);
        let directory = match fs.resolve(name(if round % 3 == 0 { "left" } else { "right" })) {
            Ok(found) => found.id,
            Err(_) => return,
        };
        match round % 6 {
            0 | 1 => {
                if let Ok((_, handle)) = fs.create_file(directory, name(&text), 0o644, OWNER, NOW) {
                    let _ = fs.write(&handle, 0, &vec![1; 9000], false, NOW);
                }
            }
            2 => {
                let _ = fs.rename(
                    ROOT,
                    name(&text),
                    directory,
                    name(&other),
                    RenameMode::Replace,
                    NOW,
                );
                let _ = fs.make_directory(directory, name(&text), 0o755, OWNER, NOW);
            }
            3 => {
                let mode = if round % 4 == 0 {
                    RenameMode::Exchange
                } else {
                    RenameMode::Replace
                };
                let _ = fs.rename(directory, name(&text), ROOT, name(&other), mode, NOW);
            }
            4 => {
                if let Ok(found) = fs.lookup(directory, name(&text)) {
                    let _ = fs.make_link(found.id, ROOT, name(&other), NOW);
                }
            }
            _ => {
                let _ = fs.unlink(directory, name(&text), NOW);
                let _ = fs.remove_directory(ROOT, name(&other), NOW);
                let _ = fs.unlink(ROOT, name(&other), NOW);
            }
        }
    }
}

fn run(fixture: &Fixture, rounds: u32) {
    let fs = fixture.fs();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changers: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move || change_names(fs, thread, rounds)))
            .collect();
        let stop = &stop;
        scope.spawn(move || {
            let mut cookie = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = fs.sync();
                let entries = fs.read_directory(ROOT, cookie, 2).unwrap_or_default();
                cookie = entries.last().map_or(0, |last| last.cookie);
            }
        });
        for changer in changers {
            changer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn names_changed_by_many_threads_agree_in_the_end() {
    let mut fixture = Fixture::plain();
    for text in ["left", "right"] {
        fixture.directory(ROOT, text);
    }
    run(&fixture, 1500);
    fixture.check();
    fixture.reopen();
    fixture.check();
}

#[test]
fn a_power_cut_while_many_threads_change_names_leaves_whole_operations() {
    for seed in 1..=30_u64 {
        let mut fixture = Fixture::plain();
        for text in ["left", "right"] {
            fixture.directory(ROOT, text);
        }
        fixture.fs().sync().unwrap();
        fixture.disks.power_fails_after(seed * 37 % 1500 + 200);
        run(&fixture, 400);
        fixture.crash();
        fixture.check();
    }
}

#[test]
fn a_commit_never_takes_a_half_of_a_change() {
    let fixture = Fixture::plain();
    let group = fixture.fs().group();
    let put = |key: &[u8], number: u64| {
        let mut edit = Edit::default();
        edit.put(
            Table::Attribute,
            key.to_vec(),
            number.to_le_bytes().to_vec(),
        );
        edit
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let change = group.change();
                group.apply(&change, put(b"left", number));
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(20) {}
                group.apply(&change, put(b"right", number));
            }
        });
        // Readers of many rows make a commit wait between its seal and its batch.
        scope.spawn(|| {
            let mut edit = Edit::default();
            for number in 0..2000_u32 {
                edit.put(Table::Job, number.to_be_bytes().to_vec(), vec![1; 100]);
            }
            while !stop.load(Ordering::Relaxed) {
                group.apply(&group.change(), edit.clone());
                group.range(Table::Job, b"", &[0xff; 9], 2000).unwrap();
            }
        });
        let mut torn_count = 0;
        for seed in 0..150 {
            group.sync().unwrap();
            let other = fixture.after_power_cut(seed);
            let value = |key: &[u8]| other.get(Table::Attribute, key).unwrap();
            torn_count += u32::from(value(b"left") != value(b"right"));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn_count, 0);
    });
}

#[test]
fn a_sync_beside_a_write_back_waits_for_every_inode_that_it_took() {
    const FILES: usize = 8000;
    let fixture = Fixture::plain();
    let ids: Vec<_> = (0..FILES)
        .map(|number| fixture.make(ROOT, &format!("file{number}")).id())
        .collect();
    let fs = fixture.fs();
    fs.sync().unwrap();
    fs.step(0).unwrap();
    let mut lost = 0;
    for round in 1..=10_u32 {
        let seconds = i64::from(round);
        let change = AttributeChange {
            accessed: Some(Time { seconds, ..NOW }),
            ..AttributeChange::default()
        };
        for id in &ids {
            fs.set_attributes(*id, &change, NOW).unwrap();
        }
        let begun = &AtomicBool::new(false);
        let cut = std::thread::scope(|scope| {
            // Times become rows after a second.
            scope.spawn(move || {
                begun.store(true, Ordering::Release);
                fs.step(u64::from(round) * 1001).unwrap();
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let after = Duration::from_micros(u64::from(round) * 100);
            let now = Instant::now();
            while now.elapsed() < after {
                std::hint::spin_loop();
            }
            fs.sync().unwrap();
            fixture.after_power_cut(u64::from(round))
        });
        let cut = FileSystem::open(cut).unwrap();
        lost += (ids.iter())
            .filter(|id| cut.attributes(**id).unwrap().accessed.seconds != seconds)
            .count();
    }
    assert_eq!(lost, 0, "times, after a sync that was answered");
}
