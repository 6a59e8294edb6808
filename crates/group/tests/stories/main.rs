//! Stories of a whole group over simulated disks, one a file, by the public interface only.

mod basics;
mod scene;
