//! Drawing what the analysis found: pure functions from a summary and its folder to text.
//!
//! The report is one HTML file with everything in it, charts drawn as SVG before it is written: no
//! script, no font, no image comes from elsewhere, so that it works from a mail attachment and on
//! paper.

pub mod chart;
pub mod csv;
pub mod html;
pub mod matrix;
#[cfg(test)]
mod sample;
pub mod terminal;
