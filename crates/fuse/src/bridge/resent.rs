//! Requests that a process before this one had done and could not answer any more.
//!
//! The kernel sends them again; the journal knows their numbers. What cannot be done twice is
//! answered from what is there: the kernel held the directory's lock all the while, so nobody
//! else has changed the name since. Everything else is done again, which gives the same.

use std::ffi::OsStr;

use spindle_base::FileId;

use super::{Answer, Bridge, Refusal, Served, name, node};
use crate::abi::{CreateIn, InHeader, LinkIn, MakeDirectoryIn, MakeNodeIn, Opcode};
use crate::transport::Transport;

impl Bridge {
    pub(super) fn answer_again<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        worker: usize,
    ) -> Served {
        let parent = node(header);
        match Opcode::from_number(header.opcode) {
            Some(Opcode::MakeNode) => {
                self.made(parent, name(transport.tail(size_of::<MakeNodeIn>()))?.0)
            }
            Some(Opcode::MakeDirectory) => self.made(
                parent,
                name(transport.tail(size_of::<MakeDirectoryIn>()))?.0,
            ),
            Some(Opcode::Link) => self.made(parent, name(transport.tail(size_of::<LinkIn>()))?.0),
            Some(Opcode::Symlink) => self.made(parent, name(transport.tail(0))?.0),
            Some(Opcode::Create) => {
                let (name, _) = name(transport.tail(size_of::<CreateIn>()))?;
                let found = self.file_system.lookup(parent, name)?;
                let handle = self.file_system.open_file(found.id)?;
                self.created(&found, handle)
            }
            Some(
                Opcode::Unlink
                | Opcode::RemoveDirectory
                | Opcode::Rename
                | Opcode::Rename2
                | Opcode::SetExtendedAttribute
                | Opcode::RemoveExtendedAttribute,
            ) => Ok(Answer::Done),
            _ => self.dispatch(header, transport, worker),
        }
    }

    fn made(&self, parent: FileId, name: &OsStr) -> Served {
        Ok(self.answer_entry(&self.file_system.lookup(parent, name)?))
    }

    /// Where a panic left half an operation in this process, it answers nothing any more: the
    /// next one takes over without the half, and has the requests sent again.
    pub(super) fn die_at_half(&self) {
        let journal = self.file_system.group().journal();
        if journal.is_some_and(|journal| journal.is_at_half()) {
            tracing::error!("half an operation was left by a panic; the next process takes over");
            std::process::abort();
        }
    }

    /// A journal that is nearly full is emptied by a commit before more goes into it.
    pub(super) fn make_room(&self, header: &InHeader) -> Result<(), Refusal> {
        if header.opcode == Opcode::Read as u32 {
            return Ok(());
        }
        let journal = self.file_system.group().journal();
        if journal.is_some_and(|journal| journal.is_nearly_full()) {
            self.file_system.make_durable()?;
        }
        Ok(())
    }
}
