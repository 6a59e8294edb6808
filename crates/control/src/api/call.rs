//! What a call is: a request with what it carries, and the type of its answer.
//!
//! Both ends of the socket are written against the same type, so that what is sent in one shape can
//! be neither read nor answered in another. The calls themselves stand in `api::calls`. On the way
//! each is an HTTP request: parameters in its query, because paths are bytes and no text, and what
//! names many disks as JSON in its body.

use std::path::PathBuf;

use axum::http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spindle_base::Redundancy;
use spindle_group::Severity;

use crate::api::conversion::{TemplateRedundancy, redundancy_of};
use crate::api::error::{ControlError, ControlResult};
use crate::api::event_filter::{Kinds, parse_kinds, parse_severity};
use crate::api::query::Query;

/// One thing that a process which serves a group can be asked.
pub(crate) trait Call: Sized + Send + 'static {
    /// What it is answered with.
    type Answer: Serialize + DeserializeOwned;
    /// What there is to know of it before it is made.
    const SHAPE: Shape;

    /// As it is sent.
    ///
    /// # Errors
    /// Where a path goes into a structure and is no text.
    fn write(&self) -> ControlResult<Written>;

    /// As it was received.
    ///
    /// # Errors
    /// Where it is not what it must be.
    fn read(query: &Query, body: &[u8]) -> ControlResult<Self>;
}

/// A call that a command can fulfil by itself where no process serves the group.
pub(crate) trait Standalone: Call {}

/// What there is to know of a call.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The method of the request.
    pub(crate) method: Method,
    /// Its path.
    pub(crate) path: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    /// What its query takes.
    pub(crate) parameters: &'static [Parameter],
    /// What its body takes, if anything.
    pub(crate) body: Option<BodyShape>,
    /// The schema of its answer; `[Name]` for a list of them, `()` for nothing.
    pub(crate) answer: &'static str,
    /// Whether it changes anything.
    pub(crate) effect: Effect,
    /// What has to be there.
    pub(crate) needs: Needs,
    /// How long the answer may take.
    pub(crate) pace: Pace,
}

/// A parameter of a request, in the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether the request needs it.
    pub(crate) is_needed: bool,
    /// `string`, `integer` or `boolean`.
    pub(crate) kind: &'static str,
    /// What it means.
    pub(crate) description: &'static str,
}

/// A structure in the body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyShape {
    /// Its schema.
    pub(crate) schema: &'static str,
    /// Whether the request needs it.
    pub(crate) is_needed: bool,
}

/// Whether a call changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only looks.
    Looks,
    /// It changes the group, or who serves it.
    Changes,
}

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The group's disks: where no process serves it, a command opens them itself.
    Disks,
    /// A process that serves the group.
    Process,
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It comes from memory.
    Quick,
    /// As long as the work does.
    Work,
}

/// A call as it is sent.
#[derive(Debug)]
pub(crate) struct Written {
    /// The path, with the query.
    pub(crate) path: String,
    /// The body; empty for none.
    pub(crate) body: Vec<u8>,
}

impl Shape {
    /// The parameters of a request. What is missing or unknown is refused by its name: a typing
    /// error must not become another request.
    ///
    /// # Errors
    /// Where that is so, or one is given twice.
    pub(crate) fn query(&self, text: &str) -> ControlResult<Query> {
        let query = Query::parse(text)?;
        let known: Vec<&str> = self.parameters.iter().map(|it| it.name).collect();
        if let Some(unknown) = query.names().find(|name| !known.contains(name)) {
            let known = match known.as_slice() {
                [] => "it takes none".to_owned(),
                known => format!("known are {}", known.join(", ")),
            };
            return Err(ControlError::invalid(format!(
                "{} {} knows no parameter {unknown:?}; {known}",
                self.method, self.path
            )));
        }
        let mut needed = self.parameters.iter().filter(|it| it.is_needed);
        match needed.find(|it| query.names().all(|name| name != it.name)) {
            None => Ok(query),
            Some(missing) => Err(ControlError::invalid(format!(
                "{} {}: the parameter {} is missing: {}",
                self.method,
                self.path,
                missing.name,
                missing.description.trim()
            ))),
        }
    }
}

/// What a parameter can be.
pub(super) trait Value: Sized {
    /// `string`, `integer` or `boolean`.
    const KIND: &'static str;

    /// As it is sent; `None` where it is not.
    fn write(&self) -> Option<Vec<u8>>;

    /// As it was received; `None` where it was not.
    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>>;
}

macro_rules! plain_values {
    ($kind:literal: $($type:ty),+) => {
        $(impl Value for $type {
            const KIND: &'static str = $kind;

            fn write(&self) -> Option<Vec<u8>> {
                Some(self.to_string().into_bytes())
            }

            fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
                query.value(name)
            }
        })+
    };
}

plain_values!("integer": u16, u32, u64, i64, usize);
plain_values!("boolean": bool);

impl Value for String {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        Some(self.clone().into_bytes())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        Ok(query.text(name))
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        Some(self.as_os_str().as_bytes().to_vec())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        query.text(name).map(|_| query.path(name)).transpose()
    }
}

impl Value for Redundancy {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        Some(self.to_string().into_bytes())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        match TemplateRedundancy::read(query, name)? {
            None => Ok(None),
            Some(TemplateRedundancy(Some(redundancy))) => Ok(Some(redundancy)),
            Some(TemplateRedundancy(None)) => Err(ControlError::invalid(
                "\"group\" is a redundancy of templates only: write another one",
            )),
        }
    }
}

impl Value for TemplateRedundancy {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        Some(self.to_string().into_bytes())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        query.text(name).as_deref().map(redundancy_of).transpose()
    }
}

impl Value for Severity {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        Some(self.name().as_bytes().to_vec())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        query.text(name).as_deref().map(parse_severity).transpose()
    }
}

impl Value for Kinds {
    const KIND: &'static str = "string";

    fn write(&self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| self.0.join(",").into_bytes())
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        let kinds = query.text(name).as_deref().map(parse_kinds).transpose()?;
        Ok(kinds.map(Self))
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: &'static str = T::KIND;

    fn write(&self) -> Option<Vec<u8>> {
        self.as_ref().and_then(T::write)
    }

    fn read(query: &Query, name: &str) -> ControlResult<Option<Self>> {
        Ok(T::read(query, name)?.map(Some))
    }
}

/// A value that the request must have.
pub(super) fn needed<T: Value>(query: &Query, name: &str) -> ControlResult<T> {
    T::read(query, name)?
        .ok_or_else(|| ControlError::invalid(format!("the parameter {name} is missing")))
}

/// A value that the request may have.
pub(super) fn optional<T: Value + Default>(query: &Query, name: &str) -> ControlResult<T> {
    Ok(T::read(query, name)?.unwrap_or_default())
}

/// As a value that the request may have is sent: not at all where it says what none says, so that a
/// program that came before the parameter understands whoever does not use it.
pub(super) fn sent_unless_default<T: Value + Default + PartialEq>(value: &T) -> Option<Vec<u8>> {
    (*value != T::default()).then(|| value.write()).flatten()
}

/// What the body of a request can be.
pub(super) trait Body: Serialize + Sized {
    /// What there is to know of it.
    const SHAPE: BodyShape;

    /// As it was received.
    fn read(body: &[u8]) -> ControlResult<Self>;
}

/// A structure as the body of a request.
pub(super) fn written_body<B: Body>(body: &B) -> ControlResult<Vec<u8>> {
    serde_json::to_vec(body)
        .map_err(|error| ControlError::invalid("a path is no text").because(error))
}
