//! The differential test: random programs of calls, on the simulator and on a real kernel.
//!
//! A program is a list of calls of two sides. Each side writes down what every call returned, every event that it read, and
//! how its ids stand at the end. The simulator's traces and the kernel's must be equal, but for what cannot be: times,
//! pointers, ephemeral ports and the device's own QP numbers (rule 6 of the specification's section 15).
//!
//! Half of the programs call the bare device, where nothing keeps them from what the kernel refuses; the other half go
//! through the core, as an application does. After each step both sides rest until the kernel has done what the step set
//! going ([`kernel`]). Steps that race have no such rest between them; then the simulator runs under all schedules, and the
//! kernel's trace must be one of theirs. So it does for time waits, which end in the order in which they began or, where
//! they share a tick of the kernel's timer wheel, in the reverse. Other timers are no race: a run in which one could have
//! run out at another step is run again.
//!
//! What is knowingly different, or left out, is in `docs/generated/differences.md`, which is checked against [`differences`].
#![forbid(unsafe_code)]

pub mod campaign;
mod core_runner;
pub mod coverage;
mod device_runner;
pub mod differences;
pub mod generate;
pub mod judge;
#[cfg(feature = "verbs")]
pub mod kernel;
mod prediction;
pub mod program;
mod recorder;
pub mod runner;
mod show;
pub mod shrink;
pub mod simulated;
pub mod trace;

pub use show::side_by_side;
