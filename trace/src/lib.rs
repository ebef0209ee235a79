#![doc = include_str!("../README.md")]
//! # Observers
//!
//! Each is an [`Observer`](cmid_proto::Observer) of a drive. A drive without an observer has no code for this.
//!
//! | observer | what it does with each step |
//! | --- | --- |
//! | [`Trace`] | records it to a file, for [`replay`] |
//! | [`Counting`] | counts events, requests, refusals, failures and deadlines |
//! | `Tracing` (feature `tracing`) | emits an event of the crate `tracing` |
//!
//! The core is pure: the same steps produce the same results and the same state. Each step of a driver is one line of a
//! trace: the input of the core, and its answer. [`replay`] passes the inputs to a new core and compares the answers.
//! `docs/trace.md` documents the format.
#![forbid(unsafe_code)]

mod bytes;
mod chart;
mod counts;
mod line;
mod parts;
mod read;
mod record;
mod replay;
mod sink;
#[cfg(feature = "tracing")]
mod tracing;
mod transition;
mod words;

pub use chart::{Chart, ChartFormat};
pub use cmid_proto as proto;
pub use counts::{Counting, Counts};
pub use read::{Recording, Wrong};
pub use record::Trace;
pub use replay::replay;
pub use sink::{Files, Memory, Stream, TraceSink};
#[cfg(feature = "tracing")]
pub use tracing::Tracing;
pub use transition::{Arrow, Transition};
