//! What the host tells its guest before the guest begins, as a file that both can read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The experiment and everything that the guest must know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The file of the experiment, as it was written.
    pub experiment: String,
    /// The folder of the results; it has the same path in the guest.
    pub folder: PathBuf,
    /// The devices, as the guest sees them.
    pub devices: Vec<PathBuf>,
    /// The disk for golden images and whatever else is not measured.
    pub work_disk: PathBuf,
    /// Where the modules of the guest's kernel are.
    pub modules: PathBuf,
    /// The command `spindle`, where the host has it.
    pub spindle: Option<PathBuf>,
    /// The database's programs with what belongs to them, where they were named.
    pub programs: Option<PathBuf>,
    /// For the record: name and value.
    pub facts: Vec<(String, String)>,
    /// Failures of this second or later are not repeated: an earlier guest of the same start had
    /// them.
    pub failures_stay_since_unix_s: u64,
}

/// Everything that the guest may write besides the results, in its memory.
pub const ROOM: &str = "/run/spindle-lab";

/// Names the facts on the guest to whoever records the environment in it.
pub const FACTS_VARIABLE: &str = "SPINDLE_LAB_GUEST";

/// A device by its number: the kernel of the guest counts in letters.
#[must_use]
pub fn device_name(index: usize) -> Option<PathBuf> {
    let letter = (b'a'..=b'z').nth(index)?;
    Some(PathBuf::from(format!("/dev/ubd{}", char::from(letter))))
}

/// So many devices the guest's kernel has, one of them for work.
pub const DEVICES_AT_MOST: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_in_letters() {
        assert_eq!(device_name(0), Some(PathBuf::from("/dev/ubda")));
        assert_eq!(
            device_name(DEVICES_AT_MOST),
            Some(PathBuf::from("/dev/ubdp"))
        );
        assert_eq!(device_name(26), None);
    }
}
