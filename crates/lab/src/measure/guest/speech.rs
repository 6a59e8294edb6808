//! How the guest speaks to its host: lines on the console, told from the kernel's own by a mark.
//!
//! The console is the one way out that works from the first instruction to the last, and a line on
//! it is there at once. What is not a whole line of ours belongs to the console's log.

use serde::{Deserialize, Serialize};

use crate::record::PlannedRun;

/// What a guest that was started to be seen is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The kernel's release.
    pub release: String,
    /// Modules of the contenders that it cannot load.
    pub lacking_modules: Vec<String>,
}

/// What the guest has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// The kernel schedules and the first process runs.
    Alive,
    /// It was started to be seen, and here it is.
    Here(Greeting),
    /// A line for the terminal.
    Tell(String),
    /// A run begins.
    Begin {
        /// Which.
        run: PlannedRun,
        /// Its workload.
        title: String,
        /// Its place in what is left.
        index: usize,
        /// How much was left at the beginning.
        of: usize,
    },
    /// A run ended; its record is in the folder.
    End {
        /// The name of the run's folder.
        folder: String,
        /// How long the rest will take.
        left_s: Option<f64>,
    },
    /// Nothing is left to do.
    Done,
    /// A contender keeps the devices of this guest: another guest may go on.
    Stuck,
    /// The experiment cannot go on.
    Failed(String),
}

const MARK: &str = "@spindle-lab ";

impl Word {
    /// As a line, its end included.
    #[must_use]
    pub fn to_line(&self) -> String {
        let text = serde_json::to_string(self).expect("words are plain values");
        format!("{MARK}{text}\n")
    }

    /// From a line of the console, where it is one of ours.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        // The kernel may have begun a line of its own on the same one.
        let (_, text) = line.split_once(MARK)?;
        serde_json::from_str(text.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_through_the_console_and_all_else_is_the_kernels() {
        let word = Word::Tell("not run: zfs: with \"quotes\" and\ttabs".to_owned());
        let line = word.to_line();
        assert_eq!(Word::from_line(&line), Some(word.clone()));
        // The terminal of the guest ends its lines as terminals do.
        let of_a_terminal = line.replace('\n', "\r\n");
        assert_eq!(Word::from_line(&of_a_terminal), Some(word.clone()));
        assert_eq!(
            Word::from_line(&format!("[ 0.1] raid6: {line}")),
            Some(word)
        );
        assert_eq!(Word::from_line("EXT4-fs (ubdb): mounted"), None);
        assert_eq!(Word::from_line("@spindle-lab {\"Tell\":\"torn"), None);
    }
}
