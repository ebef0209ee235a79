//! What the core costs: instructions, allocations, bytes and time, against the [table of targets](limits).
//!
//! A [`Case`] is a step that is repeated among any number of ids, with a check of what each step has led to. It is written
//! once and measured at two [levels](Level): through the bare [`Core`](cmid_proto::Core), and through
//! [`Drive`](cmid_proto::Drive) with a device that does nothing. `cargo xtask bench` measures all of them and renders
//! docs/generated/performance.md; `cargo xtask bench --check` counts only what is exact, and fails beyond the limits.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic, reason = "a measurement of something else than was meant must not go on")]

pub mod cases;
pub mod counting;
pub mod level;
pub mod limits;
pub mod memory;
pub mod prepared;
pub mod report;
pub mod results;
pub mod times;
pub mod verdict;

pub use cases::Case;
pub use level::{Bare, Driven, Level};
pub use prepared::Prepared;
