//! Parameters of the API's requests: names to bytes, so that a path may have any of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::api::error::{ControlError, ControlResult};

/// The parameters of one request.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<u8>>);

impl Query {
    /// From what follows the question mark.
    ///
    /// # Errors
    /// Where a parameter is given twice: whoever asks means one of them.
    pub(crate) fn parse(text: &str) -> ControlResult<Self> {
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = String::from_utf8_lossy(&decode(name)).into_owned();
            if parameters.insert(name.clone(), decode(value)).is_some() {
                return Err(ControlError::invalid(format!(
                    "the parameter {name:?} is given twice"
                )));
            }
        }
        Ok(Self(parameters))
    }

    /// The names of the parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A path that must be there.
    ///
    /// # Errors
    /// Where it is not.
    pub(crate) fn path(&self, name: &str) -> ControlResult<PathBuf> {
        match self.0.get(name) {
            Some(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes.clone()))),
            None => Err(ControlError::invalid(format!(
                "the parameter {name} is missing"
            ))),
        }
    }

    /// A text, `None` where it is not there.
    #[must_use]
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0
            .get(name)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// A number or another value with a text form.
    ///
    /// # Errors
    /// Where it is there and is none.
    pub(crate) fn value<T: std::str::FromStr>(&self, name: &str) -> ControlResult<Option<T>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| ControlError::invalid(format!("the parameter {name} cannot be {text:?}")))
    }
}

/// The structure in a request's body.
pub(crate) fn body_of<T: DeserializeOwned>(body: &[u8]) -> ControlResult<T> {
    serde_json::from_slice(body).map_err(|error| {
        ControlError::invalid("the request's body cannot be understood").because(error)
    })
}

/// Adds `name=value` to a query, every byte that is not plain as `%xx`.
pub(crate) fn append(query: &mut String, name: &str, value: &[u8]) {
    query.push(if query.contains('?') { '&' } else { '?' });
    query.push_str(name);
    query.push('=');
    for byte in value {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'~') {
            query.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(query, "%{byte:02X}");
        }
    }
}

fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Query, append};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn any_bytes_of_a_path_survive_the_way_through_a_query() {
        let bytes: Vec<u8> = (1..=255).collect();
        let mut text = "/files/stat".to_owned();
        append(&mut text, "path", &bytes);
        append(&mut text, "depth", b"2");
        let query = Query::parse(text.split_once('?').unwrap().1).unwrap();
        assert_eq!(query.path("path").unwrap().as_os_str().as_bytes(), bytes);
        assert_eq!(query.value::<u32>("depth").unwrap(), Some(2));
    }

    #[test]
    fn a_missing_or_senseless_parameter_is_named() {
        let query = Query::parse("depth=deep&%").unwrap();
        let twice = Query::parse("power=1&power=2").unwrap_err();
        assert!(twice.message().contains("power"), "{twice}");
        assert!(query.path("path").unwrap_err().message().contains("path"));
        assert!(
            query
                .value::<u32>("depth")
                .unwrap_err()
                .message()
                .contains("deep")
        );
    }
}
