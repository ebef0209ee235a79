//! The fabric: the network of the hosts, and its clock.

pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod latency;
pub(crate) mod log;
pub(crate) mod rng;
pub(crate) mod rules;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod timers;
pub(crate) mod world;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cmid_proto::Time;

use crate::fabric::config::{Clock, Config};
use crate::fabric::counters::Counters;
use crate::fabric::shared::Shared;
use crate::fabric::world::World;

/// A simulated fabric. Clones refer to the same fabric. It ends with the last clone, host and device.
///
/// A client loses its network while it waits, in virtual time:
///
/// ```
/// use cmid_proto::{Acks, Drive, EventKind, Limits, PortSpace, RequestKind};
/// use cmid_sim::{Config, Fabric};
/// use std::time::Duration;
///
/// let fabric = Fabric::new(Config { seed: 7, latency: Duration::from_millis(1), ..Config::default() });
/// let [near, far] = [fabric.host(&["10.0.0.1".parse()?]), fabric.host(&["10.0.0.2".parse()?])];
/// let mut drive = Drive::new(near.device(), Limits::SINGLE);
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
///
/// far.set_link(false);
/// let deadline = drive.within(Duration::from_secs(60));
/// drive.resolve_addr(id, None, "10.0.0.2:7471".parse()?, deadline)?;
/// let event = loop {
///     let due = [fabric.next_due(), drive.next_timeout()].into_iter().flatten().min();
///     fabric.advance_to(due.ok_or("nothing is due")?);
///     drive.set_now(fabric.now());
///     drive.readable_all();
///     let _next = drive.run(64);
///     if let Some(event) = drive.next_event(channel) {
///         break event;
///     }
/// };
/// println!("after {:?}: {event}", fabric.now());
/// assert!(event.into_result().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Fabric {
    owner: Arc<Owner>,
}

/// Ends the background thread when the last clone, host and device are gone.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Fabric {
    /// Creates a fabric without hosts.
    ///
    /// # Panics
    /// With [`Clock::Real`], if the system cannot create a thread.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one clock of the simulator")]
    pub fn new(config: Config) -> Self {
        let epoch = match config.clock {
            Clock::Virtual => None,
            Clock::Real => Some(Instant::now()),
        };
        let shared = Arc::new(Shared::new(config, epoch));
        if shared.has_real_clock() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("cmid-sim".into()).spawn(move || shared.run());
            assert!(thread.is_ok(), "no thread for the fabric's clock");
        }
        Fabric { owner: Arc::new(Owner { shared }) }
    }

    /// Returns the time since the fabric was created.
    #[must_use]
    pub fn now(&self) -> Time {
        self.with(|world| world.now)
    }

    /// Returns the time of the next timer; `None` if there is none.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.with(|world| world.timers.next_due())
    }

    /// Advances a virtual clock to `until` and processes all due timers in order. No effect for a past time, or with
    /// [`Clock::Real`].
    pub fn advance_to(&self, until: Time) {
        let shared = &self.owner.shared;
        if !shared.has_real_clock() {
            shared.lock().advance_to(until);
        }
    }

    /// As [`Fabric::advance_to`], by a duration.
    pub fn advance_by(&self, span: Duration) {
        self.advance_to(self.now().after(span));
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.with(|world| world.counters)
    }

    /// Changes the probability of message loss from now on; see [`Config::loss`]. For losses of some messages, or for a
    /// time: [`Fabric::rule`].
    pub fn set_loss(&self, loss: f64) {
        self.with(|world| world.rules.set_loss(loss));
    }

    /// Runs an action on the world, at the clock's time.
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

/// Omits the contents: every handle contains a fabric, and prints it.
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
