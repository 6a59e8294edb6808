//! Extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use spindle_fs::{Asked, FsError};

use super::{Answer, Bridge, Refusal, Served, arguments, name, node};
use crate::abi::{
    GetExtendedAttributeIn, GetExtendedAttributeOut, InHeader, SetExtendedAttributeIn,
};
use crate::transport::Transport;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// POSIX ACLs, the attributes named `system.`, are not kept. Said plainly, so that programs fall
/// back to permissions: `cp -a` sets a file's mode by an ACL where one seems to be accepted.
fn refuse_system(name: &OsStr) -> Result<(), Refusal> {
    if name.as_bytes().starts_with(b"system.") {
        return Err(Errno::OPNOTSUPP.into());
    }
    Ok(())
}

/// A size of zero asks how much room the value needs.
fn sized(value: Vec<u8>, room_bytes: u32) -> Result<Answer, Refusal> {
    let size_bytes = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    if room_bytes == 0 {
        return Ok(Answer::structure(&GetExtendedAttributeOut {
            size_bytes,
            padding: 0,
        }));
    }
    if size_bytes > room_bytes {
        return Err(Errno::RANGE.into());
    }
    Ok(Answer::Bytes(value))
}

impl Bridge {
    pub(super) fn get_extended_attribute<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
    ) -> Served {
        let request: GetExtendedAttributeIn = arguments(transport)?;
        let (name, _) = name(transport.tail(size_of::<GetExtendedAttributeIn>()))?;
        refuse_system(name)?;
        let value = self.file_system.extended_attribute(node(header), name)?;
        sized(value, request.size_bytes)
    }

    pub(super) fn list_extended_attributes<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
    ) -> Served {
        let request: GetExtendedAttributeIn = arguments(transport)?;
        let names = self.file_system.list_extended_attributes(node(header))?;
        sized(names, request.size_bytes)
    }

    pub(super) fn set_extended_attribute<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: SetExtendedAttributeIn = arguments(transport)?;
        let (name, rest) = name(transport.tail(size_of::<SetExtendedAttributeIn>()))?;
        refuse_system(name)?;
        let size_bytes = usize::try_from(request.size_bytes).map_err(|_| Errno::INVAL)?;
        let value = rest.get(..size_bytes).ok_or(Errno::PROTO)?;
        let set = self.file_system.set_extended_attribute(
            node(header),
            name,
            value,
            request.flags & XATTR_CREATE != 0,
            request.flags & XATTR_REPLACE != 0,
            asked,
        );
        match set {
            Err(FsError::TooLarge) => Err(Errno::TOOBIG.into()),
            other => Ok(other.map(|()| Answer::Done)?),
        }
    }

    pub(super) fn remove_extended_attribute<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let (name, _) = name(transport.tail(0))?;
        refuse_system(name)?;
        self.file_system
            .remove_extended_attribute(node(header), name, asked)?;
        Ok(Answer::Done)
    }
}
