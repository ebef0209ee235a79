//! The differential test: random programs of calls, on the simulator and on a real kernel.
//!
//! A program is a list of calls of two sides. Each side records the result of every call, every event that it reads,
//! and the state of its ids at the end. The traces of the simulator and of the kernel must be equal, except for
//! times, pointers, ephemeral ports and the device's own QP numbers (rule 6 of the specification's section 15).
//!
//! Half of the programs call the bare device, which passes every call to the kernel. The other half call the core,
//! like an application. After each step both sides wait until the kernel has completed its effects ([`kernel`]).
//! Steps that race have no such wait between them. Then the simulator runs under all schedules, and the kernel's
//! trace must be one of theirs. The same holds for time waits, which end in the order in which they began or, if they
//! share a tick of the kernel's timer wheel, in the reverse order. Other timers do not race: a run in which one could
//! have ended at another step is repeated.
//!
//! Known differences and omissions are in `docs/generated/differences.md`, which is checked against [`differences`].
#![forbid(unsafe_code)]

pub mod address;
pub mod campaign;
mod core_runner;
pub mod coverage;
mod data;
mod data_outcome;
pub mod data_step;
mod device_runner;
pub mod differences;
pub mod generate;
mod generate_calls;
mod generate_data;
pub mod judge;
#[cfg(feature = "verbs")]
pub mod kernel;
mod prediction;
#[cfg(feature = "verbs")]
mod probe;
pub mod program;
mod recorder;
pub mod runner;
pub mod runners;
mod show;
pub mod simulated;
pub mod trace;

pub use show::side_by_side;
