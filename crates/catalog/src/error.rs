//! Why the catalog could not do as asked, and how the library's errors become ours.

/// Why the catalog could not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CatalogError {
    /// No copy of the region could be read or written.
    #[error("the catalog region cannot be {operation}: {detail}")]
    Region {
        /// `read` or `written`.
        operation: &'static str,
        /// Which replicas failed, and how.
        detail: String,
    },
    /// The library found its own structures damaged.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// The region is full and the group has no room to let it grow.
    #[error("the catalog region is full and no disk of it has room to grow")]
    Full,
}

impl CatalogError {
    /// Takes our own error back out of the library's, where the region below was the cause.
    pub(crate) fn from_library(error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(error) => match error.downcast::<Self>() {
                Ok(cause) => cause,
                Err(error) => Self::Damaged(error.to_string()),
            },
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => Self::Region {
                operation: "used",
                detail: "an earlier failure of the region was not yet got over".to_owned(),
            },
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl From<CatalogError> for std::io::Error {
    fn from(error: CatalogError) -> Self {
        Self::other(error)
    }
}
