//! Random steps, each compared with a reference model that is too simple to be wrong: maps of
//! names and vectors of bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use spindle_base::{FileId, Redundancy};
use spindle_fs::{AttributeChange, Handle, Kind, RenameMode};

use crate::fixture::{Fixture, OWNER, ROOT, class, name};
use crate::operations::{Step, Way, step, step_or_kill};

const PERMISSIONS: u16 = 0o644;

#[derive(Debug, Clone, Default)]
struct ModelNode {
    /// A directory's entries.
    entries: Option<BTreeMap<String, FileId>>,
    /// A regular file's bytes.
    bytes: Option<Vec<u8>>,
    permissions: u16,
    extended: BTreeMap<String, Vec<u8>>,
}

struct Run {
    fixture: Fixture,
    nodes: BTreeMap<FileId, ModelNode>,
    handles: Vec<Arc<Handle>>,
    /// Counts writes, so that each has bytes of its own.
    writes_count: u8,
    clock_ms: u64,
}

impl Run {
    fn new(profile: &str, redundancy: Redundancy) -> Self {
        let root = ModelNode {
            entries: Some(BTreeMap::new()),
            permissions: 0o755,
            ..Default::default()
        };
        Self {
            fixture: Fixture::new(profile, redundancy),
            nodes: BTreeMap::from([(ROOT, root)]),
            handles: Vec::new(),
            writes_count: 0,
            clock_ms: 0,
        }
    }

    // ---- choosing ----

    fn directory(&self, number: usize) -> FileId {
        let all: Vec<FileId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.entries.is_some())
            .map(|(id, _)| *id)
            .collect();
        all[number % all.len()]
    }

    fn file(&self, number: usize) -> Option<FileId> {
        let all: Vec<FileId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.bytes.is_some())
            .map(|(id, _)| *id)
            .collect();
        all.get(number % all.len().max(1)).copied()
    }

    fn text(number: u8) -> String {
        format!("name{number}")
    }

    // ---- the model ----

    fn entry(&self, directory: FileId, text: &str) -> Option<FileId> {
        self.nodes[&directory].entries.as_ref()?.get(text).copied()
    }

    fn entries(&mut self, directory: FileId) -> &mut BTreeMap<String, FileId> {
        let node = self.nodes.get_mut(&directory).unwrap();
        node.entries.as_mut().unwrap()
    }

    fn bytes(&mut self, id: FileId) -> &mut Vec<u8> {
        self.nodes.get_mut(&id).unwrap().bytes.as_mut().unwrap()
    }

    fn is_directory(&self, id: FileId) -> bool {
        self.nodes[&id].entries.is_some()
    }

    fn links_count(&self, id: FileId) -> u32 {
        if let Some(entries) = &self.nodes[&id].entries {
            let below = entries.values().filter(|id| self.is_directory(**id));
            return 2 + below.count() as u32;
        }
        let all = self.nodes.values().filter_map(|node| node.entries.as_ref());
        all.flat_map(BTreeMap::values)
            .filter(|other| **other == id)
            .count() as u32
    }

    fn is_within(&self, inner: FileId, outer: FileId) -> bool {
        inner == outer
            || self.nodes[&outer]
                .entries
                .iter()
                .flat_map(BTreeMap::values)
                .any(|below| self.is_directory(*below) && self.is_within(inner, *below))
    }

    /// Drops nodes that neither a name nor a handle leads to.
    fn sweep(&mut self) {
        // What the kernel says of files without a name: it knows those that are open.
        for id in self.fixture.fs().doubtful_orphans() {
            if !self.handles.iter().any(|handle| handle.id() == id) {
                self.fixture.fs().disinherit(id);
            }
        }
        let ids: Vec<FileId> = self.nodes.keys().copied().collect();
        for id in ids {
            let open = self.handles.iter().any(|handle| handle.id() == id);
            let named = id == ROOT
                || self
                    .nodes
                    .values()
                    .filter_map(|node| node.entries.as_ref())
                    .any(|entries| entries.values().any(|other| *other == id));
            if !open && !named {
                self.nodes.remove(&id);
                assert_eq!(class(&self.fixture.fs().attributes(id)), "not found");
            }
        }
    }

    fn rename_outcome(
        &self,
        from: (FileId, &str),
        to: (FileId, &str),
        mode: RenameMode,
    ) -> &'static str {
        let Some(moved) = self.entry(from.0, from.1) else {
            return "not found";
        };
        let target = self.entry(to.0, to.1);
        let loops = self.is_directory(moved) && self.is_within(to.0, moved);
        match (mode, target) {
            (RenameMode::Exchange, None) => "not found",
            (RenameMode::Exchange, Some(target)) => {
                let loops_back = self.is_directory(target) && self.is_within(from.0, target);
                if loops || loops_back { "invalid" } else { "ok" }
            }
            (RenameMode::NoReplace, Some(_)) => "exists",
            _ if loops => "invalid",
            (_, Some(target)) if target == moved => "ok",
            (_, Some(target)) => match (self.is_directory(moved), self.is_directory(target)) {
                (true, false) => "not a directory",
                (false, true) => "is a directory",
                (true, true) if !self.nodes[&target].entries.as_ref().unwrap().is_empty() => {
                    "not empty"
                }
                _ => "ok",
            },
            (_, None) => "ok",
        }
    }

    fn rename(&mut self, from: (FileId, &str), to: (FileId, &str), mode: RenameMode) {
        let moved = self.entry(from.0, from.1).unwrap();
        let target = self.entry(to.0, to.1);
        if target == Some(moved) {
            return;
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                self.entries(from.0).insert(from.1.to_owned(), target);
            }
            _ => {
                self.entries(from.0).remove(from.1);
            }
        }
        self.entries(to.0).insert(to.1.to_owned(), moved);
    }

    // ---- the steps ----

    fn run(&mut self, step: &Step) {
        match step {
            Step::Create { .. }
            | Step::MakeDirectory { .. }
            | Step::MakeSymlink { .. }
            | Step::Link { .. } => self.run_make(step),
            Step::Unlink {
                directory,
                name: number,
            } => {
                let parent = self.directory(*directory);
                let text = Self::text(*number);
                let want = match self.entry(parent, &text) {
                    None => "not found",
                    Some(id) if self.is_directory(id) => "is a directory",
                    Some(_) => "ok",
                };
                let now = self.fixture.now();
                let removed = self.fixture.fs().unlink(parent, name(&text), now);
                assert_eq!(class(&removed), want);
                if removed.is_ok() {
                    self.entries(parent).remove(&text);
                }
            }
            Step::RemoveDirectory {
                directory,
                name: number,
            } => {
                let parent = self.directory(*directory);
                let text = Self::text(*number);
                let want = match self.entry(parent, &text) {
                    None => "not found",
                    Some(id) => match &self.nodes[&id].entries {
                        None => "not a directory",
                        Some(entries) if !entries.is_empty() => "not empty",
                        Some(_) => "ok",
                    },
                };
                let now = self.fixture.now();
                let removed = self.fixture.fs().remove_directory(parent, name(&text), now);
                assert_eq!(class(&removed), want);
                if removed.is_ok() {
                    self.entries(parent).remove(&text);
                }
            }
            Step::Rename { from, to, mode } => {
                let texts = (Self::text(from.1), Self::text(to.1));
                let from = (self.directory(from.0), texts.0.as_str());
                let to = (self.directory(to.0), texts.1.as_str());
                let want = self.rename_outcome(from, to, *mode);
                let renamed = self.fixture.fs().rename(
                    from.0,
                    name(from.1),
                    to.0,
                    name(to.1),
                    *mode,
                    self.fixture.now(),
                );
                assert_eq!(class(&renamed), want);
                if renamed.is_ok() {
                    self.rename(from, to, *mode);
                }
            }
            Step::CloseHandle { handle } => {
                if !self.handles.is_empty() {
                    let index = handle % self.handles.len();
                    self.handles.remove(index);
                }
            }
            Step::Unnamed { directory } => {
                let parent = self.directory(*directory);
                let now = self.fixture.now();
                let made = self
                    .fixture
                    .fs()
                    .create_unnamed(parent, PERMISSIONS, OWNER, now);
                let (attributes, handle) = made.unwrap();
                self.add_node(attributes.id, Kind::Regular);
                self.handles.push(handle);
            }
            Step::Sync => self.fixture.fs().sync().unwrap(),
            Step::Age => {
                self.clock_ms += 6000;
                while self.fixture.fs().step(self.clock_ms).unwrap() {}
                while self.fixture.fs().write_due() {}
            }
            Step::Reopen => {
                self.handles.clear();
                self.sweep();
                self.fixture.reopen();
            }
            Step::Kill => self.kill(),
            _ => self.run_file(step),
        }
        self.sweep();
    }

    /// The kernel goes on with the files that it has open, by their ids.
    fn kill(&mut self) {
        let open: Vec<FileId> = self.handles.iter().map(|handle| handle.id()).collect();
        std::mem::forget(std::mem::take(&mut self.handles));
        self.fixture.kill();
        let fs = self.fixture.fs();
        self.handles = open.iter().map(|id| fs.open_file(*id).unwrap()).collect();
    }

    fn add_node(&mut self, id: FileId, kind: Kind) {
        let node = ModelNode {
            entries: (kind == Kind::Directory).then(BTreeMap::new),
            bytes: (kind == Kind::Regular).then(Vec::new),
            permissions: match kind {
                Kind::Symlink => 0o777,
                _ => PERMISSIONS,
            },
            extended: BTreeMap::new(),
        };
        assert!(self.nodes.insert(id, node).is_none(), "ids are new");
    }

    fn run_make(&mut self, step: &Step) {
        let (Step::Create {
            directory,
            name: number,
        }
        | Step::MakeDirectory {
            directory,
            name: number,
        }
        | Step::MakeSymlink {
            directory,
            name: number,
        }
        | Step::Link {
            directory,
            name: number,
            ..
        }) = step
        else {
            unreachable!("only these come here");
        };
        let parent = self.directory(*directory);
        let text = Self::text(*number);
        let want = match self.entry(parent, &text) {
            Some(_) => "exists",
            None => "ok",
        };
        let now = self.fixture.now();
        let fs = self.fixture.fs();
        let (made, kind) = match step {
            Step::Create { .. } => {
                let made = fs.create_file(parent, name(&text), PERMISSIONS, OWNER, now);
                (made.map(|(attributes, _)| attributes), Kind::Regular)
            }
            Step::MakeDirectory { .. } => (
                fs.make_directory(parent, name(&text), PERMISSIONS, OWNER, now),
                Kind::Directory,
            ),
            Step::MakeSymlink { .. } => (
                fs.make_symlink(parent, name(&text), name("target"), OWNER, now),
                Kind::Symlink,
            ),
            Step::Link { file, .. } => {
                let Some(id) = self.file(*file) else {
                    return;
                };
                let made = fs.make_link(id, parent, name(&text), now);
                assert_eq!(class(&made), want);
                if made.is_ok() {
                    self.entries(parent).insert(text, id);
                }
                return;
            }
            _ => unreachable!("only these come here"),
        };
        assert_eq!(class(&made), want);
        if let Ok(attributes) = made {
            self.add_node(attributes.id, kind);
            self.entries(parent).insert(text, attributes.id);
        }
    }

    fn run_file(&mut self, step: &Step) {
        let (Step::Open { file }
        | Step::Write { file, .. }
        | Step::Truncate { file, .. }
        | Step::Allocate { file, .. }
        | Step::Copy { from: file, .. }
        | Step::Permissions { file, .. }
        | Step::SetExtended { file, .. }
        | Step::RemoveExtended { file, .. }
        | Step::SyncFile { file, .. }) = step
        else {
            unreachable!("only these come here");
        };
        let Some(id) = self.file(*file) else {
            return;
        };
        let handle = self.fixture.fs().open_file(id).unwrap();
        match step {
            Step::Open { .. } => self.handles.push(handle),
            Step::Write {
                offset,
                length,
                way,
                ..
            } => {
                self.writes_count = self.writes_count.wrapping_add(1).max(1);
                let data = vec![self.writes_count; *length];
                let now = self.fixture.now();
                let fs = self.fixture.fs();
                match way {
                    Way::Behind => fs.write_behind(&handle, *offset, data[..].into(), now),
                    _ => fs.write(&handle, *offset, &data, *way == Way::Append, now),
                }
                .unwrap();
                let bytes = self.bytes(id);
                let start = if *way == Way::Append {
                    bytes.len()
                } else {
                    *offset as usize
                };
                put(bytes, start, &data);
            }
            Step::Truncate { size, .. } => {
                let change = AttributeChange {
                    size_bytes: Some(*size),
                    ..Default::default()
                };
                self.set(id, &change);
                self.bytes(id).resize(*size as usize, 0);
            }
            Step::Allocate {
                offset,
                length,
                mode,
                ..
            } => {
                let now = self.fixture.now();
                self.fixture
                    .fs()
                    .allocate(&handle, *offset, *length, *mode, now)
                    .unwrap();
                let bytes = self.bytes(id);
                let (start, end) = (*offset as usize, (*offset + *length) as usize);
                if mode & 0x1 == 0 && end > bytes.len() {
                    bytes.resize(end, 0);
                }
                if *mode & 0x12 != 0 {
                    let (start, end) = (start.min(bytes.len()), end.min(bytes.len()));
                    bytes[start..end].fill(0);
                }
            }
            Step::Copy {
                to,
                from_offset,
                to_offset,
                length,
                ..
            } => {
                let to = self.file(*to).unwrap();
                self.run_copy(&handle, *from_offset, to, *to_offset, *length);
            }
            Step::Permissions { permissions, .. } => {
                let change = AttributeChange {
                    permissions: Some(*permissions),
                    ..Default::default()
                };
                self.set(id, &change);
                self.nodes.get_mut(&id).unwrap().permissions = *permissions;
            }
            Step::SetExtended {
                name: number,
                create,
                replace,
                ..
            } => {
                self.run_set_extended(id, *number, *create, *replace);
            }
            Step::RemoveExtended { name: number, .. } => {
                let text = format!("user.{number}");
                let now = self.fixture.now();
                let removed = self
                    .fixture
                    .fs()
                    .remove_extended_attribute(id, name(&text), now);
                let had = self.nodes.get_mut(&id).unwrap().extended.remove(&text);
                assert_eq!(removed.is_ok(), had.is_some());
            }
            Step::SyncFile { data_only, .. } => {
                self.fixture.fs().sync_file(&handle, *data_only).unwrap();
            }
            _ => unreachable!("only these come here"),
        }
    }

    fn set(&self, id: FileId, change: &AttributeChange) {
        let now = self.fixture.now();
        self.fixture.fs().set_attributes(id, change, now).unwrap();
    }

    fn run_copy(&mut self, from: &Handle, at: u64, to: FileId, to_offset: u64, length: u64) {
        let source = self.bytes(from.id()).clone();
        let length = length.min((source.len() as u64).saturating_sub(at));
        let overlap = from.id() == to && at < to_offset + length && to_offset < at + length;
        let target = self.fixture.fs().open_file(to).unwrap();
        let now = self.fixture.now();
        let copied = self
            .fixture
            .fs()
            .copy_range(from, at, &target, to_offset, length, now);
        if overlap {
            assert_eq!(class(&copied), "invalid");
            return;
        }
        assert_eq!(copied.unwrap(), length);
        if length > 0 {
            let piece = &source[at as usize..(at + length) as usize];
            put(self.bytes(to), to_offset as usize, piece);
        }
    }

    fn run_set_extended(&mut self, id: FileId, number: u8, create: bool, replace: bool) {
        let text = format!("user.{number}");
        let value = vec![number; usize::from(number) * 100];
        let now = self.fixture.now();
        let set =
            self.fixture
                .fs()
                .set_extended_attribute(id, name(&text), &value, create, replace, now);
        let extended = &mut self.nodes.get_mut(&id).unwrap().extended;
        let want = match extended.contains_key(&text) {
            true if create => "exists",
            false if replace => "no attribute",
            _ => "ok",
        };
        assert_eq!(class(&set), want);
        if set.is_ok() {
            extended.insert(text, value);
        }
    }

    // ---- comparing ----

    /// Reads that begin and end anywhere, around the ends of blocks above all.
    fn compare_parts(&self, handle: &Handle, bytes: &[u8]) {
        for number in 0..6 {
            let block =
                (usize::from(self.writes_count) * 7 + number * 5) % (bytes.len() / 4096 + 1);
            let at = (block * 4096).saturating_sub([0, 1, 2048][number % 3]);
            let length = [2, 4096, 6000, 12_288][number % 4];
            let mut out = vec![0xee; length];
            let read = self.fixture.fs().read(handle, at as u64, &mut out).unwrap();
            let expected = &bytes[at.min(bytes.len())..(at + length).min(bytes.len())];
            assert!(out[..read] == *expected, "{length} bytes at {at}");
        }
    }

    /// Whoever skips the holes misses nothing.
    fn compare_holes(&self, handle: &Handle, bytes: &[u8]) {
        let fs = self.fixture.fs();
        let end = bytes.len() as u64;
        let mut at = 0;
        while at < end {
            let data = fs.seek(handle, at, false).unwrap().unwrap_or(end);
            let skipped = &bytes[at as usize..data as usize];
            assert!(skipped.iter().all(|byte| *byte == 0), "a hole at {at}");
            if data == end {
                break;
            }
            at = fs.seek(handle, data, true).unwrap().unwrap();
            assert!(at > data, "data at {data}");
        }
    }

    fn compare(&self, whole: bool) {
        for (id, node) in &self.nodes {
            let found = self.fixture.fs().attributes(*id).unwrap();
            assert_eq!(found.links_count, self.links_count(*id), "links of {id}");
            assert_eq!(found.permissions, node.permissions, "permissions of {id}");
            if let Some(entries) = &node.entries {
                let names: Vec<String> = entries.keys().cloned().collect();
                assert_eq!(self.fixture.names(*id), names, "names of {id}");
                for (text, below) in entries {
                    let found = self.fixture.fs().lookup(*id, name(text)).unwrap();
                    assert_eq!(found.id, *below, "{text} in {id}");
                    if self.is_directory(*below) {
                        let up = self.fixture.fs().lookup(*below, name("..")).unwrap();
                        assert_eq!(up.id, *id, "above {below}");
                    }
                }
            }
            if let Some(bytes) = &node.bytes {
                assert_eq!(found.size_bytes, bytes.len() as u64, "size of {id}");
                let handle = self.fixture.fs().open_file(*id).unwrap();
                assert!(self.fixture.contents(&handle) == *bytes, "bytes of {id}");
                self.compare_holes(&handle, bytes);
                self.compare_parts(&handle, bytes);
            }
            if whole {
                let listed = self.fixture.fs().list_extended_attributes(*id).unwrap();
                let want: Vec<u8> = node
                    .extended
                    .keys()
                    .flat_map(|text| [text.as_bytes(), b"\0"].concat())
                    .collect();
                assert_eq!(listed, want, "attributes of {id}");
                for (text, value) in &node.extended {
                    let found = self.fixture.fs().extended_attribute(*id, name(text));
                    assert_eq!(found.unwrap(), *value);
                }
            }
        }
        if whole {
            self.fixture.check();
        }
    }
}

/// Writes into a vector as into a file.
fn put(bytes: &mut Vec<u8>, start: usize, data: &[u8]) {
    let end = start + data.len();
    if end > bytes.len() {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(data);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_step_does_what_the_model_does(
        steps in prop::collection::vec(step(), 1..80),
        fine in any::<bool>(),
        is_kept in any::<bool>(),
    ) {
        // In the second case every name that the steps use is striped finely.
        let redundancy = if fine { Redundancy::External } else { Redundancy::Normal };
        let mut run = Run::new("plain", redundancy);
        if fine {
            let mut templates = run.fixture.fs().templates();
            templates[0].striping = spindle_base::Striping::Fine;
            run.fixture.fs().set_templates(templates).unwrap();
        }
        if is_kept {
            run.fixture.keep();
        }
        for step in &steps {
            run.run(step);
            run.compare(false);
        }
        run.handles.clear();
        run.sweep();
        run.fixture.reopen();
        run.compare(true);
    }

    #[test]
    fn a_killed_process_loses_nothing_that_it_answered(
        steps in prop::collection::vec(step_or_kill(), 1..100),
        fine in any::<bool>(),
    ) {
        let redundancy = if fine { Redundancy::External } else { Redundancy::Normal };
        let mut run = Run::new("plain", redundancy);
        run.fixture.keep();
        for step in &steps {
            run.run(step);
            run.compare(false);
        }
        run.run(&Step::Kill);
        run.compare(true);
        run.handles.clear();
        run.sweep();
        run.fixture.reopen();
        run.compare(true);
    }
}
