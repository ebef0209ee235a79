//! The driver: a [`Drive`] in the user's poll.

use std::io;
use std::ops::Range;
use std::time::Duration;

use cmid_proto::{Drive, Limits, Next, Observer, Pollable, Time};
use mio::Registry;
use mio::event::Event;

use crate::poller::Channels;
use cmid_io_common::Waker;
use cmid_io_common::now;

/// Events read from the channels per turn.
const BUDGET: usize = 256;

/// The longest timeout of a poll: its milliseconds are those of epoll_wait(2).
const LONGEST: Duration = Duration::from_secs(24 * 24 * 3600);

/// Configuration of the driver in the user's poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Limits of the core.
    pub limits: Limits,
    /// The tokens of the driver, one per open channel; the user's own sources use others. Each listener and each id in
    /// synchronous mode has its own channel. The number of tokens limits the number of channels, in addition to
    /// `limits`. Give two drivers in one poll disjoint ranges; the timeout of the poll is then
    /// `server.timeout(client.timeout(None))`.
    pub tokens: Range<usize>,
}

/// cmid in a `mio::Poll` that the user owns, beside the user's own sources.
///
/// The user's loop passes the [`timeout`](Mio::timeout) to the poll, and calls [`handle`](Mio::handle) for each event of
/// the poll and then [`turn`](Mio::turn). Then it takes events of its channels; those that it leaves are reported again.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
///
/// ```
/// use cmid_mio::{Config, Mio};
/// use cmid_mio::proto::{Acks, CmEvent, Limits, PortSpace};
/// use mio::{Events, Poll, Token, Waker};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
/// let own = Waker::new(poll.registry(), Token(0))?; // a source of the application
/// let mut driver = Mio::new(host.device(), poll.registry(), Config { limits: Limits::SINGLE, tokens: 1000..1004 })?;
/// let channel = driver.drive().open_channel(Acks::OnDelivery)?;
/// let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
/// let deadline = driver.drive().within(Duration::from_secs(2));
/// driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse()?, deadline)?;
/// own.wake()?;
///
/// let (mut is_woken, mut resolved) = (false, None);
/// while !is_woken || resolved.is_none() {
///     poll.poll(&mut events, driver.timeout(Some(Duration::from_secs(5))))?;
///     for event in &events {
///         if !driver.handle(event) {
///             is_woken |= event.token() == Token(0);
///         }
///     }
///     let _next = driver.turn();
///     resolved = resolved.or_else(|| driver.drive().next_event(channel));
/// }
/// assert_eq!(resolved.and_then(|event| event.cm()), Some(CmEvent::AddrResolved));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mio<D: Pollable, O: Observer = ()> {
    drive: Drive<D, Channels, O>,
}

impl<D: Pollable> Mio<D> {
    /// Creates a driver with no ids or channels on `device`. Its core gets the next number of the process, unless the
    /// limits have one.
    ///
    /// # Errors
    /// The error of `Registry::try_clone`.
    pub fn new(device: D, registry: &Registry, config: Config) -> io::Result<Self> {
        Mio::observed(device, registry, config, ())
    }
}

impl<D: Pollable, O: Observer> Mio<D, O> {
    /// As [`new`](Mio::new), with an observer of each step.
    ///
    /// # Errors
    /// As for [`new`](Mio::new).
    pub fn observed(device: D, registry: &Registry, config: Config, observer: O) -> io::Result<Self> {
        let Config { mut limits, tokens } = config;
        limits.channels = limits.channels.min(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        let tokens = Channels::new(registry.try_clone()?, tokens);
        let mut drive = Drive::with(device, tokens, observer, limits.numbered());
        drive.set_now(now());
        Ok(Mio { drive })
    }

    /// Returns the requests, the events and the core. Its time is that of the last turn; [`Drive::within`] reads the
    /// clock.
    pub fn drive(&mut self) -> &mut Drive<D, Channels, O> {
        &mut self.drive
    }

    /// Returns the waker of this driver, which ends polls from other threads. The waker uses one of the driver's
    /// tokens; [`handle`](Mio::handle) returns true for its events.
    ///
    /// # Errors
    /// The error of eventfd(2) or epoll_ctl(2); `OutOfMemory` if no token is left.
    pub fn waker(&mut self) -> io::Result<Waker> {
        self.drive.poller_mut().waker()
    }

    /// Handles an event of the poll. Returns false if the token is not of the driver: the event is that of a source of
    /// the user.
    pub fn handle(&mut self, event: &Event) -> bool {
        let tokens = self.drive.poller();
        let is_ours = tokens.has(event.token());
        // A token without a channel belongs to a channel that was closed after the poll.
        if let Some(channel) = tokens.channel(event.token()) {
            self.drive.readable(channel);
        }
        is_ours
    }

    /// Runs the core without waiting. [`Next::Deliver`]: [`Drive::next_event`] may return an event.
    pub fn turn(&mut self) -> Next {
        self.drive.set_now(now());
        self.drive.run(BUDGET)
    }

    /// As [`timeout`](Mio::timeout), until a deadline of the application, such as that of
    /// [`Redial::timeout`](cmid_proto::redial::Redial::timeout). [`Time::NEVER`] for none.
    #[must_use]
    pub fn timeout_until(&self, deadline: Time) -> Option<Duration> {
        self.timeout((deadline != Time::NEVER).then(|| deadline.since(now())))
    }

    /// Returns the timeout of the next poll: at most `at_most`; `None` means no timeout. It is zero while a turn has
    /// work, also of requests made after the last turn: one turn for each poll suffices.
    ///
    /// The timeout is rounded up to milliseconds, the resolution of mio. Rounded down, polls would return repeatedly
    /// just before a deadline. It is at most 24 days: mio before 1.2.1 takes a longer one for another one, or for none.
    #[must_use]
    pub fn timeout(&self, at_most: Option<Duration>) -> Option<Duration> {
        let until = |due: Time| Duration::from_millis(due.since(now()).as_nanos().div_ceil(1_000_000) as u64);
        let span = match self.drive.next_action() {
            Next::Deliver | Next::Again => Some(Duration::ZERO),
            Next::Wait(due) => due.map(until).into_iter().chain(at_most).min(),
        };
        span.map(|span| span.min(LONGEST))
    }
}

impl<D: Pollable, O: Observer> Drop for Mio<D, O> {
    fn drop(&mut self) {
        self.drive.poller().deregister_all(self.drive.device());
    }
}
