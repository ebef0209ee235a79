//! The driver: a [`Drive`] and the translation of the user's poll to it.

use std::io;
use std::ops::Range;
use std::time::Duration;

use cmid_proto::{Drive, Limits, Pollable, Rest, Time, Watched};
use mio::Registry;
use mio::event::Event;

use crate::clock::now;
use crate::poller::Tokens;

/// Events read off the channels in one turn, before others get theirs.
const BUDGET: usize = 256;

/// How the driver shares the user's poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the core may hold. Channels are limited by the tokens too.
    pub limits: Limits,
    /// The tokens that are the driver's, one per channel at a time; the user's own sources use others.
    pub tokens: Range<usize>,
}

/// cmid in a `mio::Poll` that the user owns, beside the user's own sources.
///
/// The user's loop: [`timeout`](Mio::timeout) before the poll, [`handle`](Mio::handle) for each event of it,
/// [`turn`](Mio::turn) after them, then take the events of the channels.
#[derive(Debug)]
pub struct Mio<D> {
    drive: Drive<Watched<D, Tokens>>,
}

impl<D: Pollable> Mio<D> {
    /// An empty driver on a device.
    ///
    /// # Errors
    /// What duplicating the registry failed with.
    pub fn new(device: D, registry: &Registry, config: Config) -> io::Result<Self> {
        let tokens = Tokens::new(registry.try_clone()?, config.tokens);
        Ok(Mio { drive: Drive::new(Watched::new(device, tokens), config.limits) })
    }

    /// The requests, the events and the core, at the present time.
    pub fn drive(&mut self) -> &mut Drive<Watched<D, Tokens>> {
        self.drive.set_now(now());
        &mut self.drive
    }

    /// Takes an event of the poll. False: it is not the driver's, but one of the user's own sources.
    pub fn handle(&mut self, event: &Event) -> bool {
        match self.drive.device().poller().channel(event.token()) {
            Some(channel) => {
                self.drive.readable(channel);
                true
            }
            None => false,
        }
    }

    /// Does what there is to do, without waiting.
    pub fn turn(&mut self) -> Rest {
        self.drive.set_now(now());
        self.drive.settle(BUDGET)
    }

    /// How long the next poll may sleep, `at_most` as the user wishes. `None`: until something happens.
    ///
    /// Rounded up to milliseconds, which is all that mio has: a poll that wakes just before a deadline would spin.
    #[must_use]
    pub fn timeout(&self, at_most: Option<Duration>) -> Option<Duration> {
        let due = match self.drive.rest() {
            Rest::Look | Rest::More => Time::ZERO,
            Rest::Until(due) => due.unwrap_or(Time::NEVER),
        };
        if due == Time::NEVER {
            return at_most;
        }
        let span = Duration::from_millis(due.since(now()).as_nanos().div_ceil(1_000_000) as u64);
        Some(at_most.map_or(span, |at_most| at_most.min(span)))
    }
}
