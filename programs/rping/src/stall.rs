//! Ends a connection without activity after a time limit.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// The time limit without activity.
const LIMIT: Duration = Duration::from_secs(60);

/// The time of the last activity.
#[derive(Debug)]
pub(crate) struct Stall {
    last: Instant,
}

impl Stall {
    pub(crate) fn new() -> Self {
        Stall { last: Instant::now() }
    }

    /// The sleep between two checks.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Records activity, or fails after the limit without any. A server that waits for its client counts as active.
    pub(crate) fn check(&mut self, alive: bool) -> Result<()> {
        if alive {
            self.last = Instant::now();
        }
        ensure!(self.last.elapsed() < LIMIT, "nothing has happened on the connection for {LIMIT:?}");
        Ok(())
    }
}
