//! By which door a user came who asks a daemon for something: told in the event log beside the user,
//! who is the kernel's word. The door is the client's, and gives nobody a right.

/// The header that names it.
pub(crate) const HEADER: &str = "spindle-door";
/// The console in a browser.
pub(crate) const CONSOLE: &str = "console";
