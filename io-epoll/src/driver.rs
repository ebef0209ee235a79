//! The driver: a [`Drive`] and the waiting.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cmid_proto::{ChannelKey, Drive, Errno, Limits, Next, Pollable, PolledDevice, Time};
use rustix::event::epoll;
use rustix::time::Timespec;

use crate::clock::now;
use crate::poller::{Interest, errno};
use crate::read_on::ReadOn;
use crate::timer_fd::TimerFd;

/// Events read off the channels in one turn, before others get theirs.
const BUDGET: usize = 256;

/// Descriptors reported by one `epoll_wait`.
const REPORTS: usize = 64;

/// How the driver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// What the core may hold.
    pub limits: Limits,
    /// How long [`Epoll::wait`] looks for events without sleeping before it sleeps. Zero: it sleeps at once.
    pub busy_poll: Duration,
}

/// cmid on an epoll instance of its own.
#[derive(Debug)]
pub struct Epoll<D: Pollable> {
    drive: Drive<PolledDevice<D, Interest>>,
    timer_fd: TimerFd,
    busy_poll: Duration,
    read_on: ReadOn,
}

/// What one look at the epoll instance gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Reports,
    Nothing,
    Signal,
}

impl<D: Pollable> Epoll<D> {
    /// An empty driver on a device. Its core has the next number of the process, unless the limits give one.
    ///
    /// # Errors
    /// What `epoll_create1` or `timerfd_create` failed with.
    pub fn new(device: D, config: Config) -> Result<Self, Errno> {
        let (interest, timer_fd) = (Interest::new()?, TimerFd::new()?);
        interest.add_own(timer_fd.as_fd())?;
        let Config { limits, busy_poll } = config;
        let mut drive = Drive::new(PolledDevice::new(device, interest), limits.numbered());
        drive.set_now(now());
        Ok(Epoll { drive, timer_fd, busy_poll, read_on: ReadOn::default() })
    }

    /// The requests, the events and the core. Its time is that of the last wait or turn; [`Drive::within`] reads the
    /// clock.
    pub fn drive(&mut self) -> &mut Drive<PolledDevice<D, Interest>> {
        &mut self.drive
    }

    /// Runs the core and waits until there are events for the application, for at most `at_most`
    /// (`None`: for as long as it takes). May return early, with nothing to look at; after a signal it does.
    ///
    /// A wait reports an event once: take all events before the next wait.
    ///
    /// # Errors
    /// What `epoll_wait` or `timerfd_settime` failed with.
    pub fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        // One that a turn has set would end each sleep once it has passed.
        self.timer_fd.set(Time::NEVER)?;
        if let Some(channel) = self.read_on.next()
            && self.reads_on(channel)
        {
            return Ok(());
        }
        let end = self.end(at_most);
        let spin_end = self.end(Some(self.busy_poll));
        // Whether the time is that of this wait: the clock is read once before each sleep, and once after it.
        let mut is_now = at_most.is_some();
        loop {
            let sleep = match self.drive.run(BUDGET) {
                Next::Deliver => return Ok(()),
                Next::Again => Some(Duration::ZERO),
                Next::Wait(_) if self.drive.now() < spin_end => Some(Duration::ZERO),
                Next::Wait(due) => self.span_until(due.map_or(end, |due| due.min(end)), is_now),
            };
            let woken = self.collect(sleep)?;
            self.drive.set_now(now());
            is_now = true;
            if woken == Woken::Signal || self.drive.now() >= end {
                // What was there at the end is not left for the next wait.
                let _over = self.drive.run(BUDGET);
                return Ok(());
            }
        }
    }

    /// Reads a channel that had an event a moment ago. True: the application has something to look at.
    #[inline(never)]
    fn reads_on(&mut self, channel: ChannelKey) -> bool {
        self.drive.readable(channel);
        self.drive.set_now(now());
        let has_found = self.drive.run(BUDGET) == Next::Deliver;
        self.read_on.found(has_found);
        has_found
    }

    /// How long to sleep; `None` for as long as nothing happens.
    fn span_until(&mut self, wake: Time, is_now: bool) -> Option<Duration> {
        if wake == Time::NEVER {
            return None;
        }
        if !is_now {
            self.drive.set_now(now());
        }
        Some(wake.since(self.drive.now()))
    }

    /// When a span from now is over; no clock is read for one that is empty or endless.
    #[inline]
    fn end(&mut self, span: Option<Duration>) -> Time {
        match span {
            None => Time::NEVER,
            Some(Duration::ZERO) => Time::ZERO,
            Some(span) => self.end_of(span),
        }
    }

    #[inline(never)]
    fn end_of(&mut self, span: Duration) -> Time {
        self.drive.within(span)
    }

    /// Runs the core without waiting: for a loop in which the driver's [descriptor](AsFd) is nested. To be
    /// called when the descriptor is readable, and once more after requests or acks, before the outer loop sleeps:
    /// their deadlines and events make the descriptor readable from that turn on. [`Next::Deliver`]: take all events.
    ///
    /// An edge-triggered outer loop turns until the result is [`Next::Wait`]; a level-triggered one need not.
    ///
    /// # Errors
    /// What `epoll_wait` or `timerfd_settime` failed with.
    pub fn turn(&mut self) -> Result<Next, Errno> {
        let woken = self.collect(Some(Duration::ZERO))?;
        self.drive.set_now(now());
        let mut rest = self.drive.run(BUDGET);
        if woken == Woken::Reports && matches!(rest, Next::Wait(_)) {
            // What is left on these channels, and on others, makes no new edge in an outer loop.
            rest = Next::Again;
        }
        let due = match rest {
            Next::Deliver | Next::Again if self.drive.has_work() => Time::ZERO,
            Next::Deliver | Next::Again => self.drive.next_timeout().unwrap_or(Time::NEVER),
            Next::Wait(due) => due.unwrap_or(Time::NEVER),
        };
        self.timer_fd.set(due)?;
        Ok(rest)
    }

    /// Takes reports of the epoll instance: which channels are readable.
    #[inline(always)]
    fn collect(&mut self, at_most: Option<Duration>) -> Result<Woken, Errno> {
        let timeout = at_most.map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let mut reports = [MaybeUninit::uninit(); REPORTS];
        let reported = match epoll::wait(self.drive.device().poller().as_fd(), &mut reports, timeout.as_ref()) {
            Ok((reported, _)) => reported,
            // It is the application's business: it gets a turn.
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Signal),
            Err(error) => return Err(errno(error)),
        };
        // Without a key it is the alarm, which needs no more than to have woken us, and is reported for as long as it
        // rings.
        let (mut woken, mut only) = (Woken::Nothing, None);
        for report in reported.iter() {
            let Some(channel) = ChannelKey::from_bits(report.data.u64()) else { continue };
            self.drive.readable(channel);
            only = if woken == Woken::Nothing { Some(channel) } else { None };
            woken = Woken::Reports;
        }
        self.read_on.reported(only);
        Ok(woken)
    }
}

/// Readable when a [turn](Epoll::turn) would do something: a channel is readable, a deadline has come, or the last turn
/// has left work. A [wait](Epoll::wait) switches its timer off: deadlines make it readable again after the next turn.
impl<D: Pollable> AsFd for Epoll<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.drive.device().poller().as_fd()
    }
}
