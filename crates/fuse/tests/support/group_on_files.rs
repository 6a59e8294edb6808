//! A real group on plain files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spindle_base::{AuSize, DiskName, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DEADLINE_DEFAULT, DiskSlot, Engine, FaultableDisks, OpenDisk, open_engine};
use spindle_fs::{FileSystem, Owner, Time};
use spindle_group::{
    Attended, Group, KeptJournal, NewDisk, NewGroup, Opener, UnwrittenBlocks, Watch,
};

const DISKS_COUNT: usize = 4;

/// A group of four sparse files and the thread that does its lazy work.
pub struct GroupOnFiles {
    pub file_system: Arc<FileSystem>,
    disks: Arc<FaultableDisks<Engine>>,
    slots: Vec<DiskSlot>,
    ended: Arc<AtomicBool>,
    lazy_work: Option<JoinHandle<()>>,
}

/// Different at each call, which is all that a test needs of an identity.
fn uuid() -> Uuid {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    Uuid(u128::from_str_radix(&digits, 16).unwrap().to_be_bytes())
}

impl GroupOnFiles {
    /// Makes it in `directory`; `journal` is what a keeper would hold, and `watch` what an owner is
    /// watched with that may sleep.
    pub fn new(
        directory: &Path,
        redundancy: Redundancy,
        disk_bytes: u64,
        journal: Option<Arc<KeptJournal>>,
        watch: Option<Watch>,
    ) -> Self {
        // As a keeper's daemon has it: writes are answered from memory.
        let journal = journal.unwrap_or_else(|| {
            let blocks = UnwrittenBlocks::create().unwrap();
            Arc::new(KeptJournal::create().unwrap().with_blocks(blocks))
        });
        let (engine, _) = open_engine(DEADLINE_DEFAULT);
        let files = Arc::new(FaultableDisks::new(engine));
        let disks: Vec<NewDisk> = (0..DISKS_COUNT)
            .map(|number| {
                let path = directory.join(format!("disk{number}"));
                File::create(&path).unwrap().set_len(disk_bytes).unwrap();
                NewDisk {
                    slot: files.inner().attach(OpenDisk::open(&path).unwrap()),
                    name: DiskName::new(format!("disk{number}")).unwrap(),
                    failure_group: FailureGroupName::new(format!("side{}", number % 2)).unwrap(),
                    uuid: uuid(),
                }
            })
            .collect();
        let slots: Vec<_> = disks.iter().map(|disk| disk.slot).collect();
        let name = GroupName::new("posix").unwrap();
        let new = NewGroup {
            name: name.clone(),
            uuid: uuid(),
            redundancy,
            au_size: AuSize::DEFAULT,
            disks,
            profile: "plain".to_owned(),
            created_s: 1_700_000_000,
        };
        let opener = Opener {
            host: "here".to_owned(),
            origin: None,
            booted_s: None,
            boot: uuid(),
            process_id: std::process::id(),
            now_s: 1_700_000_000,
            force: false,
            preferred_failure_group: None,
        };
        Group::create(files.clone(), &new).unwrap();
        let attended = Attended {
            journal: Some(journal),
            watch,
            ..Attended::default()
        };
        let disks = files.clone();
        let group =
            Group::open_attended(disks, &slots, &name, &opener, &|_| false, attended).unwrap();
        let group = Arc::new(group);
        let owner = Owner { user: 0, group: 0 };
        let now = Time {
            seconds: 1_700_000_000,
            nanoseconds: 0,
        };
        FileSystem::create(&group, owner, now).unwrap();
        let file_system = Arc::new(FileSystem::open(Arc::clone(&group)).unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let lazy_work = thread::spawn({
            let ended = Arc::clone(&ended);
            let start = Instant::now();
            let file_system = Arc::clone(&file_system);
            move || {
                while !ended.load(Ordering::Relaxed) {
                    let now_ms = u64::try_from(start.elapsed().as_millis()).unwrap();
                    let stepped = file_system.step(now_ms).unwrap();
                    if !file_system.write_due() && !stepped {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            }
        });
        Self {
            file_system,
            disks: files,
            slots,
            ended,
            lazy_work: Some(lazy_work),
        }
    }
}

impl GroupOnFiles {
    /// Flushes that the disks have done, together.
    pub fn flushes_count(&self) -> u64 {
        let flushes = |slot: &DiskSlot| self.disks.inner().counters(*slot).flushes;
        self.slots.iter().map(flushes).sum()
    }

    /// Takes all disks away.
    pub fn pull_all(&self) {
        self.slots.iter().for_each(|slot| self.disks.pull(*slot));
    }

    /// Brings them back.
    pub fn plug_all(&self) {
        self.slots.iter().for_each(|slot| self.disks.plug(*slot));
    }

    /// Ends the lazy work, looks for contradictions and closes the group.
    pub fn close(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(lazy_work) = self.lazy_work.take() {
            lazy_work.join().unwrap();
        }
        let group = self.file_system.group();
        assert_eq!(group.check().unwrap(), Vec::<String>::new());
        self.file_system.close().unwrap();
    }
}

impl Drop for GroupOnFiles {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
