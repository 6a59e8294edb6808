//! The maps as they would be: a layer of changed extents over those of the group.

use std::collections::{BTreeMap, HashMap};

use spindle_base::FileId;
use spindle_format::{COPIES_MAX, ExtentCopy};

use crate::background::Group;
use crate::background::mover::GroupMaps;
use crate::background::planner::{FileEntry, Maps, Move};

/// Where a run that is not taken begins: before every end of a disk.
const NOWHERE_YET: u64 = 1;

type Copies = [ExtentCopy; COPIES_MAX];

/// See the module.
#[derive(Debug)]
pub(crate) struct Foreseen<'a> {
    maps: GroupMaps<'a>,
    /// Files that are to have another number of copies.
    widths: BTreeMap<FileId, u8>,
    /// By file and number: extents whose copies are not those of the map.
    changed: HashMap<FileId, HashMap<u32, Copies>>,
}

impl<'a> Foreseen<'a> {
    /// The maps as they are, but that these files are to have so many copies.
    pub(crate) fn new(group: &'a Group, widths: BTreeMap<FileId, u8>) -> Self {
        Self {
            maps: GroupMaps(group),
            widths,
            changed: HashMap::new(),
        }
    }

    /// The copies of an extent as they would be.
    pub(crate) fn copies_of(&self, file: FileId, index: u32) -> Copies {
        let mut found = [ExtentCopy::HOLE; COPIES_MAX];
        self.extents(file, index, &mut |at, copies, _| {
            if at == index {
                found[..copies.len()].copy_from_slice(copies);
            }
            false
        });
        found
    }

    /// A copy lies where a move takes it.
    pub(crate) fn enter(&mut self, moved: &Move) {
        let mut copies = self.copies_of(moved.file, moved.index);
        let class = u8::try_from(moved.blocks.trailing_zeros()).expect("below 64");
        copies[usize::from(moved.copy_number)] = ExtentCopy::new(moved.to, NOWHERE_YET, class);
        self.set(moved.file, moved.index, copies);
    }

    /// An extent has these copies.
    pub(crate) fn set(&mut self, file: FileId, index: u32, copies: Copies) {
        let of_file = self.changed.entry(file).or_default();
        of_file.insert(index, copies);
    }
}

impl Maps for Foreseen<'_> {
    fn files(&self) -> Vec<FileEntry> {
        let mut files = self.maps.files();
        for file in &mut files {
            if let Some(copies) = self.widths.get(&file.id) {
                file.copies = *copies;
            }
        }
        files
    }

    fn extents(
        &self,
        file: FileId,
        first: u32,
        visit: &mut dyn FnMut(u32, &[ExtentCopy], u64) -> bool,
    ) {
        let changed = self.changed.get(&file);
        let width = self.widths.get(&file).map(|width| usize::from(*width));
        if changed.is_none() && width.is_none() {
            return self.maps.extents(file, first, visit);
        }
        self.maps
            .extents(file, first, &mut |index, copies, blocks| {
                let width = width.unwrap_or(copies.len());
                if let Some(changed) = changed.and_then(|changed| changed.get(&index)) {
                    return visit(index, &changed[..width], blocks);
                }
                if width <= copies.len() {
                    return visit(index, &copies[..width], blocks);
                }
                let mut wider = [ExtentCopy::MISSING; COPIES_MAX];
                wider[..copies.len()].copy_from_slice(copies);
                visit(index, &wider[..width], blocks)
            });
    }
}
