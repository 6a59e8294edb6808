//! What a run does, step by step. Operations name files by a number that is reduced to what is
//! there when they run, so that leaving one out keeps the others meaningful.

use spindle_device::SeededRandom;

use crate::disk_operation::DiskOperation;

/// Where a write, read or punch goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// Somewhere before the end of the file, in this many millionths of it.
    Inside(u64),
    /// At the end.
    End,
    /// At this offset.
    At(u64),
    /// This far beyond the end.
    Beyond(u64),
}

/// Which requests a fault meets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Vanish,
    VanishAfter(u64),
    FailWrites(u64),
    FailFlushes(u64),
    DropAtFlushes(u64),
    /// In a stretch of the disk that a number gives.
    FailReads {
        stretch: u64,
        count: u64,
    },
    FlipBit {
        place: u64,
    },
}

/// One step of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Names(NameOperation),
    Bytes(ByteOperation),
    KeepOpen {
        file: u64,
    },
    CloseKept {
        file: u64,
    },
    SyncFile {
        file: u64,
        data_only: bool,
    },
    Sync,
    Background {
        steps: u64,
    },
    /// Reserves all space but so much.
    Fill {
        file: u64,
        left_bytes: u64,
    },
    /// So many large attributes at once, that the catalog has to grow.
    Bulk {
        file: u64,
        count: u64,
    },
    Check,
    CloseAndReopen,
    Kill,
    Crash,
    /// The power fails at a request to come; recovery meets it too if it is not over by then.
    CrashAfter {
        requests: u64,
        and_in_recovery: Option<u64>,
    },
    Fault {
        disk: u64,
        fault: Fault,
    },
    Disks(DiskOperation),
}

/// On names and attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NameOperation {
    Create {
        parent: u64,
        name: u64,
        keep_open: bool,
    },
    MakeDirectory {
        parent: u64,
        name: u64,
    },
    MakeSymlink {
        parent: u64,
        name: u64,
    },
    MakeLink {
        file: u64,
        parent: u64,
        name: u64,
    },
    Unlink {
        entry: u64,
    },
    RemoveDirectory {
        directory: u64,
    },
    Rename {
        entry: u64,
        parent: u64,
        name: u64,
        exchange: bool,
    },
    SetPermissions {
        file: u64,
        permissions: u16,
    },
    SetExtended {
        file: u64,
        name: u64,
        length: u64,
    },
    RemoveExtended {
        file: u64,
    },
}

/// On the bytes of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ByteOperation {
    Write {
        file: u64,
        place: Place,
        length: u64,
    },
    Append {
        file: u64,
        length: u64,
    },
    Read {
        file: u64,
        place: Place,
        length: u64,
    },
    Truncate {
        file: u64,
        place: Place,
    },
    Allocate {
        file: u64,
        place: Place,
        length: u64,
        keep_size: bool,
    },
    Punch {
        file: u64,
        place: Place,
        length: u64,
    },
    ZeroRange {
        file: u64,
        place: Place,
        length: u64,
    },
    CopyRange {
        from: u64,
        to: u64,
        place: Place,
        length: u64,
    },
    Seek {
        file: u64,
        place: Place,
        hole: bool,
    },
}

impl Operation {
    pub(crate) fn random(random: &mut SeededRandom, faults: bool) -> Self {
        let number = random.next_u64() >> 16;
        let other = random.next_u64() >> 16;
        match random.below(900) {
            0..=4 => {
                return Self::Fill {
                    file: number,
                    left_bytes: random.below(3 << 20),
                };
            }
            5 => {
                return Self::Bulk {
                    file: number,
                    count: 1 + random.below(60),
                };
            }
            _ => {}
        }
        match random.below(if faults { 110 } else { 100 }) {
            0..=29 => Self::Names(NameOperation::random(random)),
            30..=69 => Self::Bytes(ByteOperation::random(random)),
            70..=71 => Self::KeepOpen { file: number },
            72..=73 => Self::CloseKept { file: number },
            74..=82 => Self::SyncFile {
                file: number,
                data_only: other.is_multiple_of(2),
            },
            83..=85 => Self::Sync,
            86..=88 => Self::Background {
                steps: other % 4 + 1,
            },
            89 => Self::Check,
            90..=91 => Self::CloseAndReopen,
            92..=93 => Self::Kill,
            94 => Self::Crash,
            95..=99 => Self::CrashAfter {
                requests: 1 + skewed(random, 200),
                and_in_recovery: random.chance(1, 4).then(|| 1 + random.below(120)),
            },
            _ => Self::Fault {
                disk: other,
                fault: fault(random),
            },
        }
    }
}

impl NameOperation {
    fn random(random: &mut SeededRandom) -> Self {
        let mut pick = || random.next_u64() >> 16;
        let (file, parent, name, other) = (pick(), pick(), pick() % 8, pick());
        match random.below(30) {
            0..=8 => Self::Create {
                parent,
                name,
                keep_open: other % 4 == 0,
            },
            9..=11 => Self::MakeDirectory { parent, name },
            12 => Self::MakeSymlink { parent, name },
            13..=14 => Self::MakeLink { file, parent, name },
            15..=19 => Self::Unlink { entry: file },
            20 => Self::RemoveDirectory { directory: file },
            21..=24 => Self::Rename {
                entry: file,
                parent,
                name,
                exchange: other % 5 == 0,
            },
            25 => Self::SetPermissions {
                file,
                permissions: 0o600 | u16::try_from(other % 64).unwrap_or(0),
            },
            26..=28 => Self::SetExtended {
                file,
                name,
                length: other % 200,
            },
            _ => Self::RemoveExtended { file },
        }
    }
}

impl ByteOperation {
    fn random(random: &mut SeededRandom) -> Self {
        let file = random.next_u64() >> 16;
        let other = random.next_u64() >> 16;
        let place = place(random);
        let length = length(random);
        match random.below(40) {
            0..=20 => Self::Write {
                file,
                place,
                length,
            },
            21..=24 => Self::Append { file, length },
            25..=28 => Self::Read {
                file,
                place,
                length,
            },
            29..=32 => Self::Truncate { file, place },
            33..=34 => Self::Allocate {
                file,
                place,
                length,
                keep_size: other.is_multiple_of(2),
            },
            35..=36 => Self::Punch {
                file,
                place,
                length,
            },
            37 => Self::ZeroRange {
                file,
                place,
                length,
            },
            38 => Self::CopyRange {
                from: file,
                to: other,
                place,
                length,
            },
            _ => Self::Seek {
                file,
                place,
                hole: other.is_multiple_of(2),
            },
        }
    }
}

fn place(random: &mut SeededRandom) -> Place {
    match random.below(20) {
        0..=9 => Place::Inside(random.below(1_000_000)),
        10..=13 => Place::End,
        14..=15 => Place::At(random.below(16) * 4096),
        16..=17 => Place::At(random.below(96 << 10)),
        18 => Place::Beyond(skewed(random, 256 << 10)),
        _ => Place::At(random.below(5 << 20)),
    }
}

fn length(random: &mut SeededRandom) -> u64 {
    match random.below(40) {
        0..=15 => 1 + random.below(6000),
        16..=27 => 4096 * (1 + random.below(4)),
        28..=36 => 1 + random.below(40 << 10),
        37..=38 => 4096 * random.below(40),
        _ => skewed(random, 1400 << 10),
    }
}

fn fault(random: &mut SeededRandom) -> Fault {
    match random.below(12) {
        0 => Fault::Vanish,
        1..=3 => Fault::VanishAfter(1 + random.below(40)),
        4..=5 => Fault::FailWrites(1 + random.below(3)),
        6 if random.chance(1, 3) => Fault::FailFlushes(1),
        6 => Fault::DropAtFlushes(1),
        7..=8 => Fault::FailReads {
            stretch: random.next_u64() >> 16,
            count: if random.chance(1, 3) {
                u64::MAX
            } else {
                1 + random.below(4)
            },
        },
        _ => Fault::FlipBit {
            place: random.next_u64() >> 16,
        },
    }
}

/// Below `bound`, small numbers more often than large ones.
pub(crate) fn skewed(random: &mut SeededRandom, bound: u64) -> u64 {
    let widest = 64 - bound.leading_zeros();
    let bits = random.below(u64::from(widest)) + 1;
    random.below(1 << bits).min(bound - 1)
}
