//! Models for loom: see `tests/models.rs`.
