//! The loop, which never sleeps. Each round polls the CQs (the fast path); one in `ROUNDS` also handles events and
//! deadlines (the slow path).

use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::{Drive, Limits, Next, Poller, Time};

use crate::driver::NeverWaits;
use crate::error::Error;

/// The slow path runs once in this number of rounds, because it makes a system call for each event channel.
const ROUNDS: u32 = 256;

/// Events read in one turn of the driver.
const EVENTS: usize = 64;

/// The maximum number of turns of the driver in one run of the slow path, so that many events do not delay the fast
/// path.
const TURNS: u32 = 16;

/// A program that a reactor runs: the feed, the trader or the exchange.
pub trait Role<D: DataPath> {
    /// The fast path: handles the completions. `now` is the time of the last run of the slow path.
    ///
    /// # Errors
    /// The role cannot go on.
    fn poll(&mut self, now: Time) -> Result<(), Error>;

    /// The slow path: handles the events of all its channels.
    ///
    /// # Errors
    /// The role cannot go on.
    fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error>;

    /// The slow path: handles the deadlines that have passed.
    ///
    /// # Errors
    /// The role cannot go on.
    fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error>;
}

/// Runs the slow path once: reads the clock and the event channels, without waiting.
///
/// # Errors
/// The errors of the role.
pub fn run_slow_path<D: DataPath, P: Poller<D>>(drive: &mut Drive<D, P>, role: &mut impl Role<D>) -> Result<(), Error> {
    // Reads the clock.
    let _now = drive.within(Duration::ZERO);
    drive.readable_all();
    for _ in 0..TURNS {
        match drive.run(EVENTS) {
            Next::Deliver | Next::Again => role.take_events(drive)?,
            Next::Wait(_) => break,
        }
    }
    role.handle_timeout(drive)
}

/// A driver and its rounds.
#[derive(Debug)]
pub struct Reactor<D: DataPath> {
    driver: Drive<D, NeverWaits>,
    rounds: u32,
}

impl<D: DataPath> Reactor<D> {
    /// Creates a reactor on a device.
    #[must_use]
    pub fn new(device: D) -> Self {
        Reactor { driver: Drive::with(device, NeverWaits, (), Limits::default().numbered()), rounds: 0 }
    }

    /// Returns its driver.
    pub fn drive(&mut self) -> &mut Drive<D, NeverWaits> {
        &mut self.driver
    }

    /// Makes one round. Returns whether the slow path was run.
    ///
    /// # Errors
    /// The errors of the role.
    #[inline]
    pub fn round(&mut self, role: &mut impl Role<D>) -> Result<bool, Error> {
        role.poll(self.driver.now())?;
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return Ok(false);
        }
        self.rounds = 0;
        run_slow_path(&mut self.driver, role)?;
        Ok(true)
    }
}
