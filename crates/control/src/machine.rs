//! Floor 2 of 5, above `api` and below `opened`: this machine as a command finds it.
//!
//! Its settings, its disks and what stands on them, its clock and its users, which processes listen
//! in the runtime directory, and the engine that moves bytes. No group is opened here.

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod discovery;
pub(crate) mod engine;
pub(crate) mod held;
pub(crate) mod hook_settings;
pub(crate) mod identity;
pub(crate) mod nfs;
pub(crate) mod path;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod read_only_disks;
pub(crate) mod runtime_directory;
pub(crate) mod settings;
pub(crate) mod sockets;
pub(crate) mod termination;
pub(crate) mod udev;
pub(crate) mod unknown_data;
pub(crate) mod user;
