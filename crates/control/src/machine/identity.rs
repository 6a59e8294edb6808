//! What tells this host, this boot and this process from others, and new identities.

use spindle_base::{FailureGroupName, Uuid};
use spindle_format::Origin;
use spindle_group::{Moment, Opener};

use crate::api::error::{ControlError, ControlResult};
use crate::machine::settings::Settings;

/// Who opens: this process, on this host, since this boot.
///
/// # Errors
/// Where the preferred failure group of the settings is no name.
pub(crate) fn opener(settings: &Settings, force: bool) -> ControlResult<Opener> {
    let preferred = settings.preferred_failure_group.as_deref();
    let (host, boot) = opener_identity();
    let now_s = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0);
    Ok(Opener {
        host,
        origin: origin(),
        boot,
        booted_s: Some(now_s.saturating_sub(moment().booted_ms / 1000)),
        process_id: std::process::id(),
        now_s,
        force,
        preferred_failure_group: preferred.map(FailureGroupName::new).transpose()?,
    })
}

/// What tells this host from others of its name, and this process from others of its number; `None`
/// where the kernel does not say in which namespace it is. A container may have no machine id.
fn origin() -> Option<Origin> {
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?;
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Some(Origin {
        machine: parse_uuid(&id),
        process_namespace: std::os::unix::fs::MetadataExt::ino(&namespace),
    })
}

/// This host's name, and what tells the machine from others of the name where it has an id.
#[must_use]
pub(crate) fn host() -> (String, Uuid) {
    let machine = origin().map_or(Uuid([0; 16]), |origin| origin.machine);
    (opener_identity().0, machine)
}

/// What the machine's clocks show.
pub(crate) fn moment() -> Moment {
    let read_ms = |clock| {
        nix::time::clock_gettime(clock).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            seconds * 1000 + u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000
        })
    };
    Moment {
        awake_ms: read_ms(nix::time::ClockId::CLOCK_MONOTONIC),
        booted_ms: read_ms(nix::time::ClockId::CLOCK_BOOTTIME),
    }
}

/// This host's name and the identity of its running kernel.
#[must_use]
pub(crate) fn opener_identity() -> (String, Uuid) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let uname = rustix::system::uname();
    (
        uname.nodename().to_string_lossy().into_owned(),
        parse_uuid(&boot),
    )
}

/// The 32 digits of the text; zeros where they are fewer.
fn parse_uuid(text: &str) -> Uuid {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Uuid(bytes)
}

/// A new identity, from the kernel's random numbers.
///
/// # Errors
/// Where the kernel gives none.
pub(crate) fn new_uuid() -> ControlResult<Uuid> {
    let mut bytes = [0; 16];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| ControlError::io("read", "/dev/urandom", &error))?;
    // Version 4, variant 1: what other tools take for a random identity.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::{new_uuid, parse_uuid};

    #[test]
    fn the_text_of_an_identity_gives_the_identity_back() {
        let uuid = new_uuid().unwrap();
        assert_eq!(parse_uuid(&format!("{uuid}\n")), uuid);
        assert_ne!(new_uuid().unwrap(), uuid);
        assert_eq!(&uuid.to_string()[14..15], "4");
    }
}
