//! A directory that belongs to one run, and goes with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A directory of this process, removed with everything in it when dropped.
///
/// Declare it before what lives in it: values are dropped in reverse order, so that mounts and
/// servers end before their directory goes.
#[derive(Debug)]
pub struct Scene {
    path: PathBuf,
    is_kept: bool,
}

impl Scene {
    /// Makes `NAME-PROCESS` below `parent`, open to other users for passing through.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub fn make(parent: &Path, name: &str) -> Result<Self> {
        let path = parent.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        // A server that runs as a user of its own must get through.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            path: fs::canonicalize(path)?,
            is_kept: false,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A place in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a directory in it.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(path)
    }

    /// Leaves it where it is, for someone to look at.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} could not be removed: {error}", self.path.display());
        }
    }
}
