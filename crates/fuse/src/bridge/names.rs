//! Names: finding, making, moving and removing them; the kernel's references to files.

use std::ffi::OsStr;

use rustix::io::Errno;
use spindle_base::FileId;
use spindle_fs::{Asked, Attributes, FsError, FsResult, RenameMode};

use super::attributes::{VALID_S, kind_of_mode, to_abi};
use super::{Answer, Bridge, Refusal, Served, arguments, name, node, owner, permissions};
use crate::abi::{
    BatchForgetIn, EntryOut, ForgetIn, ForgetOne, InHeader, LinkIn, MakeDirectoryIn, MakeNodeIn,
    Rename2In, RenameIn,
};
use crate::transport::Transport;
use zerocopy::FromBytes;

const RENAME_NO_REPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Bridge {
    /// An entry for the kernel, which holds one more reference to the file from now on.
    pub(super) fn entry(&self, attributes: &Attributes) -> EntryOut {
        self.file_system.remember(attributes.id, 1);
        EntryOut {
            node: attributes.id.0,
            entry_valid_s: VALID_S,
            attributes_valid_s: VALID_S,
            attributes: to_abi(attributes),
            ..EntryOut::default()
        }
    }

    pub(super) fn answer_entry(&self, attributes: &Attributes) -> Answer {
        Answer::told(attributes.id, &self.entry(attributes))
    }

    /// "." and ".." are asked for by file handles that outlive the kernel's cache (NFS).
    fn find(&self, parent: FileId, name: &OsStr) -> FsResult<Attributes> {
        if name == "." {
            return self.file_system.attributes(parent);
        }
        if name == ".." {
            let first = self.file_system.read_directory(parent, 0, 2)?;
            let above = first.iter().find(|entry| entry.name == b"..");
            return self
                .file_system
                .attributes(above.ok_or(FsError::NotFound)?.id);
        }
        self.file_system.lookup(parent, name)
    }

    pub(super) fn lookup<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let (name, _) = name(transport.tail(0))?;
        match self.find(node(header), name) {
            Ok(attributes) => Ok(self.answer_entry(&attributes)),
            // Node 0 lets the kernel remember that there is no such name.
            Err(FsError::NotFound) => Ok(Answer::structure(&EntryOut {
                entry_valid_s: VALID_S,
                ..EntryOut::default()
            })),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn forget<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        if let Ok(request) = arguments::<ForgetIn, T>(transport) {
            self.file_system.forget(node(header), request.count);
        }
        Ok(Answer::Nothing)
    }

    pub(super) fn batch_forget<T: Transport>(&self, transport: &T) -> Served {
        let Ok(request) = arguments::<BatchForgetIn, T>(transport) else {
            return Ok(Answer::Nothing);
        };
        let mut rest = transport.tail(size_of::<BatchForgetIn>());
        for _ in 0..request.count {
            let Ok((one, after)) = ForgetOne::read_from_prefix(rest) else {
                break;
            };
            self.file_system.forget(FileId(one.node), one.count);
            rest = after;
        }
        Ok(Answer::Nothing)
    }

    pub(super) fn read_link(&self, header: &InHeader) -> Served {
        Ok(Answer::Bytes(self.file_system.read_link(node(header))?))
    }

    pub(super) fn symlink<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let (link, rest) = name(transport.tail(0))?;
        let (target, _) = name(rest)?;
        let made =
            self.file_system
                .make_symlink(node(header), link, target, owner(header), asked)?;
        Ok(self.answer_entry(&made))
    }

    pub(super) fn make_node<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: MakeNodeIn = arguments(transport)?;
        let (name, _) = name(transport.tail(size_of::<MakeNodeIn>()))?;
        let kind = kind_of_mode(request.mode).ok_or(Errno::INVAL)?;
        let made = self.file_system.make_node(
            node(header),
            name,
            kind,
            permissions(request.mode),
            request.device,
            owner(header),
            asked,
        )?;
        Ok(self.answer_entry(&made))
    }

    pub(super) fn make_directory<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: MakeDirectoryIn = arguments(transport)?;
        let (name, _) = name(transport.tail(size_of::<MakeDirectoryIn>()))?;
        let made = self.file_system.make_directory(
            node(header),
            name,
            permissions(request.mode),
            owner(header),
            asked,
        )?;
        Ok(self.answer_entry(&made))
    }

    pub(super) fn link<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: LinkIn = arguments(transport)?;
        let (name, _) = name(transport.tail(size_of::<LinkIn>()))?;
        let linked = self
            .file_system
            .make_link(FileId(request.node), node(header), name, asked)?;
        Ok(self.answer_entry(&linked))
    }

    pub(super) fn unlink<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let (name, _) = name(transport.tail(0))?;
        self.file_system.unlink(node(header), name, asked)?;
        Ok(Answer::Done)
    }

    pub(super) fn remove_directory<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let (name, _) = name(transport.tail(0))?;
        self.file_system
            .remove_directory(node(header), name, asked)?;
        Ok(Answer::Done)
    }

    pub(super) fn rename<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: RenameIn = arguments(transport)?;
        let names = transport.tail(size_of::<RenameIn>());
        self.move_name(
            header,
            names,
            request.new_parent,
            RenameMode::Replace,
            asked,
        )
    }

    pub(super) fn rename2<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: Rename2In = arguments(transport)?;
        let mode = match request.flags {
            0 => RenameMode::Replace,
            RENAME_NO_REPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL.into()),
        };
        let names = transport.tail(size_of::<Rename2In>());
        self.move_name(header, names, request.new_parent, mode, asked)
    }

    fn move_name(
        &self,
        header: &InHeader,
        names: &[u8],
        new_parent: u64,
        mode: RenameMode,
        asked: Asked<'_>,
    ) -> Result<Answer, Refusal> {
        let (old, rest) = name(names)?;
        let (new, _) = name(rest)?;
        let (from, to) = (node(header), FileId(new_parent));
        self.file_system.rename(from, old, to, new, mode, asked)?;
        Ok(Answer::Done)
    }
}
