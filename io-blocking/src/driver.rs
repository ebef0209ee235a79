//! The driver: a [`Drive`] and its waits.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cmid_io_common::now;
use cmid_proto::datapath::Attaching;
use cmid_proto::handshake::{BoxError, Connected, Session};
use cmid_proto::{
    ChannelKey, Drive, Errno, Event, EventError, IdKey, Limits, Next, Observer, Pollable, PortSpace, RefuseReason,
    Refused, RequestKind, Service, State, Time, table,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::cancel::Canceller;
use crate::error::Error;
use crate::poller::Channels;
use crate::wait::{Ready, WaitFor, Woken};

/// Events read from the channels per turn.
const BUDGET: usize = 256;

/// cmid with poll(2). [`Connection`](crate::Connection) and [`Listener`](crate::Listener) are built on it;
/// applications may build other interfaces on it.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
///
/// An endpoint is an id in synchronous mode: a call returns when its request has ended.
///
/// ```
/// use cmid_blocking::proto::{Limits, PortSpace, State};
/// use cmid_blocking::{Blocking, Canceller, Endpoint};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// let mut driver = Blocking::new(host.device(), Limits::SINGLE, Canceller::new()?);
/// let (dst, timeout) = (Some("10.0.0.2:7471".parse()?), Duration::from_secs(2));
/// let id = driver.create_endpoint(&Endpoint { port_space: PortSpace::Udp, src: None, dst, settings: &[], timeout })?;
/// assert_eq!(driver.drive().core().state(id), Some(State::RouteResolved));
/// driver.destroy_endpoint(id, |_device, _id| Ok(()))?; // it has no QP to detach
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Blocking<D: Pollable, O: Observer = ()> {
    drive: Drive<D, Channels, O>,
    canceller: Canceller,
    /// Events that were taken while a call waited for another event. They are older than all events in the core.
    aside: VecDeque<Event>,
    /// The open request in synchronous mode after its wait was cancelled.
    open: Option<RequestKind>,
}

impl<D: Pollable> Blocking<D> {
    /// Creates a driver with no ids or channels on `device`. Its core gets the next number of the process, unless
    /// `limits` has one.
    #[must_use]
    pub fn new(device: D, limits: Limits, canceller: Canceller) -> Self {
        Blocking::observed(device, limits, canceller, ())
    }
}

impl<D: Pollable, O: Observer> Blocking<D, O> {
    /// As [`new`](Blocking::new), with an observer of each step.
    #[must_use]
    pub fn observed(device: D, limits: Limits, canceller: Canceller, observer: O) -> Self {
        let mut drive = Drive::with(device, Channels::default(), observer, limits.numbered());
        drive.set_now(now());
        Blocking { drive, canceller, aside: VecDeque::new(), open: None }
    }

    /// Replaces the canceller. After a cancel, this allows further waits.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.canceller = canceller;
    }

    /// Returns the requests, the events and the core. Its time is that of the last wait; [`Drive::within`] reads the
    /// clock.
    pub fn drive(&mut self) -> &mut Drive<D, Channels, O> {
        &mut self.drive
    }

    /// The core and the device, for calls that need no current time.
    pub(crate) fn view(&self) -> &Drive<D, Channels, O> {
        &self.drive
    }

    pub(crate) fn canceller(&self) -> &Canceller {
        &self.canceller
    }

    /// Runs pending work, then waits until an event may be taken or `at_most` elapses (`None`: no limit). May return early
    /// without an event, and does so after a signal.
    ///
    /// It returns at once while there is an event, so the application may take any number of events after each wait.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; otherwise the errno of poll(2).
    pub fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.wait_with(None, at_most).map(drop)
    }

    /// As [`wait`](Blocking::wait), but also ends when the caller's descriptor `also` is readable, such as that of a
    /// CQ. Returns true in that case.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; otherwise the errno of poll(2).
    pub fn wait_with(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> Result<bool, Errno> {
        self.wait_on(WaitFor::AnyEvent, also, at_most)
    }

    fn wait_on(
        &mut self,
        awaited: WaitFor,
        also: Option<BorrowedFd<'_>>,
        at_most: Option<Duration>,
    ) -> Result<bool, Errno> {
        let mut end = at_most.map_or(Time::NEVER, |span| self.drive.within(span));
        let activity = self.drive.core().activity();
        let mut woken = Woken::Time;
        loop {
            let next = self.drive.run(BUDGET);
            let is_here = match awaited {
                WaitFor::AnyEvent => next == Next::Deliver || self.has_aside(),
                WaitFor::EventOf(id) => self.may_have_event(id) || self.drive.core().activity() != activity,
                WaitFor::End => self.drive.core().activity() != activity,
            };
            let due = match next {
                _ if is_here && woken != Woken::Time => return Ok(false),
                // An event that is left does not delay those of other channels, nor the deadlines.
                _ if is_here => {
                    end = Time::ZERO;
                    Time::ZERO
                }
                Next::Again => Time::ZERO,
                // A readable channel had no event. A channel that cannot be read stays readable and ends each sleep at
                // once. The return lets the application handle the fault.
                Next::Deliver | Next::Wait(_) if woken == Woken::Channels => return Ok(false),
                Next::Deliver => self.drive.next_timeout().unwrap_or(Time::NEVER).min(end),
                Next::Wait(due) => due.unwrap_or(Time::NEVER).min(end),
            };
            woken = self.sleep(awaited, also, (due != Time::NEVER).then(|| due.since(now())))?;
            self.drive.set_now(now());
            if woken == Woken::Descriptor {
                return Ok(true);
            }
            if woken == Woken::Signal || self.drive.now() >= end {
                // Events that arrived at the end are delivered now, not in the next wait.
                let _over = self.drive.run(BUDGET);
                return Ok(false);
            }
        }
    }

    fn may_have_event(&self, id: IdKey) -> bool {
        let core = self.drive.core();
        core.channel(id).is_some_and(|home| core.may_have_event(home))
    }

    /// Whether an event was taken for [`next_event`](Blocking::next_event), of an id that is not in synchronous mode.
    fn has_aside(&self) -> bool {
        let core = self.drive.core();
        let home_of = |event: &Event| core.channel(event.listener.unwrap_or(event.id));
        self.aside.iter().filter_map(home_of).any(|home| !core.channel_info(home).is_some_and(|it| it.is_private))
    }

    /// Returns the next event on the channel of an id, if there is one: of the id, of a connection request to it, or
    /// of another id on the same channel.
    ///
    /// Includes the events that [`finish`](Blocking::finish) took while it waited for another event, in order.
    pub fn next_event(&mut self, id: IdKey) -> Option<Event> {
        let core = self.drive.core();
        let home = core.channel(id);
        let is_its = |event: &Event| {
            let owner = event.listener.unwrap_or(event.id);
            owner == id || event.id == id || (home.is_some() && core.channel(owner) == home)
        };
        match self.aside.iter().position(is_its) {
            Some(at) => self.aside.remove(at),
            None => self.drive.next_event(home?),
        }
    }

    /// Waits until `end` for the next event of an id, or until the caller's descriptor is readable.
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
            if self.wait_until(WaitFor::EventOf(id), also, end, &mut last, during)? {
                return Ok(Ready::Descriptor);
            }
        }
    }

    /// Waits once. `last` is set when the time has passed, so that one more wait without a sleep takes the events that
    /// came at the end.
    pub(crate) fn wait_until(
        &mut self,
        awaited: WaitFor,
        also: Option<BorrowedFd<'_>>,
        end: Time,
        last: &mut bool,
        during: &'static str,
    ) -> Result<bool, Error> {
        if *last {
            return Err(Error::TimedOut { during });
        }
        // That of a read by `next_event`.
        self.drive.resume_failed()?;
        let left = end.since(now());
        *last = left.is_zero();
        let at_most = (end != Time::NEVER).then_some(left);
        let ready = self.wait_on(awaited, also, at_most).map_err(|errno| match errno {
            Errno::ECANCELED => Error::Cancelled { during },
            errno => Error::Wait(errno),
        })?;
        self.drive.resume_failed()?;
        Ok(ready)
    }

    /// Synchronous mode: waits until the last request on an id, of kind `request_kind`, has ended. The wait has no time
    /// limit besides the deadline of the request. Returns at once if the request ends with its call.
    ///
    /// # Errors
    /// [`Error::Core`] if the id does not exist or is not in synchronous mode; [`Error::NotSynchronous`] if the
    /// request was made before the id entered synchronous mode: it ends by an ordinary event; [`Error::Ended`] with the
    /// event if it failed, [`Error::TimedOut`]; [`Error::Cancelled`], after which the request is still open;
    /// [`Error::Wait`], or [`Error::Core`] if a channel cannot be read.
    pub fn finish(&mut self, id: IdKey, request_kind: RequestKind) -> Result<(), Error> {
        let during = request_kind.name();
        let core = self.drive().core();
        let Some(state) = core.state(id) else { return Err(Refused::NoSuchId { id, request: request_kind }.into()) };
        if core.id_info(id).and_then(|it| it.sync_open).is_none() && core.sync_result(id).is_none() {
            let info = core.id_info(id);
            if !ends_by_event(request_kind, info.map(|it| it.port_space)) {
                return Ok(());
            }
            return Err(if info.is_some_and(|it| it.is_sync) {
                Error::NotSynchronous { during }
            } else {
                Refused::Request { id, request: request_kind, state, reason: RefuseReason::NotSync }.into()
            });
        }
        self.open = Some(request_kind);
        self.await_end(id, Time::NEVER, during)?;
        match self.drive.core().sync_result(id) {
            Some(Err(errno)) => Err(match self.drive.core().sync_event(id) {
                Some(event) => Error::Ended { during, error: EventError { errno, event }.into() },
                None => Error::TimedOut { during },
            }),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Synchronous mode: waits until `end` for the end of a request after its wait was cancelled. Returns the kind of
    /// the request. Until then the id accepts no other request.
    pub(crate) fn finish_cancelled(&mut self, id: IdKey, end: Time) -> Result<Option<RequestKind>, Error> {
        let open = self.open;
        if let Some(request_kind) = open {
            self.await_end(id, end, request_kind.name())?;
        }
        Ok(open)
    }

    /// Takes the undelivered events, because the awaited event may be behind them.
    fn take_aside(&mut self) {
        let core = self.drive.core();
        let homes: Vec<_> = core.ids().filter_map(|id| core.channel(id)).collect();
        for home in homes {
            self.aside.extend(std::iter::from_fn(|| self.drive.next_event(home)));
        }
    }

    /// Whether the core cannot read an id's channel because undelivered events fill it.
    fn is_full(&self, id: IdKey) -> bool {
        let core = self.drive.core();
        core.device_channel(id).is_some_and(|line| {
            !core.channel_info(line).is_some_and(|it| it.is_paused)
                && !core.channel_info(line).is_some_and(|it| it.has_failed)
                && core.wants_event(line).is_none()
        })
    }

    /// Synchronous mode: waits for each request of a connect or accept, until the connection is established.
    pub(crate) fn shake_hands<Q, E: Into<BoxError>>(
        &mut self,
        mut session: Session<Q>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<Connected<Q>, Error> {
        let (id, mut attach) = (session.id(), Some(attach));
        loop {
            let during = self.open_request(id).map_or("handshake", RequestKind::name);
            self.await_end(id, Time::NEVER, during)?;
            if session.poll(&mut self.drive, &mut attach)?.is_some() {
                return session.into_connected().ok_or(Error::Wait(Errno::ENOTCONN));
            }
            if self.open_request(id).is_none() {
                return Err(Error::NotSynchronous { during });
            }
        }
    }

    fn open_request(&self, id: IdKey) -> Option<RequestKind> {
        self.drive.core().id_info(id).and_then(|it| it.sync_open)
    }

    fn await_end(&mut self, id: IdKey, end: Time, during: &'static str) -> Result<(), Error> {
        let mut last = false;
        while self.open_request(id).is_some() {
            // A sleep does not end for an event that the core has no room for.
            if self.is_full(id) {
                self.take_aside();
            }
            self.wait_until(WaitFor::End, None, end, &mut last, during)?;
        }
        self.open = None;
        Ok(())
    }

    /// Sleeps in poll(2). Polls the private channels, and those of the application that the wait is for.
    fn sleep(
        &mut self,
        awaited: WaitFor,
        also: Option<BorrowedFd<'_>>,
        at_most: Option<Duration>,
    ) -> Result<Woken, Errno> {
        // A span that does not fit has no end.
        let timeout = at_most.and_then(|span| Timespec::try_from(span).ok());
        let device = self.drive.device();
        let core = self.drive.core();
        let is_awaited = |key: ChannelKey| match awaited {
            WaitFor::AnyEvent => true,
            WaitFor::EventOf(id) => {
                core.channel_info(key).is_some_and(|it| it.is_private) || core.channel(id) == Some(key)
            }
            WaitFor::End => core.channel_info(key).is_some_and(|it| it.is_private),
        };
        // An event that the core has no room for stays in the kernel and keeps its channel readable.
        let wanted = |&&key: &&ChannelKey| is_awaited(key) && core.wants_event(key).is_some();
        let channels = self.drive.poller().keys().iter().filter(wanted).filter_map(|&key| Some((key, device.fd(key)?)));
        let (keys, fds): (Vec<_>, Vec<_>) = channels.unzip();
        let all = [self.canceller.as_fd()].into_iter().chain(fds).chain(also);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            // The wait returns, so that the application can handle the signal.
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Signal),
            Err(error) => return Err(Errno(error.raw_os_error())),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let cancelled = ready.next() == Some(true);
        let readable: Vec<_> = keys.into_iter().zip(ready.by_ref()).filter(|&(_, ready)| ready).collect();
        let also = ready.next() == Some(true);
        let any = !readable.is_empty();
        readable.into_iter().for_each(|(channel, _)| self.drive.readable(channel));
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

/// Whether the request ends by an event; otherwise it ends with its call.
fn ends_by_event(request_kind: RequestKind, port_space: Option<PortSpace>) -> bool {
    if request_kind == RequestKind::Accept {
        // An accept of a SIDR lookup is followed by no event.
        return port_space.is_some_and(|space| space.service() == Service::Connected);
    }
    // These wait in no state of their own.
    matches!(request_kind, RequestKind::GetRequest | RequestKind::Join)
        || (request_kind != RequestKind::Destroy
            && State::ALL.into_iter().any(|state| table::operation(state) == Some(request_kind)))
}
