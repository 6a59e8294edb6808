//! Under construction: see docs/architecture.md.
