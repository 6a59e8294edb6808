//! The repository's own rules, as tests: see `tests/`, a file a subject.
//!
//! A rule that only a page states is broken within a month. What can be read off the sources is
//! held here; each failure says which file, and what to do about it. Nothing of this ships.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The top of the repository.
#[must_use]
pub fn repository_root() -> PathBuf {
    // Two levels above this crate, wherever the tests are started from.
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir
        .ancestors()
        .nth(2)
        .unwrap_or(crate_dir)
        .to_path_buf()
}

/// A file of the repository: where it is, seen from the top, and what it says.
#[derive(Debug)]
pub struct SourceFile {
    /// The path below [`repository_root`], with `/` between its parts.
    pub path: String,
    /// The text.
    pub text: String,
}

impl SourceFile {
    /// The lines that ship: without a test module at the end of the file.
    pub fn lines_without_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let test_module = lines.windows(2).position(|pair| {
            pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ")
        });
        let shipped_count = match test_module {
            // `mod tests;` names a file of its own: what follows it still ships.
            Some(at) if lines[at + 1].trim_end().ends_with('{') => at,
            _ => lines.len(),
        };
        lines
            .into_iter()
            .take(shipped_count)
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Whether the whole file is tests, examples or fuzzing, and so never ships.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || ["/tests/", "/examples/", "/benches/", "fuzz/"]
                .iter()
                .any(|part| self.path.contains(part))
    }
}

/// Every file below the top whose name ends with one of `endings`, in the order of their paths.
///
/// # Errors
/// Where a directory or a file cannot be read.
pub fn files_ending_with(endings: &[&str]) -> io::Result<Vec<SourceFile>> {
    let root = repository_root();
    let mut found = Vec::new();
    collect(&root, &root, endings, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn collect(
    root: &Path,
    directory: &Path,
    endings: &[&str],
    found: &mut Vec<SourceFile>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // Build results, fuzzing corpora and git's own files are not ours to judge.
            let is_ours = !matches!(
                name.as_str(),
                "target" | ".git" | "corpus" | "artifacts" | "bench-results"
            );
            if is_ours {
                collect(root, &entry.path(), endings, found)?;
            }
        } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
            let path = entry.path();
            found.push(SourceFile {
                text: fs::read_to_string(&path)?,
                path: path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned(),
            });
        }
    }
    Ok(())
}
