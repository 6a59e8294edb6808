//! The user that this process acts for.

/// The user that this process acts for.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// That user's group.
#[must_use]
pub fn own_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// What the event log calls a user: by name, where the machine knows one, and by number.
pub(crate) fn user_name(user: u32) -> String {
    let named = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(user));
    match named.ok().flatten() {
        Some(known) => format!("{} (uid {user})", known.name),
        None => format!("uid {user}"),
    }
}

/// Permission bits that this process's new files do not have. To be asked before there are
/// other threads: it can be read only by setting it.
#[must_use]
pub fn own_umask() -> u16 {
    let own = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    rustix::process::umask(own);
    u16::try_from(own.as_raw_mode() & 0o777).unwrap_or(0o077)
}
