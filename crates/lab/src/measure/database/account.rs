//! The unprivileged user that runs a server: no database here ever runs as root.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::measure::program::command;

/// A user of this machine.
#[derive(Debug, Clone)]
pub struct Account {
    name: String,
    user: u32,
    group: u32,
}

impl Account {
    /// The one of this name.
    ///
    /// # Errors
    /// Where there is none, with how to make it.
    pub fn find(name: &str) -> Result<Self> {
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        in_list(&users, name).with_context(|| {
            format!(
                "there is no user `{name}` to run the database as; make one: useradd --system --user-group {name}"
            )
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program, run as this user.
    #[must_use]
    pub fn program(&self, program: &Path) -> Command {
        let mut wrapped = command("setpriv");
        wrapped
            .arg(format!("--reuid={}", self.user))
            .arg(format!("--regid={}", self.group))
            .args(["--clear-groups", "--"])
            .arg(program)
            // Our own working directory may be closed to that user.
            .current_dir("/");
        wrapped
    }

    /// Gives it a path.
    ///
    /// # Errors
    /// Where it cannot be given.
    pub fn give(&self, path: &Path) -> Result<()> {
        chown(path, Some(self.user), Some(self.group))
            .with_context(|| format!("cannot give {} to `{}`", path.display(), self.name))
    }
}

fn in_list(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&name)).then_some(())?;
        Some(Account {
            name: name.to_owned(),
            user: fields.get(2)?.parse().ok()?,
            group: fields.get(3)?.parse().ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_missing_is_told_with_how_to_make_it() {
        let error = Account::find("nobody-of-that-name")
            .unwrap_err()
            .to_string();
        assert!(error.contains("useradd --system"), "{error}");
        let found = in_list("a:x:1:2::/:/bin/sh\nlong:x:30:40::/:/bin/sh\n", "long").unwrap();
        assert_eq!((found.user, found.group), (30, 40));
    }
}
