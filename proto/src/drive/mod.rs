//! The loop that all drivers share, with one method per request. A driver adds only the waiting.

mod attach;
mod calls;
mod observer;
mod outside;
mod poller;
mod requests;
mod step;
mod step_text;
mod turn;

use alloc::collections::VecDeque;
use core::cell::Cell;
use core::time::Duration;

use crate::device::Device;
use crate::errno::Errno;
use crate::error::{AckError, Error, Failure, FailureCause, Fault, Refused};
use crate::error_with::ErrorWith;
use crate::event::{AckToken, ConnParam};
use crate::key::{ChannelKey, IdKey, Target};
use crate::limits::Limits;
use crate::machine::{Core, Released};
use crate::state::State;
use crate::time::Time;
use crate::transport::Transport;

use outside::Outside;

pub use attach::Attaching;
pub(crate) use attach::Attempt;
pub use observer::Observer;
pub use poller::Poller;
pub use step::{Step, StepRecord};
pub use turn::Next;

/// The number of faults that are kept for [`Drive::next_fault`]. The core's counter counts all faults.
const FAULTS_KEPT: usize = 64;

/// A core, its device, the poller of its channels, and an observer of its steps.
///
/// No method blocks, with the exceptions that [`Call`](crate::Call) documents. Methods that make a request also make
/// its device call. A later report of the device is delivered as an event.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
///
/// The crates `cmid-mio`, `cmid-epoll`, `cmid-blocking` and `cmid-tokio` wait in poll(2) or the like; this program lets
/// virtual time pass instead:
///
/// ```
/// use cmid_proto::{Acks, CmEvent, Drive, Limits, PortSpace, State};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
///
/// let mut drive = Drive::new(host.device(), Limits::SINGLE);
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
/// let deadline = drive.within(Duration::from_secs(2));
/// drive.resolve_addr(id, None, "10.0.0.2:7471".parse()?, deadline)?;
/// assert_eq!(drive.core().state(id), Some(State::AddrResolving));
///
/// let event = loop {
///     fabric.advance_to(fabric.next_due().ok_or("nothing is due")?); // a driver waits here
///     drive.set_now(fabric.now());
///     drive.readable(channel);
///     let _next = drive.run(64);
///     if let Some(event) = drive.next_event(channel) {
///         break event;
///     }
/// };
/// assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
///
/// // A request that the state does not permit makes no call, and changes nothing.
/// let refused = drive.establish(id).unwrap_err();
/// assert_eq!(refused.to_string(), "refused: establish on id0 while address resolved: not in this state");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Drive<D: Device, P: Poller<D> = (), O: Observer = ()> {
    core: Core,
    outside: Outside<D, P, O>,
    /// Whether the driver has waited since the time was set: see [`Drive::note_wait`].
    is_late: Cell<bool>,
    /// The value of [`Core::activity`] when the application last ran.
    activity_seen: u64,
    faults: VecDeque<Fault>,
}

impl<D: Device, P: Poller<D>, O: Observer> Drop for Drive<D, P, O> {
    fn drop(&mut self) {
        self.record(Step::End);
    }
}

/// An id and its private channel between two drivers, for [`Drive::adopt`]. Dropping it destroys both.
#[derive(Debug)]
#[must_use = "dropping it destroys the id"]
pub struct ReleasedId<H> {
    released: Released,
    handle: H,
    number: u64,
}

impl<H> ReleasedId<H> {
    /// Returns the state of the id.
    #[must_use]
    pub fn state(&self) -> State {
        self.released.state()
    }
}

/// The error of [`Drive::adopt`], with the id if there was no room for it. `None` if the device failed; then the id is
/// destroyed.
pub type AdoptError<H> = ErrorWith<Option<ReleasedId<H>>, Error>;

impl<D: Device> Drive<D> {
    /// Creates a driver with no ids or channels on `device`, without a poller and an observer.
    #[must_use]
    pub fn new(device: D, limits: Limits) -> Self {
        Drive::with(device, (), (), limits)
    }
}

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Creates a driver with no ids or channels on `device`. It registers each channel with the poller, and reports each
    /// step to the observer.
    #[must_use]
    pub fn with(device: D, poller: P, observer: O, limits: Limits) -> Self {
        let mut drive = Drive {
            core: Core::new(limits),
            outside: Outside::new(device, poller, observer),
            is_late: Cell::new(false),
            activity_seen: 0,
            faults: VecDeque::with_capacity(FAULTS_KEPT),
        };
        drive.record(Step::Begin { limits });
        drive
    }

    /// Returns the core, for its states, counters and results of synchronous mode.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Returns the device, for its data path, addresses and descriptors.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.outside.device
    }

    /// Returns the device, for changes that do not concern the core (CQs, memory).
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.outside.device
    }

    /// Returns the poller.
    #[must_use]
    pub fn poller(&self) -> &P {
        &self.outside.poller
    }

    /// Returns the poller, so that a driver can register other descriptors.
    pub fn poller_mut(&mut self) -> &mut P {
        &mut self.outside.poller
    }

    /// Returns the observer.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.outside.observer
    }

    /// Sets the time. The next [`run`](Drive::run) handles the deadlines that have passed.
    pub fn set_now(&mut self, now: Time) {
        self.advance(now);
    }

    /// Records that the driver has waited without reading the clock. [`now`](Drive::now) then reads the clock of the
    /// poller, if it has one. For drivers that read the clock only where a time is needed.
    pub fn note_wait(&mut self) {
        self.is_late.set(true);
    }

    /// Returns the time that was last set, or that [`within`](Drive::within) has read since. After a
    /// [wait](Drive::note_wait) without a clock it reads the clock of the poller.
    #[must_use]
    pub fn now(&self) -> Time {
        if self.is_late.get() {
            self.read_clock();
        }
        self.outside.now.get()
    }

    /// Returns the deadline that is `span` from the present time. It reads the clock of the poller first; if it
    /// has none, the present time is [`now`](Drive::now).
    #[must_use]
    pub fn within(&self, span: Duration) -> Time {
        self.read_clock();
        self.outside.now.get().after(span)
    }

    fn read_clock(&self) {
        if let Some(now) = self.outside.poller.clock() {
            self.advance(now);
        }
    }

    fn advance(&self, now: Time) {
        self.is_late.set(false);
        self.outside.now.set(self.outside.now.get().max(now));
    }

    /// Acknowledges an event. A migration, destruction or leave that waited for this ack is carried out.
    ///
    /// # Errors
    /// [`AckError`] with the ack token, if the token is of another driver or its id is gone. Nothing has changed.
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        let (owner, group) = (ack_token.owner(), ack_token.group());
        let result = self.core.ack(ack_token);
        self.record(Step::Ack { owner, group, result: result.as_ref().copied().map_err(Refused::from) });
        result?;
        self.follow();
        Ok(())
    }

    /// Returns the oldest fault of the device that was not returned yet. The drive remains usable after a fault.
    pub fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
    }

    /// Resumes the channel that has failed first since the last call, and returns its fault: for a driver whose waits return
    /// it as their error. The other faults stay for [`next_fault`](Drive::next_fault).
    ///
    /// # Errors
    /// [`Fault::Channel`]; refused if the channel is closed.
    pub fn resume_failed(&mut self) -> Result<(), Error> {
        let failed = self.faults.iter().position(|fault| matches!(fault, Fault::Channel { .. }));
        let fault = failed.and_then(|at| self.faults.remove(at));
        let Some(fault @ Fault::Channel { channel, .. }) = fault else { return Ok(()) };
        self.resume_channel(channel)?;
        Err(fault.into())
    }

    /// Reports that a channel may have an event to read. It stays readable until a read returns no event.
    pub fn readable(&mut self, channel: ChannelKey) {
        self.core.handle_readable(channel);
        self.record(Step::Readable { channel });
    }

    /// Reports each channel as readable, private ones included: for a loop that polls without descriptors. The next
    /// turn then reads each once.
    pub fn readable_all(&mut self) {
        for slot in 0..self.core.channel_slots() {
            if let Some(channel) = self.core.channel_at(slot) {
                self.readable(channel);
            }
        }
    }

    /// Stops reading a channel, see [`Core::pause_channel`]. To stop new connections, pause the channel of their
    /// listener at the device, [`Core::device_channel`].
    ///
    /// # Errors
    /// Refused if there is no such channel.
    pub fn pause_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        let result = self.core.pause_channel(channel);
        self.record(Step::PauseChannel { channel, result });
        result?;
        self.park(channel);
        Ok(())
    }

    /// Resumes reading a channel, see [`Core::resume_channel`].
    ///
    /// # Errors
    /// Refused if there is no such channel.
    pub fn resume_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        let result = self.core.resume_channel(channel);
        self.record(Step::ResumeChannel { channel, result });
        Ok(result?)
    }

    /// Records in the core whether an id is on an iWARP device. Until then the core assumes InfiniBand.
    fn query_transport(&mut self, id: IdKey) {
        if self.outside.device.transport(id) == Some(Transport::Iwarp)
            && self.core.id_info(id).map(|it| it.transport) == Some(Transport::InfiniBand)
        {
            self.core.note_iwarp(id);
            self.record(Step::Iwarp { id });
        }
    }

    /// The same before a connection by a QP of the application's own, which was not attached.
    fn query_transport_of(&mut self, id: IdKey, param: ConnParam) {
        if param.qp_num != 0 {
            self.query_transport(id);
        }
    }

    #[cold]
    pub(crate) fn data_failure(
        &self,
        call: &'static str,
        id: IdKey,
        errno: Errno,
        cause: Option<FailureCause>,
    ) -> Error {
        let state = self.core.state(id).unwrap_or(State::Destroying);
        Error::Failed(Failure { call, target: Target::Id(id), state, errno, cause })
    }

    /// Reports a step to the observer.
    fn record(&mut self, step: Step<'_>) {
        self.outside.record(&self.core, step);
    }

    fn note(&mut self, fault: Fault) {
        if self.faults.len() == FAULTS_KEPT {
            self.faults.pop_front();
        }
        self.faults.push_back(fault);
    }
}
