//! The one binary `spindle`.
fn main() {}
