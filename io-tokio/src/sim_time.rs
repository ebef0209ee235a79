//! The time of a simulated fabric.

use std::time::Duration;

use cmid_sim::Fabric;
use tokio::time::{Instant, sleep};

/// The accuracy of tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// Advances a fabric of [`Clock::Virtual`](cmid_sim::Clock::Virtual) with tokio's clock, in steps of a millisecond. It
/// never ends: spawn it. With tokio's clock paused, a test then waits for no time-out in real time, and depends on none.
pub async fn advance_with_clock(fabric: Fabric) {
    let (start, epoch) = (Instant::now(), fabric.now());
    loop {
        fabric.advance_to(epoch.after(start.elapsed()));
        sleep(TICK).await;
    }
}
