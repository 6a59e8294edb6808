//! What the runs say: ratios within blocks, their intervals, the noise floor, verdicts and doubts.
//!
//! Pure: from the records of [`crate::record`] to a [`summary::Summary`]. No clock, no disk but the
//! folder that is read, no printing. A figure that cannot be trusted comes with a [`doubt::Doubt`]
//! that says what to do; a run that failed is counted as failed and never as a number.

pub mod comparison;
pub mod doubt;
pub mod extract;

pub mod folder;
pub mod interval;
pub mod latency;
#[cfg(test)]
pub(crate) mod sample;
pub mod scaling;
pub mod series;
pub mod settings;

pub mod summary;
pub mod verdict;
