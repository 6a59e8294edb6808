//! What the model test does, and how such steps are drawn.

use proptest::prelude::*;
use spindle_fs::RenameMode;

/// How a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the disks.
    Around,
    /// To the disks, at the end of the file.
    Append,
    /// Into memory, and to the disks behind it.
    Behind,
}

const WAYS: &[Way] = &[
    Way::Around,
    Way::Append,
    Way::Behind,
    Way::Behind,
    Way::Behind,
];

/// A step. Directories and files are chosen by a number, modulo how many there are then; names
/// by a number of a few.
#[derive(Debug, Clone)]
pub enum Step {
    Create {
        directory: usize,
        name: u8,
    },
    MakeDirectory {
        directory: usize,
        name: u8,
    },
    MakeSymlink {
        directory: usize,
        name: u8,
    },
    Link {
        file: usize,
        directory: usize,
        name: u8,
    },
    Unlink {
        directory: usize,
        name: u8,
    },
    RemoveDirectory {
        directory: usize,
        name: u8,
    },
    Rename {
        from: (usize, u8),
        to: (usize, u8),
        mode: RenameMode,
    },
    Open {
        file: usize,
    },
    Unnamed {
        directory: usize,
    },
    CloseHandle {
        handle: usize,
    },
    Write {
        file: usize,
        offset: u64,
        length: usize,
        way: Way,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    Allocate {
        file: usize,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Copy {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Permissions {
        file: usize,
        permissions: u16,
    },
    SetExtended {
        file: usize,
        name: u8,
        create: bool,
        replace: bool,
    },
    RemoveExtended {
        file: usize,
        name: u8,
    },
    SyncFile {
        file: usize,
        data_only: bool,
    },
    Sync,
    Age,
    Reopen,
    /// Only where a keeper holds a journal.
    Kill,
}

/// As [`step`], with kills among them.
pub fn step_or_kill() -> impl Strategy<Value = Step> {
    prop_oneof![6 => step(), 1 => Just(Step::Kill)]
}

/// Around the borders of blocks, of runs in the first AU, and of the AU.
fn offset() -> impl Strategy<Value = u64> {
    let borders = [0_u64, 4096, 8192, 16_384, 65_536, 1 << 20];
    (prop::sample::select(borders.to_vec()), 0_u64..200)
        .prop_map(|(border, around)| (border + around).saturating_sub(100))
}

fn mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![
        3 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        1 => Just(RenameMode::Exchange),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let at = 0_usize..16;
    let name = 0_u8..5;
    let spot = || (0_usize..16, 0_u8..5);
    prop_oneof![
        4 => spot().prop_map(|(directory, name)| Step::Create { directory, name }),
        2 => spot().prop_map(|(directory, name)| Step::MakeDirectory { directory, name }),
        1 => spot().prop_map(|(directory, name)| Step::MakeSymlink { directory, name }),
        2 => (at.clone(), spot()).prop_map(|(file, (directory, name))| Step::Link { file, directory, name }),
        3 => spot().prop_map(|(directory, name)| Step::Unlink { directory, name }),
        2 => spot().prop_map(|(directory, name)| Step::RemoveDirectory { directory, name }),
        5 => (spot(), spot(), mode()).prop_map(|(from, to, mode)| Step::Rename { from, to, mode }),
        2 => at.clone().prop_map(|file| Step::Open { file }),
        1 => at.clone().prop_map(|directory| Step::Unnamed { directory }),
        2 => at.clone().prop_map(|handle| Step::CloseHandle { handle }),
        9 => (at.clone(), offset(), 1_usize..9000, prop::sample::select(WAYS))
            .prop_map(|(file, offset, length, way)| Step::Write { file, offset, length, way }),
        3 => (at.clone(), offset()).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => (at.clone(), offset(), 1_u64..70_000, prop::sample::select(vec![0, 1, 3, 0x10, 0x11]))
            .prop_map(|(file, offset, length, mode)| Step::Allocate { file, offset, length, mode }),
        2 => (at.clone(), offset(), at.clone(), offset(), 1_u64..100_000).prop_map(
            |(from, from_offset, to, to_offset, length)| Step::Copy { from, from_offset, to, to_offset, length }
        ),
        1 => (at.clone(), 0_u16..0o10000).prop_map(|(file, permissions)| Step::Permissions { file, permissions }),
        1 => (at.clone(), name.clone(), any::<bool>(), any::<bool>()).prop_map(
            |(file, name, create, replace)| Step::SetExtended { file, name, create, replace: replace && !create }
        ),
        1 => (at.clone(), name).prop_map(|(file, name)| Step::RemoveExtended { file, name }),
        1 => (at, any::<bool>()).prop_map(|(file, data_only)| Step::SyncFile { file, data_only }),
        1 => Just(Step::Sync),
        1 => Just(Step::Age),
        1 => Just(Step::Reopen),
    ]
}
