//! Refusals of a group as a person reads them: with the paths of files, which the group itself does not
//! know.

use crate::api::error::ControlError;
use crate::opened::open::Opened;

impl Opened {
    /// The same refusal with the path of the file that it names by its number, where that has one.
    #[must_use]
    pub(crate) fn with_path(&self, error: ControlError) -> ControlError {
        let path = error
            .file()
            // It is refused all the same where the name cannot be read.
            .and_then(|file| self.file_system().path_of(file).ok().flatten());
        match path {
            Some(path) => {
                error.naming_file(&format!("{}:{}", self.group_name(), path.to_string_lossy()))
            }
            None => error,
        }
    }
}
