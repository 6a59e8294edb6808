//! Stories of a whole group over simulated disks, one a file, by the public interface only.

mod basics;
mod crash;
mod faults;
mod scene;
mod syncs;
mod threads;
