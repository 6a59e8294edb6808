//! Background copying: where copies should lie, and how they get there.

mod planner;
mod shares;
