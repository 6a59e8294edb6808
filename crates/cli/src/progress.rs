//! The progress bar of a copy; nothing where nobody looks at a terminal.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use spindle_control::CopyProgress;

/// Bytes copied, of all there are, with rate and time left.
#[derive(Debug)]
pub struct CopyBar(ProgressBar);

impl CopyBar {
    /// Not shown before the sum is known.
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        let template = "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl CopyProgress for CopyBar {
    fn total(&self, _files_count: u64, bytes: u64) {
        self.0.set_length(bytes);
    }

    fn file(&self, path: &Path) {
        self.0.set_message(path.display().to_string());
    }

    fn bytes(&self, count: u64) {
        self.0.inc(count);
    }
}
