//! The clock of the driver.

use cmid_proto::Time;
use rustix::time::{ClockId, clock_gettime};

/// Reads `CLOCK_MONOTONIC`. All drivers of a machine share it, so an id keeps its deadline when it moves to another
/// driver.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
}
