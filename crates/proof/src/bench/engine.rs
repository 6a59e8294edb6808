//! Section 1: the engine in process, beside raw io_uring on the same four devices.
//!
//! The measuring itself is an example of the device crate, which has both paths in one process;
//! here its devices are made and its figures are read.

use anyhow::{Result, bail};

use super::Bench;
use super::figure::Figure;

/// Measures it.
pub fn measure(_bench: &Bench) -> Result<Vec<Figure>> {
    bail!("this build holds no measurement of the engine")
}
