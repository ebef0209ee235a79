//! The state that all handles of a fabric share, and its lock.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cmid_proto::Time;

use crate::fabric::config::Config;
use crate::fabric::world::World;

/// A resource whose handle is gone and which is released as soon as that is possible.
pub(crate) trait Parked: fmt::Debug + Send {
    /// Tries to release it; true if there is nothing more to be done.
    fn try_end(&self, shared: &Shared) -> bool;
}

/// What all handles share. Whoever holds the lock of a region may take that of the world, never the other way round.
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Outside of the world, because ending a region's use of its domain takes the world's lock.
    parked: Mutex<Vec<Box<dyn Parked>>>,
    /// Something is due earlier than the background thread thinks, or it is to end.
    earlier: Condvar,
    /// The zero of a real clock; `None` for a virtual one.
    epoch: Option<Instant>,
}

impl Shared {
    /// A fabric without hosts; with the zero of a real clock, or a virtual one.
    pub(super) fn new(config: Config, epoch: Option<Instant>) -> Self {
        Shared { world: Mutex::new(World::new(config)), parked: Mutex::default(), earlier: Condvar::new(), epoch }
    }

    pub(super) fn has_real_clock(&self) -> bool {
        self.epoch.is_some()
    }

    /// Ends the background thread.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.earlier.notify_one();
    }

    /// Releases a resource whose handle goes, now or as soon as that is possible.
    pub(crate) fn retire(&self, ending: impl Parked + 'static) {
        if !ending.try_end(self) {
            self.parked().push(Box::new(ending));
        }
    }

    /// Tries again to release what could not be released before, as `cmid-verbs` does: its obstacle may be gone.
    pub(crate) fn sweep(&self) {
        let waiting = std::mem::take(&mut *self.parked());
        let left: Vec<_> = waiting.into_iter().filter(|ending| !ending.try_end(self)).collect();
        self.parked().extend(left);
    }

    fn parked(&self) -> MutexGuard<'_, Vec<Box<dyn Parked>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world outlives a panic of whoever held the lock: it is no worse than after any other call.
    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
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
    pub(super) fn run(&self) {
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
