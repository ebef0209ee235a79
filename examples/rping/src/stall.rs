//! A bound on waiting: a connection on which nothing happens is given up.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long a connection may be still.
const LIMIT: Duration = Duration::from_secs(60);

/// When something happened last.
#[derive(Debug)]
pub(crate) struct Stall {
    last: Instant,
}

impl Stall {
    pub(crate) fn new() -> Self {
        Stall { last: Instant::now() }
    }

    /// How long to sleep before having a look.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Notes whether something has happened; a server that waits for its client counts as such.
    pub(crate) fn check(&mut self, alive: bool) -> Result<()> {
        if alive {
            self.last = Instant::now();
        }
        ensure!(self.last.elapsed() < LIMIT, "nothing has happened on the connection for {LIMIT:?}");
        Ok(())
    }
}
