//! What a command answers instead: a kind for code, what was tried on what, and what that came of.
//!
//! An error is a chain: each level says one thing in words, and the source of each is the next one
//! down, whether it happened in this process or crossed the API. `{}` is the top level alone, `{:#}`
//! the whole chain on one line, which is what a person reads and what `message` has in JSON.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spindle_base::{AuSizeError, ErrorClass, FileId, NameError, causes};
use spindle_fs::FsError;
use spindle_group::{GroupError, GroupErrorKind, Subject};
use utoipa::ToSchema;

/// A command's failure. It crosses the API as it is, so that a person reads the same line
/// whether the daemon or the command itself failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "ErrorReport", into = "ErrorReport")]
pub struct ControlError {
    /// Whose fault it is; the exit code follows from it.
    pub class: ErrorClass,
    /// What went wrong, for code.
    pub kind: ControlErrorKind,
    /// What was being done to what, where that is known.
    pub context: Option<Box<ErrorContext>>,
    /// How a file is called here and in what it came of; known in the process that has the group.
    naming: Option<Box<Naming>>,
    /// This level in words.
    words: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// A file's path for the number that a group has for it.
#[derive(Debug, Clone)]
struct Naming {
    numbered: String,
    name: String,
}

impl Naming {
    /// The words with the path in place of the number, where they have that.
    fn apply(&self, mut words: String) -> String {
        let is_whole = |at: &usize| {
            let behind = words[at + self.numbered.len()..].chars().next();
            !behind.is_some_and(|letter| letter.is_ascii_digit())
        };
        if let Some(at) = words.find(&self.numbered).filter(is_whole) {
            words.replace_range(at..at + self.numbered.len(), &self.name);
        }
        words
    }
}

/// What was being done to what when it failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorContext {
    /// What was being done, such as `open`; `null` where only the subject is known.
    pub operation: Option<String>,
    /// To what: a path, a disk, a file of a group; empty where it is the group itself.
    pub subject: String,
    /// The number of the file in its group; `null` where it concerns none.
    #[serde(default)]
    pub file: Option<u64>,
    /// The number of that file's extent, from 0.
    #[serde(default)]
    pub extent: Option<u32>,
    /// Where in that file, in bytes: the first that it concerns.
    #[serde(default)]
    pub offset_bytes: Option<u64>,
    /// The number of the disk that failed, or that it is about; of several one.
    #[serde(default)]
    pub disk: Option<u16>,
}

impl ErrorContext {
    /// `operation` was done to `subject`.
    pub(crate) fn of(operation: &str, subject: impl fmt::Display) -> Option<Box<Self>> {
        Some(Box::new(Self {
            operation: Some(operation.to_owned()),
            subject: subject.to_string(),
            ..Self::default()
        }))
    }

    /// What a group says of its error; `None` where it knows nothing.
    pub(crate) fn of_group(subject: &Subject) -> Option<Box<Self>> {
        let context = || {
            Box::new(Self {
                operation: subject
                    .operation
                    .map(|operation| operation.word().to_owned()),
                subject: subject.to_string(),
                file: subject.file.map(|file| file.0),
                extent: subject.extent,
                offset_bytes: subject.offset_bytes,
                disk: subject.disk.map(|disk| disk.0),
            })
        };
        (!subject.is_empty()).then(context)
    }

    /// Whether a group said it.
    fn is_of_group(&self) -> bool {
        self.file.is_some() || self.disk.is_some()
    }
}

/// A failure as it is shown and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ControlError)]
pub struct ErrorReport {
    /// Whose fault it is; the exit code follows from it.
    #[schema(value_type = String)]
    pub class: ErrorClass,
    /// What went wrong, for code.
    pub kind: ControlErrorKind,
    /// What happened, to what, and what to do: one line for a person, the causes included.
    pub message: String,
    /// What was being done to what, where that is known.
    #[serde(default)]
    pub context: Option<ErrorContext>,
    /// What it came of, the nearest first, each without those that follow.
    #[serde(default)]
    pub causes: Vec<String>,
}

/// A cause that happened in another process.
#[derive(Debug)]
struct Cause {
    words: String,
    source: Option<Box<Cause>>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|cause| cause as _)
    }
}

/// A refusal as another version tells it, of which only the line for a person is certain.
#[derive(Deserialize)]
struct Refusal {
    message: String,
    #[serde(default)]
    class: serde_json::Value,
    #[serde(default)]
    kind: serde_json::Value,
}

impl ControlError {
    /// What another version refused, whatever else it says of it that this one does not know.
    pub(super) fn as_told(bytes: &[u8]) -> Option<Self> {
        let refusal: Refusal = serde_json::from_slice(bytes).ok()?;
        let kind = serde_json::from_value(refusal.kind).unwrap_or(ControlErrorKind::Invalid);
        let mut error = Self::new(kind, refusal.message);
        if let Ok(class) = serde_json::from_value(refusal.class) {
            error.class = class;
        }
        Some(error)
    }
}

/// What went wrong, as far as a caller may want to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlErrorKind {
    /// No such group, disk, file or mount.
    NotFound,
    /// Something is there that must not be lost: a foreign disk, a file, a full directory.
    Exists,
    /// In use here or on another host.
    Busy,
    /// The process that was asked is about to end: the next one may be asked.
    Ending,
    /// No room.
    NoSpace,
    /// Too few failure groups, too few or too small disks.
    NotEnough,
    /// The newest group state has no majority among the disks seen.
    NoMajority,
    /// The peer may not do this.
    Denied,
    /// Any other mistake of the caller.
    Invalid,
    /// The two ends are of different versions, and one does not understand the other.
    Version,
    /// A process that should answer does not.
    Silent,
    /// The machine or a disk refused.
    Io,
    /// Bytes are not what they must be.
    Corrupt,
    /// Spindle contradicts itself.
    Bug,
}

/// A result of this layer.
pub type ControlResult<T> = Result<T, ControlError>;

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        if f.alternate() {
            for cause in self.causes() {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl Error for ControlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl PartialEq for ControlError {
    fn eq(&self, other: &Self) -> bool {
        ErrorReport::from(self.clone()) == ErrorReport::from(other.clone())
    }
}

impl Eq for ControlError {}

impl From<ControlError> for ErrorReport {
    fn from(error: ControlError) -> Self {
        Self {
            class: error.class,
            kind: error.kind,
            message: error.message(),
            causes: error.causes(),
            context: error.context.map(|context| *context),
        }
    }
}

impl From<ErrorReport> for ControlError {
    fn from(report: ErrorReport) -> Self {
        let below: String = (report.causes.iter())
            .map(|cause| format!(": {cause}"))
            .collect();
        // An earlier version says the line alone, and it is all there is to know then.
        let words = report
            .message
            .strip_suffix(&below)
            .filter(|words| !words.is_empty());
        let cause = |source, words| Some(Box::new(Cause { words, source }));
        let chain = report.causes.into_iter().filter(|_| words.is_some());
        let source = chain.rev().fold(None, cause);
        Self {
            class: report.class,
            kind: report.kind,
            context: report.context.map(Box::new),
            naming: None,
            words: words.unwrap_or(&report.message).to_owned(),
            source: source.map(|cause| Arc::from(cause as Box<dyn Error + Send + Sync>)),
        }
    }
}

impl ControlError {
    /// A failure of `kind`; its class follows from the kind.
    #[must_use]
    pub fn new(kind: ControlErrorKind, words: impl Into<String>) -> Self {
        let class = match kind {
            ControlErrorKind::Io | ControlErrorKind::Silent | ControlErrorKind::Version => {
                ErrorClass::Environment
            }
            ControlErrorKind::Corrupt => ErrorClass::BadBytes,
            ControlErrorKind::Bug => ErrorClass::Bug,
            // Its disks are not there: nobody asked for anything wrong.
            ControlErrorKind::NoMajority => ErrorClass::Environment,
            ControlErrorKind::NotFound
            | ControlErrorKind::Exists
            | ControlErrorKind::Busy
            | ControlErrorKind::Ending
            | ControlErrorKind::NoSpace
            | ControlErrorKind::NotEnough
            | ControlErrorKind::Denied
            | ControlErrorKind::Invalid => ErrorClass::Caller,
        };
        Self {
            class,
            kind,
            context: None,
            naming: None,
            words: words.into(),
            source: None,
        }
    }

    /// The same, where it is the state of the machine and not what was asked for.
    #[must_use]
    pub(crate) const fn of_environment(mut self) -> Self {
        self.class = ErrorClass::Environment;
        self
    }

    /// The caller asked for what cannot be.
    #[must_use]
    pub fn invalid(words: impl Into<String>) -> Self {
        Self::new(ControlErrorKind::Invalid, words)
    }

    /// No such thing.
    #[must_use]
    pub fn not_found(words: impl Into<String>) -> Self {
        Self::new(ControlErrorKind::NotFound, words)
    }

    /// The machine refused; `operation` was tried on `subject`.
    #[must_use]
    pub fn io(operation: &str, subject: impl fmt::Display, error: &std::io::Error) -> Self {
        // A failure of the other end of a copy travels through readers and writers as it is.
        if let Some(other) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Self::clone(other);
        }
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                ControlErrorKind::NotFound
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ControlErrorKind::NoSpace
            }
            _ => ControlErrorKind::Io,
        };
        // The kernel's errors are numbers, and can be had twice.
        let source = match error.raw_os_error() {
            Some(number) => std::io::Error::from_raw_os_error(number),
            None => std::io::Error::new(error.kind(), error.to_string()),
        };
        let words = format!("cannot {operation} {subject}");
        let mut failed = Self::new(kind, words).because(source);
        failed.context = ErrorContext::of(operation, subject);
        failed
    }

    /// What it came of.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same, with what else is to be told of it behind its words and causes.
    #[must_use]
    pub fn with_more(self, more: &str) -> Self {
        Self {
            words: format!("{self:#}; {more}"),
            source: None,
            ..self
        }
    }

    /// The same failure, told with what it happened to; where in the group that was stays with it.
    #[must_use]
    pub fn about(self, subject: impl fmt::Display) -> Self {
        let subject = subject.to_string();
        let of_group = self.context.as_deref().filter(|inner| inner.is_of_group());
        let inner = of_group.cloned().unwrap_or_default();
        Self {
            class: self.class,
            kind: self.kind,
            naming: None,
            words: subject.clone(),
            context: Some(Box::new(ErrorContext { subject, ..inner })),
            source: Some(Arc::new(self)),
        }
    }

    /// The whole chain on one line, for a person.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{self:#}")
    }

    /// The file that it is about, which its words may name by its number.
    #[must_use]
    pub(crate) fn file(&self) -> Option<FileId> {
        self.context.as_ref()?.file.map(FileId)
    }

    /// The same with `name` in place of the number of the file, here and in what it came of.
    #[must_use]
    pub(crate) fn naming_file(mut self, name: &str) -> Self {
        let Some(file) = self.file() else {
            return self;
        };
        let naming = Naming {
            numbered: format!("file {file}"),
            name: name.to_owned(),
        };
        self.words = naming.apply(self.words);
        if let Some(context) = &mut self.context {
            context.subject = naming.apply(std::mem::take(&mut context.subject));
        }
        // The source stays: what a sync tells is owed until that is gone.
        self.naming = Some(Box::new(naming));
        self
    }

    /// What it came of, the nearest first, each level by itself. What a level says that the one
    /// above has said already is left out.
    #[must_use]
    pub fn causes(&self) -> Vec<String> {
        causes(&self.words, self.source(), |words| match &self.naming {
            Some(naming) => naming.apply(words),
            None => words,
        })
    }
}

impl From<GroupError> for ControlError {
    fn from(error: GroupError) -> Self {
        let kind = match error.kind {
            GroupErrorKind::NoSpace => ControlErrorKind::NoSpace,
            GroupErrorKind::Io => ControlErrorKind::Io,
            GroupErrorKind::Corrupt => ControlErrorKind::Corrupt,
            GroupErrorKind::NotFound => ControlErrorKind::NotFound,
            GroupErrorKind::NotEnough => ControlErrorKind::NotEnough,
            GroupErrorKind::Busy | GroupErrorKind::Contended => ControlErrorKind::Busy,
            GroupErrorKind::NoMajority => ControlErrorKind::NoMajority,
            GroupErrorKind::Invalid => ControlErrorKind::Invalid,
        };
        // The group's error is kept as it is: what a sync tells is owed until that is gone.
        Self {
            class: error.kind.class(),
            context: ErrorContext::of_group(&error.subject),
            ..Self::new(kind, error.message.clone()).because(error)
        }
    }
}

impl From<FsError> for ControlError {
    fn from(error: FsError) -> Self {
        let kind = match error {
            FsError::Group(group) => return group.into(),
            FsError::NotFound => ControlErrorKind::NotFound,
            FsError::Exists | FsError::NotEmpty => ControlErrorKind::Exists,
            _ => ControlErrorKind::Invalid,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}

impl From<NameError> for ControlError {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<AuSizeError> for ControlError {
    fn from(error: AuSizeError) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::{ControlError, ControlErrorKind, ErrorReport};
    use spindle_base::{DiskNumber, FileId};
    use spindle_group::{GroupError, GroupErrorKind, Operation};

    fn missing() -> ControlError {
        let error = std::io::Error::from_raw_os_error(2);
        ControlError::io("open", "/x", &error)
    }

    #[test]
    fn a_failure_has_a_kind_what_was_tried_on_what_and_what_it_came_of() {
        let error = missing();
        assert_eq!(error.kind, ControlErrorKind::NotFound);
        let context = error.context.clone().unwrap();
        assert_eq!(context.operation.as_deref(), Some("open"));
        assert_eq!(context.subject, "/x");
        let source = error.source().unwrap().downcast_ref::<std::io::Error>();
        assert_eq!(source.unwrap().raw_os_error(), Some(2));
        assert_eq!(error.to_string(), "cannot open /x");
        let line = "cannot open /x: No such file or directory (os error 2)";
        assert_eq!(error.message(), line);
        let about = error.about("data_0001");
        assert_eq!(about.message(), format!("data_0001: {line}"));
        assert_eq!(about.causes().len(), 2);
    }

    #[test]
    fn what_a_group_says_and_what_that_came_of_are_told_once() {
        let below = || std::io::Error::from_raw_os_error(5);
        let kind = GroupErrorKind::Io;
        let words = "the label cannot be written";
        let contained = format!("{} while it was written", below());
        for (words, line) in [
            (words, format!("{words}: {}", below())),
            (&contained, contained.clone()),
            (&below().to_string(), below().to_string()),
        ] {
            let group = GroupError::new(kind, words).because(below());
            assert_eq!(group.report(), line);
            let error = ControlError::from(group);
            assert_eq!(error.message(), line);
            assert_eq!(error.to_string(), words);
            assert_eq!(error.class, spindle_base::ErrorClass::Environment);
            let is_told_apart = words != line;
            assert_eq!(error.causes().len(), usize::from(is_told_apart));
            let mut source = error.source();
            let mut came_of = None;
            while let Some(cause) = source {
                came_of = cause.downcast_ref::<std::io::Error>().or(came_of);
                source = cause.source();
            }
            assert_eq!(came_of.unwrap().raw_os_error(), Some(5));
        }
    }

    #[test]
    fn where_in_a_group_it_happened_is_told_in_fields_whatever_is_told_around_it() {
        let group = GroupError::new(GroupErrorKind::Io, "no copy took a write")
            .during(Operation::Write)
            .of_file(FileId(17))
            .in_extent(3)
            .at_offset(4096)
            .on_disk(DiskNumber(1));
        let error = ControlError::from(group);
        let sent = serde_json::to_value(&error).unwrap();
        let fields = serde_json::json!({
            "operation": "write", "subject": "extent 3 of file 17", "file": 17, "extent": 3,
            "offset_bytes": 4096, "disk": 1,
        });
        assert_eq!(sent["context"], fields);
        let received: ControlError = serde_json::from_value(sent).unwrap();
        let context = received.about("data:/x").context.unwrap();
        assert_eq!(context.subject, "data:/x");
        assert_eq!((context.file, context.disk), (Some(17), Some(1)));
        let earlier = r#"{"class":"environment","kind":"io","message":"m",
            "context":{"operation":"open","subject":"/x"}}"#;
        let earlier: ControlError = serde_json::from_str(earlier).unwrap();
        assert_eq!(earlier.context.unwrap().file, None);
        let plain = ControlError::from(GroupError::new(GroupErrorKind::Busy, "it is open"));
        assert_eq!(plain.context, None);
    }

    #[test]
    fn a_refusal_that_numbers_its_file_can_be_told_with_a_path() {
        let told = |words: &str| {
            let group = GroupError::new(GroupErrorKind::Io, words).of_file(FileId(2));
            ControlError::from(group)
        };
        let named = told("3 extents of file 2 are lost").naming_file("data:/x");
        assert_eq!(named.message(), "3 extents of data:/x are lost");
        let context = named.context.as_ref().unwrap();
        assert_eq!(
            (context.subject.as_str(), context.file),
            ("data:/x", Some(2))
        );
        // Another file, and none.
        for words in ["3 extents of file 28 are lost", "nothing is"] {
            assert_eq!(told(words).naming_file("data:/x").message(), words);
        }
    }

    #[test]
    fn a_refusal_of_a_kind_that_a_newer_version_has_keeps_its_words() {
        let sent = br#"{"class":"caller","kind":"unheard_of","message":"do this","more":[1]}"#;
        assert!(serde_json::from_slice::<ControlError>(sent).is_err());
        let error = ControlError::as_told(sent).unwrap();
        assert_eq!(error.message(), "do this");
        assert_eq!(error.class, spindle_base::ErrorClass::Caller);
        assert!(ControlError::as_told(b"<html>").is_none());
    }

    #[test]
    fn a_chain_survives_the_way_through_the_api_and_each_level_is_told_once() {
        let error = missing().about("data_0001");
        let sent = serde_json::to_string(&error).unwrap();
        let received: ControlError = serde_json::from_str(&sent).unwrap();
        assert_eq!(received, error);
        assert_eq!(received.to_string(), "data_0001");
        assert_eq!(received.source().unwrap().to_string(), "cannot open /x");
        assert_eq!(received.message(), error.message());
    }

    #[test]
    fn a_failure_that_an_earlier_version_tells_is_the_line_that_it_says() {
        let told = r#"{"class": "caller", "kind": "not_found", "message": "no such: thing"}"#;
        let error: ControlError = serde_json::from_str(told).unwrap();
        assert_eq!(error.message(), "no such: thing");
        let report = ErrorReport {
            message: "another line".to_owned(),
            causes: vec!["a cause".to_owned()],
            ..ErrorReport::from(error)
        };
        assert_eq!(ControlError::from(report).message(), "another line");
    }
}
