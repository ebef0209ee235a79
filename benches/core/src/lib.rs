//! The costs of the core: instructions, allocations, bytes and time, against the [table of targets](limits).
//!
//! A [`Case`] is a step that is repeated with any number of other ids, with a check of each step's result. It is
//! written once and measured at two [levels](Level): through the bare [`Core`](cmid_proto::Core), and through
//! [`Drive`](cmid_proto::Drive) with a device that does nothing. `cargo xtask bench` measures all of them and renders
//! docs/generated/performance.md; `cargo xtask step "what the core costs"` measures only the exact figures, and
//! fails beyond the limits.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic, reason = "a measurement of something else than was meant must not go on")]

pub mod cases;
pub mod cmtime;
pub mod counting;
pub mod level;
pub mod limits;
pub mod memory;
pub mod prepared;
pub mod report;
mod requests;
pub mod results;
pub mod verdict;

pub use cases::Case;
pub use level::{Bare, Driven, Level};
pub use prepared::Prepared;
