//! What the page shows, asked of the daemon at most once a second however many browsers look.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use parking_lot::Mutex;

use crate::api::call::Call;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::command::reach::serving;
use crate::command::top::Top;
use crate::machine::settings::Settings;

/// An answer that is younger is given again.
const FRESH: Duration = Duration::from_millis(800);
/// Rates over more than this tell nothing of now: they are taken anew.
const STALE: Duration = Duration::from_secs(10);
/// The time that rates are taken over then.
const MOMENT: Duration = Duration::from_millis(300);
/// The busiest files that are shown.
const FILES_MOST: usize = 20;

/// A look at one group.
#[derive(Debug)]
pub(super) struct Sight {
    settings: Settings,
    group: String,
    looked: Mutex<Looked>,
}

#[derive(Debug)]
struct Looked {
    top: Top,
    sampled: Instant,
    answer: Option<(Instant, Bytes)>,
}

impl Sight {
    /// Of the group of that name, or the only one that is open.
    ///
    /// # Errors
    /// Where it is not open, or does not answer.
    pub(super) fn begin(settings: &Settings, group: Option<&str>) -> ControlResult<Self> {
        let top = Top::begin(settings, group)?;
        Ok(Self {
            settings: settings.clone(),
            group: top.group().to_owned(),
            looked: Mutex::new(Looked {
                top,
                sampled: Instant::now(),
                answer: None,
            }),
        })
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Asks the process that serves the group now.
    ///
    /// # Errors
    /// Where there is none, or what it answers.
    pub(super) fn ask<C: Call>(&self, call: &C) -> ControlResult<C::Answer> {
        serving(&self.settings, &self.group)?.ask(call)
    }

    /// The group as it is: a `TopReport` in JSON.
    ///
    /// # Errors
    /// Where the process that serves it does not answer.
    pub(super) fn now(&self) -> ControlResult<Bytes> {
        let mut looked = self.looked.lock();
        if let Some((at, answer)) = &looked.answer
            && at.elapsed() < FRESH
        {
            return Ok(answer.clone());
        }
        if looked.sampled.elapsed() > STALE {
            looked.top.next(0)?;
            std::thread::sleep(MOMENT);
        }
        let report = looked.top.next(FILES_MOST)?;
        looked.sampled = Instant::now();
        let answer = serde_json::to_vec(&report)
            .map(Bytes::from)
            .map_err(|error| {
                ControlError::new(ControlErrorKind::Bug, "an answer cannot be written")
                    .because(error)
            })?;
        looked.answer = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }
}
