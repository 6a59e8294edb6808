//! What a person sees of a long step: a bar on a terminal, a plain line elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One step under way.
#[derive(Debug)]
pub struct Step {
    name: String,
    bar: ProgressBar,
    began: Instant,
}

impl Step {
    /// Begins a step of `length` units; zero where the length is not known.
    #[must_use]
    pub fn begin(name: &str, length: u64) -> Self {
        let bar = if length == 0 {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::new(length)
        };
        let shape = if length == 0 {
            "{spinner} {prefix:40} {elapsed:>4} {msg}"
        } else {
            "  {prefix:40} {elapsed:>4} [{bar:30}] {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(shape) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        if bar.is_hidden() {
            println!("{name} ...");
        } else {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self {
            name: name.to_owned(),
            bar,
            began: Instant::now(),
        }
    }

    /// How far it is, and a word about it.
    pub fn advance(&self, position: u64, message: &str) {
        self.bar.set_position(position);
        self.bar.set_message(message.to_owned());
    }

    /// There is more to do than was known.
    pub fn lengthen(&self, length: u64) {
        self.bar.set_length(length.max(1));
    }

    /// Ends it with its result.
    pub fn done(self, result: &str) {
        self.bar.finish_and_clear();
        println!(
            "{:42} {:>6.1} s  {result}",
            self.name,
            self.began.elapsed().as_secs_f64()
        );
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // A step that fails leaves no half bar above the message.
        self.bar.finish_and_clear();
    }
}
