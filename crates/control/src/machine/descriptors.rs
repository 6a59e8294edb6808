//! How many descriptors this process may have: one for each disk, and more for each mount.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. The soft one is usually 1,024, for the sake of programs
/// that wait by select(2), which this is none of; a group may have 4,096 disks.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused, it stays what it was, and a disk too many is told when it is opened.
    let _ = setrlimit(Resource::Nofile, raised);
}
