//! Programs of a world, and what they see of their host.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cmid_proto::{Drive, Limits, Next, Observer, Poller, Time};

use crate::fabric::device::SimDevice;
use crate::fabric::host::Host;
use crate::worlds::coverage::{Covered, Covering};
use crate::worlds::disk::Disk;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another turn at once: after a microsecond, so that a program that polls takes time.
    Again,
    /// A turn when something arrives at the host, an event or a completion, and at the latest at this time of its clock. A
    /// time that has passed is as [`Again`](Turn::Again); 100,000 of them one after the other are a failure of the program.
    Wait(Option<Time>),
    /// The program has ended: it is dropped, which ends its process.
    Done,
}

impl From<Next> for Turn {
    fn from(next: Next) -> Self {
        match next {
            Next::Deliver | Next::Again => Turn::Again,
            Next::Wait(due) => Turn::Wait(due),
        }
    }
}

/// A program: an event loop without the waiting. A closure is one too.
///
/// What belongs to its process is in it, such as its devices and QPs. A crash drops it.
pub trait Program {
    /// Does what can be done without waiting. `now` is the time of the host's clock.
    fn turn(&mut self, now: Time) -> Turn;
}

impl<F: FnMut(Time) -> Turn> Program for F {
    fn turn(&mut self, now: Time) -> Turn {
        self(now)
    }
}

/// Makes a turn of a drive at this time, which reads all of its channels if one has an event. Then take the events
/// ([`Drive::next_event`]); afterwards [`Drive::next_action`] is what the program does next.
pub fn turn<P: Poller<SimDevice>, O: Observer>(drive: &mut Drive<SimDevice, P, O>, now: Time) {
    drive.set_now(now);
    if drive.device().is_readable() {
        drive.readable_all();
    }
    while drive.run(usize::MAX) == Next::Again {}
}

/// How a clock differs from the time of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    /// Nanoseconds that it is ahead.
    pub(crate) ahead: u64,
    /// How much faster it runs, in millionths; negative for slower.
    pub(crate) drift_ppm: i32,
}

/// What `drift_ppm` is a part of.
const MILLION: u64 = 1_000_000;

impl Skew {
    /// The clock at a time of the world.
    pub(crate) fn local(self, now: Time) -> Time {
        let drift = i64::from(self.drift_ppm);
        // Whole millions and the rest, because no number of 64 bits holds the product.
        let of_rest = (now.0 % MILLION) as i64 * drift / MILLION as i64;
        let drift = i128::from(now.0 / MILLION) * i128::from(drift) + i128::from(of_rest);
        let local = i128::from(now.0) + i128::from(self.ahead) + drift;
        Time(u64::try_from(local.max(0)).unwrap_or(u64::MAX))
    }

    /// The first time of the world at which the clock shows at least this.
    pub(crate) fn world(self, local: Time) -> Time {
        if local == Time::NEVER {
            return local;
        }
        let (elapsed, rate) = (local.0.saturating_sub(self.ahead), self.rate());
        let rest = (elapsed % rate * MILLION).div_ceil(rate);
        Time((elapsed / rate).saturating_mul(MILLION).saturating_add(rest))
    }

    /// The nanoseconds of the clock in a million of the world.
    fn rate(self) -> u64 {
        MILLION.saturating_add_signed(self.drift_ppm.max(-900_000).into())
    }
}

/// What a program knows of its host. Clones are of the same host.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) host: Host,
    pub(crate) disk: Disk,
    pub(crate) addrs: Rc<RefCell<BTreeMap<String, IpAddr>>>,
    pub(crate) skew: Rc<Cell<Skew>>,
    /// The next turn that a [`Task`](crate::Task) waits for.
    pub(crate) alarm: Rc<Cell<Option<Time>>>,
    pub(super) covered: Covered,
    pub(crate) ip: IpAddr,
}

impl Node {
    /// Returns the host in the fabric, for faults of its calls and for its device.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns a device of this process.
    #[must_use]
    pub fn device(&self) -> SimDevice {
        self.host.device()
    }

    /// Returns a drive on a device of this process. It has no poller: [`turn`] reads its channels.
    #[must_use]
    pub fn drive(&self) -> Drive<SimDevice> {
        let mut drive = Drive::new(self.device(), Limits::default());
        drive.set_now(self.now());
        drive
    }

    /// Returns an observer for a drive or a driver, whose steps count for [`World::coverage`](crate::World::coverage).
    #[must_use]
    pub fn coverage(&self) -> Covering {
        Covering::new(Arc::clone(&self.covered))
    }

    /// Returns the time of the host's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.skew.get().local(self.host.fabric.now())
    }

    /// Returns an address of this host.
    #[must_use]
    pub fn addr(&self, port: u16) -> SocketAddr {
        (self.ip, port).into()
    }

    /// Returns an address of the host with this name.
    ///
    /// # Panics
    /// If the world has no such host.
    #[must_use]
    pub fn addr_of(&self, name: &str, port: u16) -> SocketAddr {
        match self.addrs.borrow().get(name) {
            Some(&ip) => (ip, port).into(),
            None => panic!("the world has no host {name}"),
        }
    }

    /// Returns the host's disk, which outlives the program.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns a number below `bound`, from the seed of the world; 0 if `bound` is 0.
    #[must_use]
    pub fn random(&self, bound: u64) -> u64 {
        self.host.fabric.with(|world| world.rng.below(bound))
    }

    /// Returns a time from zero to `most`, from the seed of the world.
    #[must_use]
    pub fn random_time(&self, most: Duration) -> Duration {
        Duration::from_nanos(self.random(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Gives the program of this host a turn, as an arrival does: another program has left it something that does not travel
    /// through the fabric, such as a message over TCP.
    pub fn wake(&self) {
        self.host.fabric.with(|world| world.wake(self.host.no));
    }

    /// Writes a line into the trace of a failure.
    pub fn note(&self, text: &str) {
        self.host.fabric.with(|world| world.note(self.host.no, || text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_and_drifts_reaches_each_of_its_times() {
        for skew in [Skew::default(), Skew { ahead: 7_000, drift_ppm: 200 }, Skew { ahead: 0, drift_ppm: -333 }] {
            for local in [Time(7_001), Time(1_000_003), Time(98_765_432_109)] {
                let at = skew.world(local);
                assert!(skew.local(at) >= local, "{skew:?} {local}");
                assert!(skew.local(Time(at.0.saturating_sub(3))) < local, "{skew:?} {local}");
            }
            assert_eq!(skew.world(Time::NEVER), Time::NEVER);
        }
    }
}
