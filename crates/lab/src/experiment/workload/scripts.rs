//! Scripts that a person wrote, as a load names them: files beside that of the experiment, their
//! weights, and what makes the tables.
//!
//! Parsing the file of an experiment reads no other file. What it names is read by [`Scripts::read`]
//! where a run begins, and from the folder of the results where one is analysed.

use std::fs;
use std::path::Path;

use crate::measure::workload::script;

/// The scripts of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    /// One or more; none for loads of other kinds.
    pub files: Vec<ScriptFile>,
    /// What makes and fills the tables; none where the scripts do without.
    pub init: Option<ScriptFile>,
    /// `:scale`.
    pub scale: u32,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFile {
    /// As it was named.
    pub path: String,
    /// How often it is drawn beside the others.
    pub weight: u32,
    /// What stands in it, once it was read.
    pub text: Option<String>,
}

const WEIGHT_AT_MOST: u32 = 1_000_000;

impl ScriptFile {
    /// `file.sql` or `file.sql@3`, as pgbench takes them.
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        let (path, weight) = match written.rsplit_once('@') {
            None => (written, 1),
            Some((path, weight)) => {
                let count = weight.parse().ok().filter(|count| *count <= WEIGHT_AT_MOST);
                let message = || {
                    format!("`{written}`: a weight from 0 to {WEIGHT_AT_MOST} stands behind the @")
                };
                (path, count.ok_or_else(message)?)
            }
        };
        if path.trim().is_empty() {
            return Err(format!("`{written}` names no file"));
        }
        Ok(Self {
            path: path.to_owned(),
            weight,
            text: None,
        })
    }

    /// As it stands in titles.
    pub(super) fn shown(&self) -> String {
        match self.weight {
            1 => self.path.clone(),
            weight => format!("{}@{weight}", self.path),
        }
    }

    /// Its name in the folder of the results, where no directory of its own is: no two paths have the
    /// same one, or the one script would be kept in place of the other.
    #[must_use]
    pub fn stored_name(&self) -> String {
        self.path.replace('%', "%25").replace('/', "%2F")
    }
}

impl Scripts {
    pub(super) fn check(
        files: Option<&[String]>,
        init: Option<&str>,
        scale: Option<f64>,
    ) -> Result<Self, String> {
        let files: Vec<ScriptFile> = (files.unwrap_or_default().iter())
            .map(|written| ScriptFile::parse(written))
            .collect::<Result<_, _>>()?;
        if files.iter().any(|file| file.path == script::PGBENCH) {
            return Err(format!(
                "`files`: `{0}` is what `init` calls the tables of pgbench; a file of that name is `./{0}`, and pgbench's own transaction is the workload `tpcb`",
                script::PGBENCH
            ));
        }
        if files.is_empty() {
            return Err("`script` needs `files = [\"mine.sql\"]`: one script or more".to_owned());
        }
        if files.iter().all(|file| file.weight == 0) {
            return Err("`files`: every weight is 0, so that nothing would be drawn".to_owned());
        }
        for (index, file) in files.iter().enumerate() {
            if files[..index].iter().any(|other| other.path == file.path) {
                return Err(format!("`{}` is listed twice: give it a weight", file.path));
            }
        }
        let init = init
            .map(|path| match path.trim() {
                "" => Err("`init` names no file".to_owned()),
                path => Ok(ScriptFile {
                    path: path.to_owned(),
                    weight: 1,
                    text: None,
                }),
            })
            .transpose()?;
        let scale = match scale {
            None => 1,
            Some(scale) => {
                let found = (scale.fract() == 0.0)
                    .then(|| crate::quantity::whole(scale))
                    .flatten()
                    .and_then(|scale| u32::try_from(scale).ok())
                    .filter(|scale| (1..=100_000).contains(scale));
                found.ok_or("`scale` of a script is a whole number from 1 to 100,000")?
            }
        };
        Ok(Self { files, init, scale })
    }

    /// Reads what it names; `place` gives the path of a file.
    ///
    /// # Errors
    /// Where a file cannot be read, or is no script that the lab can run: with its line.
    pub fn read(
        &mut self,
        place: impl Fn(&ScriptFile) -> std::path::PathBuf,
    ) -> Result<(), String> {
        for file in self.files.iter_mut().chain(&mut self.init) {
            if file.path == script::PGBENCH {
                continue;
            }
            let path = place(file);
            let text = fs::read_to_string(&path).map_err(|error| {
                format!("the script {} cannot be read: {error}", path.display())
            })?;
            script::check(&text).map_err(|message| format!("{}, {message}", file.path))?;
            file.text = Some(text);
        }
        Ok(())
    }

    /// Whether it is known what stands in all of them. Two of which that is not known have the names of
    /// their files in common, and nobody can tell what else.
    #[must_use]
    pub fn are_known(&self) -> bool {
        let of_pgbench = |file: &ScriptFile| file.path == script::PGBENCH;
        (self.files.iter().chain(&self.init)).all(|file| file.text.is_some() || of_pgbench(file))
    }

    /// Every file that was read.
    pub fn texts(&self) -> impl Iterator<Item = (&ScriptFile, &str)> {
        (self.files.iter().chain(&self.init)).filter_map(|file| Some((file, file.text.as_deref()?)))
    }
}

/// Where a file lies that an experiment of this directory names.
#[must_use]
pub fn beside(directory: &Path, file: &ScriptFile) -> std::path::PathBuf {
    directory.join(&file.path)
}
