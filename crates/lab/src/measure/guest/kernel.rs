//! Which kernel a guest has, and where it lies.
//!
//! It is a directory into which packages of Debian were unpacked: those that [`PINNED`] names, which
//! `tools/guest-kernel` brings, so that an experiment has the same kernel on every machine. Another
//! directory can be named, be it one with another kernel: that is told, and not refused.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Names another directory.
pub const DIRECTORY_VARIABLE: &str = "SPINDLE_LAB_KERNEL";

const DIRECTORY: &str = "/usr/local/lib/spindle-lab/guest";

/// A line a package: name, version, checksum, place in the archive.
const PINNED: &str = include_str!("packages");

/// The package that has the kernel.
const PACKAGE: &str = "user-mode-linux";

/// A kernel of a guest.
#[derive(Debug, Clone)]
pub struct Kernel {
    directory: PathBuf,
}

impl Kernel {
    /// The one that this machine is to use.
    #[must_use]
    pub fn configured() -> Self {
        Self::at(&PathBuf::from(
            std::env::var_os(DIRECTORY_VARIABLE).unwrap_or_else(|| DIRECTORY.into()),
        ))
    }

    /// The one below a directory: of a package that was installed, the root.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// The kernel, as a program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.directory.join("usr/bin/linux.uml")
    }

    /// Its modules, one directory a release.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.directory.join("usr/lib/uml/modules")
    }

    /// Why it cannot be used, as far as its files tell.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        [self.program(), self.modules()]
            .into_iter()
            .find(|path| !path.exists())
            .map(|path| {
                format!(
                    "no kernel for a guest, there is no {}; `tools/setup test` brings it",
                    path.display()
                )
            })
    }

    /// What the directory says that it holds.
    fn version(&self) -> Option<String> {
        let packages = fs::read_to_string(self.directory.join("packages")).ok()?;
        version_in(&packages).map(str::to_owned)
    }
}

fn version_in(packages: &str) -> Option<&str> {
    packages
        .lines()
        .find_map(|line| line.strip_prefix(PACKAGE)?.split_whitespace().next())
}

/// The package with its version, and that it is another than the pinned one where it is.
impl fmt::Display for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pinned = version_in(PINNED).unwrap_or("unknown");
        match self.version() {
            Some(version) if version == pinned => write!(formatter, "{PACKAGE} {version}"),
            Some(version) => write!(
                formatter,
                "{PACKAGE} {version}, not {pinned}, with which the lab was tried"
            ),
            None => write!(
                formatter,
                "of an unknown package in {}, not {PACKAGE} {pinned}, with which the lab was tried",
                self.directory.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_another_version_is_told_as_such() {
        let scene = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(scene.path());
        let said = kernel.lacks().unwrap();
        assert!(said.contains("usr/bin/linux.uml"), "{said}");
        let said = kernel.to_string();
        assert!(said.contains("unknown package"), "{said}");
        let packages = scene.path().join("packages");
        fs::write(&packages, PINNED).unwrap();
        let pinned = kernel.to_string();
        assert!(pinned.starts_with("user-mode-linux 7."), "{pinned}");
        assert!(!pinned.contains("tried"), "{pinned}");
        fs::write(&packages, "user-mode-linux 6.12um1 0 pool/x.deb\n").unwrap();
        let said = kernel.to_string();
        assert!(
            said.starts_with("user-mode-linux 6.12um1, not 7."),
            "{said}"
        );
    }
}
