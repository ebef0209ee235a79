//! The driver: a [`Drive`] and its waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use cmid_proto::{ChannelKey, Drive, Limits, Next, Observer, Pollable, Time};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use crate::poller::{Channels, WAKER};
use crate::timer_fd::TimerFd;
use cmid_io_common::Waker;
use cmid_io_common::now;

/// Events read from the channels per turn.
const BUDGET: usize = 256;

/// Descriptors reported by one `epoll_wait`.
const REPORTS: usize = 64;

/// Configuration of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// Limits of the core.
    pub limits: Limits,
    /// The time that [`Epoll::wait`] polls for events before it sleeps. Zero: no polling.
    pub busy_poll: Duration,
}

/// cmid on its own epoll instance.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
///
/// Both sides of a connection on one driver:
///
/// ```
/// use cmid_epoll::proto::datapath::QpParts;
/// use cmid_epoll::proto::handshake::{Dial, DialTo, Incoming, Serve};
/// use cmid_epoll::proto::{Acks, ConnParam, PortSpace, Time};
/// use cmid_epoll::{Config, Epoll};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut epoll = Epoll::new(host.device(), Config::default())?;
/// let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
/// let listener = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
/// epoll.drive().bind(listener, "10.0.0.2:7471".parse()?)?;
/// epoll.drive().listen(listener, 8)?;
///
/// let deadline = epoll.drive().within(Duration::from_secs(10));
/// let mut dial = Dial::start(epoll.drive(), Some(channel), &DialTo::new("10.0.0.2:7471".parse()?), deadline)?;
/// let (mut serve, mut client, mut server) = (None::<Serve<_>>, None, None);
/// while client.is_none() || server.is_none() {
///     let Some(event) = epoll.drive().next_event(channel) else {
///         epoll.wait(None)?; // the deadline of the handshakes ends it
///         continue;
///     };
///     if event.id == dial.id() {
///         client = dial.handle(epoll.drive(), event, |drive, id| drive.attach_qp(id, QpParts::attach))?;
///     } else if let Some(serve) = &mut serve {
///         server = serve.handle(epoll.drive(), event)?;
///     } else {
///         let incoming = Incoming::new(epoll.drive(), event).map_err(|event| event.to_string())?;
///         serve = Some(incoming.accept(epoll.drive(), ConnParam::default(), &[], deadline, |drive, id| {
///             drive.attach_qp(id, QpParts::attach)
///         })?);
///     }
/// }
/// assert!(client.is_some_and(|client| epoll.drive().core().state(client.id) == Some(cmid_epoll::proto::State::Connected)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Epoll<D: Pollable, O: Observer = ()> {
    drive: Drive<D, Channels, O>,
    timer_fd: TimerFd,
    busy_poll: Duration,
    /// The waker, after the first call of `waker`.
    waker: Option<Waker>,
}

/// The result of one `epoll_wait`. The readable channels are reported to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Channels,
    Nothing,
    /// A signal or the waker: the wait ends.
    Early,
    /// The descriptor of the caller: the wait ends.
    Descriptor,
}

impl<D: Pollable> Epoll<D> {
    /// Creates a driver with no ids or channels on `device`. Its core gets the next number of the process, unless the
    /// limits have one.
    ///
    /// # Errors
    /// The error of `epoll_create1` or `timerfd_create`.
    pub fn new(device: D, config: Config) -> io::Result<Self> {
        Epoll::observed(device, config, ())
    }
}

impl<D: Pollable, O: Observer> Epoll<D, O> {
    /// As [`new`](Epoll::new), with an observer of each step.
    ///
    /// # Errors
    /// As for [`new`](Epoll::new).
    pub fn observed(device: D, config: Config, observer: O) -> io::Result<Self> {
        let (channels, timer_fd) = (Channels::new()?, TimerFd::new()?);
        channels.add_own(timer_fd.as_fd())?;
        let Config { limits, busy_poll } = config;
        let mut drive = Drive::with(device, channels, observer, limits.numbered());
        drive.set_now(now());
        Ok(Epoll { drive, timer_fd, busy_poll, waker: None })
    }

    /// Returns the requests, the events and the core. [`Drive::within`] reads the clock. [`Drive::now`] reads it once
    /// after a wait that has not read it.
    pub fn drive(&mut self) -> &mut Drive<D, Channels, O> {
        &mut self.drive
    }

    /// Returns the waker of this driver, which ends its waits from other threads.
    ///
    /// # Errors
    /// The error of eventfd(2) or epoll_ctl(2).
    pub fn waker(&mut self) -> io::Result<Waker> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Waker::new()?;
        self.drive.poller().add_waker(waker.as_fd())?;
        Ok(self.waker.insert(waker).clone())
    }

    /// Runs pending work, then waits until an event may be taken or `at_most` elapses (`None`: no limit). May return early
    /// without an event, and does so after a signal and when the [waker](Epoll::waker) was called.
    ///
    /// It returns at once while there is an event, so the application may take any number of events after each wait.
    ///
    /// # Errors
    /// The error of `epoll_wait` or `timerfd_settime`.
    pub fn wait(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        self.wait_with(None, at_most).map(drop)
    }

    /// As [`wait`](Epoll::wait), but also ends when the caller's descriptor `also` is readable, such as that of a CQ. Returns
    /// whether it is; there may be events as well.
    ///
    /// ```
    /// use cmid_epoll::Epoll;
    /// use cmid_epoll::proto::datapath::{Completion, CompletionQueue, DataPath};
    /// use cmid_epoll::proto::{ChannelKey, Event, Time};
    ///
    /// /// Waits until a deadline for completions, whose number it returns, or for an event.
    /// fn next<D: DataPath>(
    ///     epoll: &mut Epoll<D>,
    ///     on: ChannelKey,
    ///     cq: &mut D::Cq,
    ///     some: &mut [Completion],
    ///     end: Time,
    /// ) -> std::io::Result<(usize, Option<Event>)> {
    ///     loop {
    ///         let (polled, event) = (cq.poll_or_arm(some)?, epoll.drive().next_event(on));
    ///         let left = end.since(epoll.drive().now());
    ///         if polled > 0 || event.is_some() || left.is_zero() {
    ///             return Ok((polled, event));
    ///         }
    ///         epoll.wait_with(Some(cq.fd()), Some(left))?;
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of `epoll_wait`, `poll` or `timerfd_settime`.
    pub fn wait_with(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> io::Result<bool> {
        // If a turn has set the timer, each sleep after its expiry would end at once.
        self.timer_fd.set(Time::NEVER)?;
        let is_endless = at_most.is_none() && self.busy_poll.is_zero();
        let (end, spin_end) =
            if is_endless { (Time::NEVER, Time::ZERO) } else { (self.end(at_most), self.end(Some(self.busy_poll))) };
        loop {
            let next = self.drive.next_action();
            let sleep = match next {
                // An event that is left does not delay those of other channels, nor the deadlines.
                Next::Deliver | Next::Again => Some(Duration::ZERO),
                Next::Wait(None) if is_endless => None,
                Next::Wait(due) => self.span_until(due.map_or(end, |due| due.min(end)), spin_end, is_endless),
            };
            let woken = self.collect(also, sleep)?;
            if woken == Woken::Channels && matches!(next, Next::Wait(_)) {
                // Events precede deadlines that pass meanwhile. The next `run` handles these deadlines, and reads the
                // clock if there is a deadline.
                self.drive.note_wait();
            } else {
                self.drive.set_now(now());
            }
            let is_here = self.drive.run(BUDGET) == Next::Deliver || next == Next::Deliver;
            // Events that arrived at the end are delivered now, not in the next wait.
            let is_ready = woken == Woken::Descriptor;
            if is_here || is_ready || woken == Woken::Early || (!is_endless && self.drive.now() >= end) {
                return Ok(is_ready);
            }
        }
    }

    /// Returns the length of the next sleep; `None` for no limit. Reads the clock first in an endless wait, which has
    /// not read it before.
    fn span_until(&mut self, wake: Time, spin_end: Time, is_endless: bool) -> Option<Duration> {
        if is_endless {
            self.drive.set_now(now());
        }
        let now = self.drive.now();
        if now < spin_end {
            return Some(Duration::ZERO);
        }
        (wake != Time::NEVER).then(|| wake.since(now))
    }

    /// The time at the end of a span from now. Reads no clock for an empty or endless span.
    fn end(&mut self, span: Option<Duration>) -> Time {
        match span {
            None => Time::NEVER,
            Some(Duration::ZERO) => Time::ZERO,
            Some(span) => self.drive.within(span),
        }
    }

    /// Runs the core without waiting, for an outer loop that polls the driver's [descriptor](AsFd). Call it when the
    /// descriptor is readable. After requests or acks, call it again before the outer loop sleeps, because the call
    /// arms the descriptor for their deadlines and events. [`Next::Deliver`]: [`Drive::next_event`] may return an event.
    /// The application may take any number of events; the descriptor stays readable while there are more.
    ///
    /// An edge-triggered outer loop repeats the call until the result is [`Next::Wait`]; a level-triggered one need
    /// not.
    ///
    /// # Errors
    /// The error of `epoll_wait` or `timerfd_settime`.
    pub fn turn(&mut self) -> io::Result<Next> {
        let has_left = self.drive.core().has_work();
        let woken = self.collect(None, Some(Duration::ZERO))?;
        self.drive.set_now(now());
        let mut rest = self.drive.run(BUDGET);
        if woken != Woken::Nothing && matches!(rest, Next::Wait(_)) {
            // Unread events of these and other channels cause no new edge in an edge-triggered outer loop.
            rest = Next::Again;
        }
        let due = match rest {
            // The epoll instance itself is readable for the unread events of the channels that it has just reported.
            Next::Deliver if has_left || self.drive.core().has_events() => Time::ZERO,
            Next::Again if self.drive.has_work() => Time::ZERO,
            Next::Deliver | Next::Again => self.drive.next_timeout().unwrap_or(Time::NEVER),
            Next::Wait(due) => due.unwrap_or(Time::NEVER),
        };
        self.timer_fd.set(due)?;
        Ok(rest)
    }

    /// Waits for reports of the epoll instance, and reports the channels to the drive.
    ///
    /// epoll_wait(2) has milliseconds. A longer sleep ends at the last one before `at_most`, with no report; one of less
    /// than a millisecond is that of ppoll(2).
    fn collect(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> io::Result<Woken> {
        let mut reports = [MaybeUninit::uninit(); REPORTS];
        let (reported, is_ready) = match self.sleep(also, at_most, &mut reports) {
            Ok(slept) => slept,
            // The wait returns, so that the application can handle the signal.
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Early),
            Err(error) => return Err(error.into()),
        };
        let (mut woken, mut is_called) = (Woken::Nothing, false);
        for report in reported {
            if let Some(channel) = ChannelKey::from_bits(report.data.u64()) {
                self.drive.readable(channel);
                woken = Woken::Channels;
            } else {
                // Another report without a key is that of the timer. It needs no action, and repeats while the timer is
                // expired.
                is_called |= report.data.u64() == WAKER;
            }
        }
        Ok(match (is_ready, is_called) {
            (true, _) => Woken::Descriptor,
            (false, true) => Woken::Early,
            (false, false) => woken,
        })
    }

    /// Returns the reports, and whether the descriptor of the caller is readable.
    fn sleep<'r>(
        &self,
        also: Option<BorrowedFd<'_>>,
        at_most: Option<Duration>,
        reports: &'r mut [MaybeUninit<epoll::Event>; REPORTS],
    ) -> rustix::io::Result<(&'r [epoll::Event], bool)> {
        let epoll = self.drive.poller();
        if let Some(also) = also {
            let mut both = [PollFd::new(epoll, PollFlags::IN), PollFd::from_borrowed_fd(also, PollFlags::IN)];
            poll(&mut both, at_most.map(timespec).as_ref())?;
            let is_ready = !both[1].revents().is_empty();
            let (reported, _) = epoll::wait(epoll, reports, Some(&timespec(Duration::ZERO)))?;
            return Ok((reported, is_ready));
        }
        let whole = at_most.map(whole_millis);
        if let (Some(span), Some(Duration::ZERO)) = (at_most.filter(|span| !span.is_zero()), whole) {
            poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(&timespec(span)))?;
        }
        let (reported, _) = epoll::wait(epoll, reports, whole.map(timespec).as_ref())?;
        Ok((reported, false))
    }
}

/// The span without its last part of a millisecond, and at most the longest one of epoll_wait(2), after which the wait goes on:
/// a longer one would be of epoll_pwait2(2), which Linux before 5.11 does not have.
fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(span.as_millis().min(i32::MAX as u128) as u64)
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(span.subsec_nanos()) }
}

/// The descriptor is readable when a [turn](Epoll::turn) has work: a channel is readable, a deadline has passed, or the
/// last turn left work. A [wait](Epoll::wait) disarms the timer; the next turn arms it again.
impl<D: Pollable, O: Observer> AsFd for Epoll<D, O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.drive.poller().as_fd()
    }
}

/// As [`AsFd`], for interfaces that take a number.
impl<D: Pollable, O: Observer> AsRawFd for Epoll<D, O> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_one_of_epoll_wait() {
        assert_eq!(whole_millis(Duration::MAX), Duration::from_millis(i32::MAX as u64));
    }
}
