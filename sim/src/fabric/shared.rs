//! The state that all handles of a fabric share, and its lock.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cmid_proto::Time;

use crate::fabric::config::Config;
use crate::fabric::world::World;

/// A resource without a handle, which is released as soon as possible.
pub(crate) trait Parked: fmt::Debug + Send {
    /// Tries to release it; true if no further attempt is needed.
    fn try_end(&self, shared: &Shared) -> bool;
}

/// The shared state of all handles. Lock order: a region first, then the world.
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Outside of the world, because ending a region's use of its domain takes the world's lock.
    parked: Mutex<Vec<Box<dyn Parked>>>,
    /// Wakes the background thread if a timer is due earlier than its next wake-up, or if it must end.
    earlier: Condvar,
    /// The start of a real clock; `None` for a virtual one.
    epoch: Option<Instant>,
}

impl Shared {
    /// Creates the state of a fabric without hosts. `epoch` is the start of a real clock; `None` for a virtual one.
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

    /// Releases a resource when its handle is dropped, now or as soon as possible.
    pub(crate) fn retire(&self, ending: impl Parked + 'static) {
        if !ending.try_end(self) {
            self.parked().push(Box::new(ending));
        }
    }

    /// Retries the release of parked resources, as `cmid-verbs` does.
    pub(crate) fn sweep(&self) {
        let waiting = std::mem::take(&mut *self.parked());
        if waiting.is_empty() {
            return;
        }
        let left: Vec<_> = waiting.into_iter().filter(|ending| !ending.try_end(self)).collect();
        self.parked().extend(left);
    }

    fn parked(&self) -> MutexGuard<'_, Vec<Box<dyn Parked>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the world. Ignores poisoning, because the world is consistent after each call.
    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the world to the time of a real clock.
    fn catch_up(&self, world: &mut World) {
        if let Some(epoch) = self.epoch {
            world.advance_to(Time::ZERO.after(epoch.elapsed()));
        }
    }

    /// Runs an action on the world, at the clock's time; then retries parked regions if needed.
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
        // The thread sleeps until `before`, or indefinitely.
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
