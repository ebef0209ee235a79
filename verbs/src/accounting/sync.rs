//! The atomics of wr_ring.rs. `tests/orders.rs` replaces them by loom's.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::Arc;
