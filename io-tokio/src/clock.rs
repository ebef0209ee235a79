//! tokio's clock, in the time of the drivers.

use std::sync::OnceLock;

use cmid_proto::Time;
use tokio::time::Instant;

/// The same moment on both clocks. `CLOCK_MONOTONIC` is the clock of both; `std` does not tell its value.
fn origin() -> (std::time::Instant, Time) {
    static ORIGIN: OnceLock<(std::time::Instant, Time)> = OnceLock::new();
    *ORIGIN.get_or_init(|| (std::time::Instant::now(), cmid_io_common::now()))
}

/// Returns the present time. It stands still while tokio's clock is paused.
pub(crate) fn now() -> Time {
    let (start, time) = origin();
    time.after(Instant::now().into_std().saturating_duration_since(start))
}

/// Returns the moment of a time on tokio's clock; `None` if it never comes.
pub(crate) fn instant(at: Time) -> Option<Instant> {
    let (start, time) = origin();
    if at == Time::NEVER { None } else { start.checked_add(at.since(time)).map(Instant::from_std) }
}
