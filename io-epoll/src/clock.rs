//! The clock of the core's time.

use cmid_proto::Time;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the same for every driver of a machine, so that an id may take its deadline along.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    // It starts with the machine, and overflows after 584 years.
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
