//! What the demo and the proofs stand on: programs that are started and ended by process id, a
//! PostgreSQL or MariaDB server on any directory, its load and its log, the binary `spindle`, and a scene
//! that leaves nothing behind.
//!
//! Everything here sees Spindle as a user does. It is the shared half of two binaries, and so
//! uses `anyhow` as they do: an error is a line for a person, with the program's own words.
//!
//! A panic, an error and Ctrl-C end alike: values are dropped in the reverse order of their
//! making, and each drop undoes what it made. A SIGKILL leaves what is there; the next run does
//! not stumble over it, because every scene has a directory of its own.

pub mod figures;
pub mod interrupt;
pub mod mariadb;
pub mod pgbench;
pub mod postgres;
pub mod process;
pub mod progress;
pub mod scene;
pub mod spindle;
mod user;
pub mod wire;
pub mod work;
