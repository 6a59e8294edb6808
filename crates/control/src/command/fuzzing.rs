//! What a fuzzer throws at the input of the API; also run by a test over random texts.
//!
//! Everything that comes over the socket before a handler is asked is a query, a path in it, or
//! the name of a place: any bytes are a value or an error, and a value survives the way through a
//! query.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::api::location::Location;
use crate::api::query::{Query, append};
use crate::opened::create::WantedDisk;
use crate::serving::route::ROUTES;

/// Reads `input` as a query, as a place and as a failure group, and sends it through a query.
///
/// # Panics
/// Where what was read is not what was written: a mistake of ours.
pub fn api_input(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(query) = Query::parse(&text) {
        for name in ["path", "to", "depth", "permissions", ""] {
            let _ = (query.path(name), query.text(name), query.value::<u64>(name));
        }
    }
    let (query, body) = text.split_once('\n').unwrap_or((&text, &text));
    for route in &*ROUTES {
        let _ = route.try_read(query, body.as_bytes());
    }
    let place = OsStr::from_bytes(input);
    if let Location::Local(path) = Location::parse(place) {
        assert_eq!(path.as_os_str(), place, "a local path stays as it is");
    }
    let _ = Location::in_group(place);
    let _ = WantedDisk::parse_failure_group(place);
    let mut sent = String::new();
    append(&mut sent, "path", input);
    append(&mut sent, "depth", b"1");
    let received = Query::parse(&sent[1..]).expect("each was sent once");
    let path = received.path("path").expect("it was sent");
    assert_eq!(
        path.as_os_str(),
        place,
        "bytes survive the way through a query"
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_input_of_the_api_is_a_value_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in "[a-z_]{0,12}=?[%0-9A-Fa-f&=+:/,]{0,60}",
        ) {
            super::api_input(&bytes);
            super::api_input(text.as_bytes());
        }
    }
}
