//! The fabric: what hosts are connected by, and its clock.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cmid_proto::Time;

use crate::config::{Clock, Config};
use crate::counters::Counters;
use crate::data::parked::Parked;
use crate::host::{Host, HostNo, HostState};
use crate::world::World;

/// A simulated fabric. Clones are the same fabric; it ends with the last of them and of its hosts and devices.
#[derive(Clone)]
pub struct Fabric {
    owner: Arc<Owner>,
}

/// Ends the background thread when the last handle goes.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.earlier.notify_one();
    }
}

/// What all handles share. Whoever holds the lock of a region may take that of the world, never the other way round.
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Outside of the world, because ending a region's use of its domain takes the world's lock.
    pub(crate) parked: Parked,
    /// Something is due earlier than the background thread thinks, or it is to end.
    earlier: Condvar,
    /// The zero of a real clock; `None` for a virtual one.
    epoch: Option<Instant>,
}

impl Shared {
    /// The world outlives a panic of whoever held the lock: it is no worse than after any other call.
    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a real clock catch up.
    fn catch_up(&self, world: &mut World) {
        if let Some(epoch) = self.epoch {
            world.advance_to(Time::ZERO.after(epoch.elapsed()));
        }
    }

    /// Does something with the world, at the clock's time; then with the regions that waited for it.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.lock();
        let result = match self.epoch {
            None => action(&mut world),
            Some(_) => self.with_real_clock(&mut world, action),
        };
        let sweep = std::mem::take(&mut world.sweep);
        drop(world);
        if sweep {
            self.sweep();
        }
        result
    }

    fn with_real_clock<T>(&self, world: &mut World, action: impl FnOnce(&mut World) -> T) -> T {
        self.catch_up(world);
        let before = world.timers.next_due();
        let result = action(world);
        let after = world.timers.next_due();
        // The thread sleeps until `before`, or without end.
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.earlier.notify_one();
        }
        result
    }

    /// The background thread of a real clock: sleeps until something is due.
    fn run(&self) {
        let mut world = self.lock();
        while !world.stopped {
            self.catch_up(&mut world);
            world = match world.timers.next_due() {
                Some(due) => {
                    let pause = due.since(world.now);
                    self.earlier.wait_timeout(world, pause).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.earlier.wait(world).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Fabric {
    /// A fabric without hosts.
    ///
    /// # Panics
    /// With [`Clock::Real`], if the system refuses a thread.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one clock of the simulator")]
    pub fn new(config: Config) -> Self {
        let epoch = match config.clock {
            Clock::Virtual => None,
            Clock::Real => Some(Instant::now()),
        };
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(config)),
            parked: Parked::default(),
            earlier: Condvar::new(),
            epoch,
        });
        if epoch.is_some() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("cmid-sim".into()).spawn(move || shared.run());
            assert!(thread.is_ok(), "no thread for the fabric's clock");
        }
        Fabric { owner: Arc::new(Owner { shared }) }
    }

    /// Adds a host with these addresses, IPv4 or IPv6, all on RDMA-capable interfaces: one interface for each /24 or
    /// /64, one device for them all.
    #[must_use]
    pub fn host(&self, addresses: &[IpAddr]) -> Host {
        let no = self.with(|world| {
            world.hosts.push(HostState::new(addresses));
            HostNo(world.hosts.len() - 1)
        });
        Host { fabric: self.clone(), no }
    }

    /// The fabric's time, since it was made.
    #[must_use]
    pub fn now(&self) -> Time {
        self.with(|world| world.now)
    }

    /// When something happens next; `None` if the fabric is at rest.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.with(|world| world.timers.next_due())
    }

    /// Lets a virtual clock go on to `until`, and everything happen that is due by then, in order. A time that has
    /// passed changes nothing, and neither does the call with [`Clock::Real`].
    pub fn advance_to(&self, until: Time) {
        let shared = &self.owner.shared;
        if shared.epoch.is_none() {
            shared.lock().advance_to(until);
        }
    }

    /// As [`Fabric::advance_to`], by a span.
    pub fn advance_by(&self, span: Duration) {
        self.advance_to(self.now().after(span));
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.with(|world| world.counters)
    }

    /// How many pages of memory are kept from children of a fork ([`Config::fork`]). One that several regions share
    /// counts once.
    #[must_use]
    pub fn pages_kept_from_fork(&self) -> usize {
        self.with(|world| world.library.fork.count())
    }

    /// Changes the probability that a message is lost, from now on; see [`Config::loss`].
    pub fn set_loss(&self, loss: f64) {
        self.with(|world| world.config.loss = loss);
    }

    /// Does something with the world, at the clock's time.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut World) -> T) -> T {
        self.owner.shared.with(action)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    pub(crate) fn weak(&self) -> Weak<Shared> {
        Arc::downgrade(&self.owner.shared)
    }

    /// Whether both are the same fabric.
    pub(crate) fn is(&self, other: &Fabric) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

/// Without what is in it: every handle has a fabric, and prints it.
impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_stands_still_and_never_goes_back() {
        let fabric = Fabric::new(Config::default());
        assert_eq!((fabric.now(), fabric.next_due()), (Time::ZERO, None));
        fabric.advance_by(Duration::from_secs(1));
        fabric.advance_to(Time(5));
        assert_eq!(fabric.now(), Time(1_000_000_000));
    }

    #[test]
    fn real_time_cannot_be_advanced() {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        fabric.advance_by(Duration::from_secs(1000));
        let now = fabric.now();
        assert!(now < Time(900_000_000_000) && fabric.now() >= now);
    }
}
