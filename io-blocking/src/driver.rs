//! The driver: a [`Drive`] and the waiting.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cmid_proto::{
    ChannelKey, Drive, Errno, Event, Fault, IdKey, Limits, Next, Pollable, PolledDevice, RefuseReason, Refused,
    RequestKind, State, Time, table,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::begun;
use crate::cancel::Canceller;
use crate::clock::now;
use crate::error::Error;
use crate::poller::Channels;

/// Events read off the channels in one turn.
const BUDGET: usize = 256;
/// As in the core's loop.
const FAULTS_KEPT: usize = 64;

/// cmid with poll(2): what [`Connection`](crate::Connection) and [`Listener`](crate::Listener) are made of, for those
/// who want their own face on it.
#[derive(Debug)]
pub struct Blocking<D: Pollable> {
    drive: Drive<PolledDevice<D, Channels>>,
    canceller: Canceller,
    /// Events that were in the way of a call that waited for another one; older than all that the core has.
    aside: VecDeque<Event>,
    /// The request of synchronous mode that is not awaited any more.
    open: Option<RequestKind>,
    /// What the device did wrong and no wait ended for.
    faults: VecDeque<Fault>,
}

/// What [`Connection::wait_for`](crate::Connection::wait_for) waited for.
#[derive(Debug)]
pub enum Ready {
    /// The user's own descriptor is readable.
    Descriptor,
    /// An event came.
    Event(Box<Event>),
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The user's own descriptor.
    Descriptor,
    Channels,
    Time,
    Signal,
}

impl<D: Pollable> Blocking<D> {
    /// An empty driver on a device. Its core has the next number of the process, unless the limits give one.
    #[must_use]
    pub fn new(device: D, limits: Limits, canceller: Canceller) -> Self {
        let mut drive = Drive::new(PolledDevice::new(device, Channels::default()), limits.numbered());
        drive.set_now(now());
        Blocking { drive, canceller, aside: VecDeque::new(), open: None, faults: VecDeque::new() }
    }

    /// Another canceller from now on: after one that has cancelled, what is still to be waited for can be.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.canceller = canceller;
    }

    /// The requests, the events and the core. Its time is that of the last wait; [`Drive::within`] reads the clock.
    pub fn drive(&mut self) -> &mut Drive<PolledDevice<D, Channels>> {
        &mut self.drive
    }

    /// The core, the device: what needs no time.
    pub(crate) fn view(&self) -> &Drive<PolledDevice<D, Channels>> {
        &self.drive
    }

    pub(crate) fn canceller(&self) -> &Canceller {
        &self.canceller
    }

    /// Runs the core and waits until there are events for the application, for at most `at_most`
    /// (`None`: for as long as it takes). May return early, with nothing to look at; after a signal it does.
    ///
    /// A wait reports an event once: take all events before the next wait.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; what poll(2) failed with.
    pub fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.wait_with(None, at_most).map(drop)
    }

    /// As [`wait`](Blocking::wait), and also until a descriptor of the user's own (a CQ's) is readable: then it is
    /// true.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; what poll(2) failed with.
    pub fn wait_with(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> Result<bool, Errno> {
        let end = at_most.map_or(Time::NEVER, |span| self.drive.within(span));
        let mut woken = Woken::Time;
        loop {
            let due = match self.drive.run(BUDGET) {
                Next::Deliver => return Ok(false),
                Next::Again => Time::ZERO,
                // What was readable gave nothing. If it cannot be read it will be readable again and again: the
                // application may want to know.
                Next::Wait(_) if woken == Woken::Channels => return Ok(false),
                Next::Wait(due) => due.unwrap_or(Time::NEVER).min(end),
            };
            woken = self.sleep(also, (due != Time::NEVER).then(|| due.since(now())))?;
            self.drive.set_now(now());
            if woken == Woken::Descriptor {
                return Ok(true);
            }
            if woken == Woken::Signal || self.drive.now() >= end {
                // What was there at the end is not left for the next wait.
                let _over = self.drive.run(BUDGET);
                return Ok(false);
            }
        }
    }

    /// The next thing that the device did wrong, oldest first, apart from what a wait has ended for.
    pub fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front().or_else(|| self.drive.next_fault())
    }

    /// The next event on the channel of an id, if there is one: of the id, of a listener's requests, or of another id
    /// that the channel is shared with.
    ///
    /// While [`finish`](Blocking::finish) waits for one event it may have to take others; here they come in their
    /// order.
    pub fn next_event(&mut self, id: IdKey) -> Option<Event> {
        let is_its = |event: &Event| event.id == id || event.listener == Some(id);
        match self.aside.iter().position(is_its) {
            Some(at) => self.aside.remove(at),
            None => self.drive.core().channel(id).and_then(|home| self.drive.next_event(home)),
        }
    }

    /// Waits until `end` for the next event of an id, or for a descriptor of the user's own.
    pub(crate) fn ready(
        &mut self,
        id: IdKey,
        also: Option<BorrowedFd<'_>>,
        end: Time,
        during: &'static str,
    ) -> Result<Ready, Error> {
        let mut last = false;
        loop {
            if let Some(event) = self.next_event(id) {
                return Ok(Ready::Event(Box::new(event)));
            }
            if self.wait_until(also, end, &mut last, during)? {
                return Ok(Ready::Descriptor);
            }
        }
    }

    /// Waits once. What came at the very end is looked at once more before the time is up: `last` says so.
    pub(crate) fn wait_until(
        &mut self,
        also: Option<BorrowedFd<'_>>,
        end: Time,
        last: &mut bool,
        during: &'static str,
    ) -> Result<bool, Error> {
        if *last {
            return Err(Error::TimedOut { during });
        }
        let left = end.since(now());
        *last = left.is_zero();
        let at_most = (end != Time::NEVER).then_some(left);
        let ready = self.wait_with(also, at_most).map_err(|errno| match errno {
            Errno::ECANCELED => Error::Cancelled { during },
            errno => Error::Wait(errno),
        })?;
        while let Some(fault) = self.drive.next_fault() {
            if let Fault::Channel { channel, .. } = fault {
                // The next wait tries it again.
                self.drive.resume_channel(channel).map_err(Error::Core)?;
                return Err(Error::Core(fault.into()));
            }
            if self.faults.len() == FAULTS_KEPT {
                self.faults.pop_front();
            }
            self.faults.push_back(fault);
        }
        Ok(ready)
    }

    /// Synchronous mode: waits until the request on an id that was made last, of which this is the kind, has ended. Its
    /// deadline is the request's own. A request that ends with its call has nothing to be waited for.
    ///
    /// A resolve, connect, accept, disconnect or teardown that was under way when the id came into synchronous mode is
    /// waited for too. Its end is an ordinary event: where it ended well, [`next_event`](Blocking::next_event) has it
    /// still.
    ///
    /// # Errors
    /// [`Error::Core`] for an id that is gone or not in synchronous mode; [`Error::NotSynchronous`] if the request
    /// was made before the id was in synchronous mode, and has ended or is a join; [`Error::Ended`] with the event
    /// that ended it badly, [`Error::TimedOut`]; [`Error::Cancelled`], and the request is still open;
    /// [`Error::Wait`], or [`Error::Core`] if a channel cannot be read.
    pub fn finish(&mut self, id: IdKey, request_kind: RequestKind) -> Result<(), Error> {
        let during = request_kind.name();
        let core = self.drive().core();
        let Some(state) = core.state(id) else { return Err(Refused::NoSuchId { id, request: request_kind }.into()) };
        if core.sync_open(id).is_none() && core.sync_result(id).is_none() {
            let ends_by_event = begun::ends_by_event(request_kind, core.port_space(id));
            return match (ends_by_event, core.is_sync(id)) {
                (false, _) => Ok(()),
                (true, false) => {
                    Err(Refused::Request { id, request: request_kind, state, reason: RefuseReason::NotSync }.into())
                }
                (true, true) => self.finish_begun(id, request_kind, state),
            };
        }
        self.open = Some(request_kind);
        self.await_end(id, Time::NEVER, during)?;
        match self.drive.core().sync_result(id) {
            Some(Err(errno)) => Err(match self.drive.core().sync_event(id) {
                Some(event) => Error::Ended { during, errno, event: Box::new(event) },
                None => Error::TimedOut { during },
            }),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Synchronous mode: waits until `end` for the end of a request whose wait was cancelled, and says which it was.
    /// Until then the id takes no other.
    pub(crate) fn finish_cancelled(&mut self, id: IdKey, end: Time) -> Result<Option<RequestKind>, Error> {
        let open = self.open;
        if let Some(request_kind) = open {
            self.await_end(id, end, request_kind.name())?;
        }
        Ok(open)
    }

    /// Events that nobody else takes now, and behind which the one that is waited for comes.
    fn take_aside(&mut self) {
        let ids: Vec<_> = self.drive.core().id_keys().collect();
        ids.into_iter().for_each(|id| self.take_aside_of(id));
    }

    fn take_aside_of(&mut self, id: IdKey) {
        if let Some(home) = self.drive.core().channel(id) {
            self.aside.extend(std::iter::from_fn(|| self.drive.next_event(home)));
        }
    }

    /// Whether events of an id stay in the kernel because others are untaken.
    fn is_full(&self, id: IdKey) -> bool {
        let core = self.drive.core();
        core.device_channel(id)
            .is_some_and(|line| !core.is_paused(line) && !core.has_failed(line) && core.wants_event(line).is_none())
    }

    /// Waits for the end of what was under way in this state when the id came into synchronous mode.
    fn finish_begun(&mut self, id: IdKey, request_kind: RequestKind, begun: State) -> Result<(), Error> {
        let during = request_kind.name();
        if table::operation(begun) != Some(request_kind) {
            return Err(Error::NotSynchronous { during });
        }
        // Those that are here already are older than its end.
        self.take_aside_of(id);
        let older = self.aside.len();
        let mut last = false;
        while self.drive().core().state(id) == Some(begun) {
            if self.is_full(id) {
                self.take_aside();
            }
            self.wait_until(None, Time::NEVER, &mut last, during)?;
        }
        self.take_aside_of(id);
        let is_end = |event: &Event| event.id == id && begun::is_end(event.kind, request_kind, begun);
        let Some(at) = self.aside.iter().skip(older).position(is_end).map(|at| older + at) else {
            return Err(Error::NotSynchronous { during });
        };
        let Err(errno) = self.aside[at].result_of(request_kind) else { return Ok(()) };
        Err(match self.aside.remove(at) {
            Some(event) if event.cm().is_some() => Error::Ended { during, errno, event: Box::new(event) },
            Some(_) | None => Error::TimedOut { during },
        })
    }

    fn await_end(&mut self, id: IdKey, end: Time, during: &'static str) -> Result<(), Error> {
        let mut last = false;
        while self.drive().core().sync_open(id).is_some() {
            // Before the sleep: what there is no room for wakes nobody.
            if self.is_full(id) {
                self.take_aside();
            }
            self.wait_until(None, end, &mut last, during)?;
        }
        self.open = None;
        Ok(())
    }

    fn sleep(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> Result<Woken, Errno> {
        let timeout = at_most.map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let device = self.drive.device();
        // What the core does not take stays in the kernel, where it keeps its channel readable.
        let wanted = |key: &&ChannelKey| self.drive.core().wants_event(**key).is_some();
        let channels = device.poller().keys().iter().filter(wanted).filter_map(|&key| Some((key, device.fd(key)?)));
        let (keys, fds): (Vec<_>, Vec<_>) = channels.unzip();
        let all = [self.canceller.as_fd()].into_iter().chain(fds).chain(also);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            // It is the application's business: it gets a turn.
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Signal),
            Err(error) => return Err(Errno(error.raw_os_error())),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let cancelled = ready.next() == Some(true);
        let readable: Vec<_> = keys.into_iter().zip(ready.by_ref()).filter(|&(_, ready)| ready).collect();
        let also = ready.next() == Some(true);
        let any = !readable.is_empty();
        for (channel, _) in readable {
            self.drive.readable(channel);
        }
        if cancelled {
            return Err(Errno::ECANCELED);
        }
        Ok(if also {
            Woken::Descriptor
        } else if any {
            Woken::Channels
        } else {
            Woken::Time
        })
    }
}
