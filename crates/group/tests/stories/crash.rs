//! A short script, cut at each of its requests: after the restart a synced file is as synced, an
//! unsynced write is there or not block by block, copies agree, and the check finds nothing.

use spindle_base::{FileId, Redundancy};
use spindle_group::{Group, GroupError, Layout};

use crate::scene::{FINE, NORMAL, Scene, assert_sound, create, pattern, read};

const LENGTH: usize = 3 << 20;

/// What a file may hold: for each 4 KiB block the contents it may have after a crash.
struct Model {
    possible: Vec<Vec<Vec<u8>>>,
}

impl Model {
    fn new() -> Self {
        Self {
            possible: vec![vec![vec![0; 4096]]; LENGTH / 4096],
        }
    }

    /// A write of whole blocks that no sync has covered.
    fn wrote(&mut self, offset: usize, data: &[u8]) {
        for (index, block) in data.chunks(4096).enumerate() {
            self.possible[offset / 4096 + index].push(block.to_vec());
        }
    }

    /// Everything so far is durable.
    fn synced(&mut self) {
        for block in &mut self.possible {
            block.drain(..block.len() - 1);
        }
    }

    fn assert_possible(&self, found: &[u8], when: &str) {
        for (index, block) in found.chunks(4096).enumerate() {
            assert!(
                self.possible[index].iter().any(|option| option == block)
                    // A write torn by the power cut, between two contents the block may have.
                    || self.is_torn(index, block),
                "{when}: block {index} holds what was never written there"
            );
        }
    }

    fn is_torn(&self, index: usize, block: &[u8]) -> bool {
        let options = &self.possible[index];
        options.len() > 1
            && block.chunks(512).enumerate().all(|(sector, found)| {
                options
                    .iter()
                    .any(|option| &option[sector * 512..sector * 512 + 512] == found)
            })
    }
}

/// Writes, overwrites, syncs, punches and replaces; stops at the first error.
fn script(group: &Group, layout: Layout, model: &mut Model) -> Result<(), GroupError> {
    let file = group.create_file(&group.change(), FileId(5), layout)?;
    group.sync_file(&file, true)?;
    let mut step = |offset: usize, blocks: usize, seed: u64, sync: bool| {
        let data = pattern(seed, blocks * 4096);
        model.wrote(offset * 4096, &data);
        group.write(&file, offset as u64 * 4096, &data)?;
        if sync {
            group.sync_file(&file, false)?;
            model.synced();
        }
        Ok::<(), GroupError>(())
    };
    step(0, 3, 1, true)?;
    step(1, 4, 2, false)?;
    step(30, 4, 11, false)?;
    step(31, 2, 12, false)?;
    step(100, 200, 3, true)?;
    step(0, 1, 4, true)?;
    step(260, 300, 5, false)?;
    step(120, 20, 6, true)?;
    let other = group.create_file(&group.change(), FileId(6), layout)?;
    group.write(&other, 0, &pattern(7, 1 << 20))?;
    group.sync_file(&other, true)?;
    group.remove_file(&group.change(), &other)?;
    group.sync()?;
    step(600, 100, 8, true)?;
    group.step(1000)?;
    group.step(7000)?;
    group.step(14_000)?;
    group.step(21_000)?;
    step(0, 2, 9, false)?;
    step(650, 10, 10, true)?;
    step(700, 8, 13, false)?;
    step(702, 2, 14, false)?;
    // The mark moves back, and what lay behind it is written anew before that is durable.
    model.wrote(704 * 4096, &vec![0; 40 * 4096]);
    group.punch(&file, 704 * 4096, 40 * 4096)?;
    let data = pattern(15, 3 * 4096);
    model.wrote(703 * 4096, &data);
    group.write(&file, 703 * 4096, &data)?;
    group.sync_file(&file, false)?;
    model.synced();
    Ok(())
}

fn copies_agree(group: &Group, scene: &Scene, when: &str) {
    let Some(file) = group.file(FileId(5)) else {
        return;
    };
    for extent in group.map(&file) {
        let length = usize::try_from(extent.initialised_bytes).unwrap();
        let copies: Vec<Vec<u8>> = extent
            .copies
            .iter()
            .flatten()
            .map(|(disk, at)| {
                scene
                    .disks
                    .bytes(spindle_device::DiskSlot(disk.0), *at, length)
            })
            .collect();
        assert!(
            copies.windows(2).all(|pair| pair[0] == pair[1]),
            "{when}: the copies of extent {} differ",
            extent.index
        );
    }
}

fn crash_everywhere(layout: Layout, every: u64) {
    let template = Scene::new(1, Redundancy::Normal, &[(0, 32), (1, 32), (1, 16)]);
    let mut cut = 1;
    loop {
        let scene = template.copy(cut);
        let mut model = Model::new();
        let finished = {
            let group = scene.open();
            scene.disks.power_fails_after(cut);
            script(&group, layout, &mut model).is_ok()
        };
        let finished = finished && scene.disks.is_powered();
        scene.crash();
        let when = format!("cut at request {cut}");
        let group = scene.open();
        assert_sound(&group);
        let found = match group.file(FileId(5)) {
            None => vec![0; LENGTH],
            Some(file) => {
                let mut found = vec![0xee; LENGTH];
                group.read(&file, 0, &mut found).unwrap();
                found
            }
        };
        model.assert_possible(&found, &when);
        copies_agree(&group, &scene, &when);
        // A second crash right after recovery loses nothing either.
        drop(group);
        scene.crash();
        let group = scene.open();
        if let Some(file) = group.file(FileId(5)) {
            let mut again = vec![0xee; LENGTH];
            group.read(&file, 0, &mut again).unwrap();
            assert!(again == found, "{when}: it changed at the second restart");
        }
        group.close().unwrap();
        if finished {
            assert!(cut > 50, "the script has many requests");
            return;
        }
        cut += every;
    }
}

#[test]
fn a_crash_at_any_request_keeps_what_was_synced_and_makes_the_copies_equal() {
    crash_everywhere(NORMAL, 1);
}

#[test]
fn so_it_does_under_fine_striping() {
    crash_everywhere(FINE, 3);
}

#[test]
fn what_was_read_after_a_recovery_is_there_after_the_next_crash_on_every_copy() {
    let template = Scene::new(1, Redundancy::Normal, &[(0, 32), (1, 32), (2, 32)]);
    {
        let group = template.open();
        let file = create(&group, 5, NORMAL);
        group.write(&file, 0, &pattern(1, 40_960)).unwrap();
        group.close().unwrap();
    }
    for seed in 0..60 {
        let scene = template.copy(seed);
        {
            let group = scene.open();
            let file = group.file(FileId(5)).unwrap();
            group.write(&file, 0, &pattern(2, 40_960)).unwrap();
        }
        scene.crash();
        let (seen, disks) = {
            let group = scene.open();
            let file = group.file(FileId(5)).unwrap();
            let disks: Vec<_> = group.map(&file)[0]
                .copies
                .iter()
                .flatten()
                .copied()
                .collect();
            (read(&group, &file, 0, 40_960), disks)
        };
        scene.crash();
        for (disk, _) in disks {
            let scene = scene.copy(seed);
            scene.disks.vanish(spindle_device::DiskSlot(disk.0));
            let group = scene.open();
            let file = group.file(FileId(5)).unwrap();
            assert!(
                read(&group, &file, 0, 40_960) == seen,
                "seed {seed}: without disk {disk} other bytes are read"
            );
        }
    }
}
