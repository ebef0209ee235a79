//! The driver on simulated hosts in real time.

mod clock;
mod completions;
mod nesting;
mod one_by_one;
mod waking;
