//! The loop that all drivers share, with one method per request. A driver adds only the waiting.

mod attach;
mod requests;
mod step;
mod step_text;
mod turn;

use alloc::collections::VecDeque;
use core::cell::Cell;
use core::time::Duration;

use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::error::{AckError, Error, Failure, FailureCause, Fault, Refused};
use crate::event::AckToken;
use crate::key::{ChannelKey, IdKey, Target};
use crate::limits::Limits;
use crate::machine::{Begun, Core, Flow, Progress, Released};
use crate::request::Request;
use crate::state::State;
use crate::time::Time;
use crate::transport::Transport;

pub use attach::Attaching;
pub use step::{Step, StepRecord};
pub use turn::Next;

/// The number of faults that are kept for [`Drive::next_fault`]. The core's counter counts all faults.
const FAULTS_KEPT: usize = 64;

/// A core and its device.
///
/// No method blocks, with the exceptions that [`Call`](crate::Call) documents. Methods that make a request also make
/// its device call. A later report of the device is delivered as an event.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
#[derive(Debug)]
pub struct Drive<D: Device> {
    core: Core,
    device: D,
    now: Cell<Time>,
    /// Whether the driver has waited since the time was set: see [`Drive::note_wait`].
    is_late: Cell<bool>,
    /// The value of [`Core::activity`] when the application last ran.
    activity_seen: u64,
    faults: VecDeque<Fault>,
}

impl<D: Device> Drop for Drive<D> {
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
}

impl<H> ReleasedId<H> {
    /// Returns the state of the id.
    #[must_use]
    pub fn state(&self) -> State {
        self.released.state()
    }
}

/// The error of [`Drive::adopt`].
#[derive(Debug, thiserror::Error)]
#[error("not adopted: {error}")]
pub struct AdoptError<H> {
    /// The reason.
    pub error: Error,
    /// The id, if there was no room for it. `None` if the device failed; then the id is destroyed.
    pub released_id: Option<ReleasedId<H>>,
}

impl<D: Device> Drive<D> {
    /// Creates a driver with no ids or channels on `device`.
    #[must_use]
    pub fn new(device: D, limits: Limits) -> Self {
        let faults = VecDeque::with_capacity(FAULTS_KEPT);
        let (now, is_late) = (Cell::new(Time::ZERO), Cell::new(false));
        let mut drive = Drive { core: Core::new(limits), device, now, is_late, activity_seen: 0, faults };
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
        &self.device
    }

    /// Returns the device, for changes that do not concern the core (CQs, memory).
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Sets the time. The next [`run`](Drive::run) handles the deadlines that have passed.
    pub fn set_now(&mut self, now: Time) {
        self.advance(now);
    }

    /// Records that the driver has waited without reading the clock. [`now`](Drive::now) then reads the clock of the
    /// device, if it has one. For drivers that read the clock only where a time is needed.
    pub fn note_wait(&mut self) {
        self.is_late.set(true);
    }

    /// Returns the time that was last set, or that [`within`](Drive::within) has read since. After a
    /// [wait](Drive::note_wait) without a clock it reads the clock of the device.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        if self.is_late.get() {
            self.read_clock();
        }
        self.now.get()
    }

    /// Returns the deadline that is `span` from the present time. It reads the clock of the device first; if the device
    /// has none, the present time is [`now`](Drive::now).
    #[must_use]
    pub fn within(&self, span: Duration) -> Time {
        self.read_clock();
        self.now.get().after(span)
    }

    #[inline]
    fn read_clock(&self) {
        if let Some(now) = self.device.clock() {
            self.advance(now);
        }
    }

    #[inline]
    fn advance(&self, now: Time) {
        self.is_late.set(false);
        self.now.set(self.now.get().max(now));
    }

    /// Acknowledges an event. A migration, destruction or leave that waited for this ack is carried out.
    ///
    /// # Errors
    /// [`AckError`] with the ack token, if the token is of another driver or its id is gone. Nothing has changed.
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        let (owner, group) = (ack_token.owner(), ack_token.group());
        let result = self.core.ack(ack_token);
        self.record(Step::Ack {
            owner,
            group,
            result: result.as_ref().map_or_else(|refused| Err(refused.into()), |()| Ok(())),
        });
        result?;
        if self.core.has_next() {
            self.make_following();
        }
        Ok(())
    }

    /// Returns the oldest fault of the device that was not returned yet. The drive remains usable after a fault.
    pub fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
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
        Ok(result?)
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
        if self.device.transport(id) == Some(Transport::Iwarp)
            && self.core.id_info(id).map(|it| it.transport) == Some(Transport::InfiniBand)
        {
            self.core.note_iwarp(id);
            self.record(Step::Iwarp { id });
        }
    }

    /// Makes a request on an id, and the calls that follow.
    #[inline(never)]
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        let now = self.now.get();
        let step = D::OBSERVES.then(|| {
            let result = self.core.would_refuse(now, id, &request, deadline);
            Step::Submit { id, request, deadline, result }
        });
        self.make(step, |core| core.begin(now, id, &request, deadline))
    }

    /// Makes the calls of a request, and those that follow. `step` is what an observing device is told of the request.
    #[inline(always)]
    fn make<'r>(
        &mut self,
        step: Option<Step<'_>>,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Begun<'c, 'r>, Refused>,
    ) -> Result<Progress, Error> {
        self.make_then(step, begin, Self::make_following)
    }

    /// Makes the calls that follow from earlier steps. No request waits for them, so their faults are kept.
    fn make_following(&mut self) {
        while self.core.has_next() {
            let next = self.make_then(None, |core| core.next().ok_or(NO_CALL), |_| ());
            if let Err(Error::Fault(fault)) = next {
                self.note(fault);
            }
        }
    }

    /// Makes the calls of a request. Reports the request and each call to an observing device, with the core after each.
    /// Calls `then` after the last one.
    #[inline(always)]
    fn make_then<'r>(
        &mut self,
        mut step: Option<Step<'_>>,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Begun<'c, 'r>, Refused>,
        then: impl FnOnce(&mut Self),
    ) -> Result<Progress, Error> {
        let Drive { core, device, now, .. } = self;
        let now = now.get();
        let begun = match begin(core) {
            Ok(begun) => begun,
            Err(refused) => {
                self.made(step, None, None);
                return Err(Error::Refused(refused));
            }
        };
        if D::OBSERVES && begun.call().is_some() {
            if let Some(step) = step.take() {
                device.observe(&StepRecord { now, core: begun.core(), step });
            }
        }
        match make_one(device, now, begun) {
            (Flow::Done(Ok(progress)), last) => {
                self.made(step, last, None);
                then(self);
                Ok(progress)
            }
            (Flow::Done(Err(error)), last) => {
                self.made(step, last, fault(&error));
                then(self);
                Err(error)
            }
            (Flow::Next(next), _) => {
                let (result, last) = make_others(device, now, next);
                self.made(step, last, result.as_ref().err().and_then(fault));
                then(self);
                result
            }
        }
    }

    /// Reports the end of a request to an observing device.
    fn made(&mut self, step: Option<Step<'_>>, last: Made, fault: Option<Fault>) {
        if let Some(step) = step {
            self.record(step);
        }
        if let Some((call, outcome)) = last {
            self.record(Step::Outcome { call: &call, outcome, fault });
        }
    }

    #[cold]
    fn data_failure(&self, call: &'static str, id: IdKey, errno: Errno, cause: Option<FailureCause>) -> Error {
        let state = self.core.state(id).unwrap_or(State::Destroying);
        Error::Failed(Failure { call, target: Target::Id(id), state, errno, cause })
    }

    /// Reports a step to an observing device. Compiles to nothing for other devices.
    fn record(&mut self, step: Step<'_>) {
        if D::OBSERVES {
            self.device.observe(&StepRecord { now: self.now.get(), core: &self.core, step });
        }
    }

    fn note(&mut self, fault: Fault) {
        if self.faults.len() == FAULTS_KEPT {
            self.faults.pop_front();
        }
        self.faults.push_back(fault);
    }
}

/// No call is due. The application does not see it.
const NO_CALL: Refused = Refused::Full("calls");

fn fault(error: &Error) -> Option<Fault> {
    if let Error::Fault(fault) = *error { Some(fault) } else { None }
}

/// A call and its outcome, for an observing device.
type Made = Option<(Call, Outcome)>;

/// Makes the other calls of a request. Returns the last call, too.
#[inline(never)]
fn make_others<D: Device>(device: &mut D, now: Time, mut begun: Begun<'_, '_>) -> (Result<Progress, Error>, Made) {
    loop {
        match make_one(device, now, begun) {
            (Flow::Done(result), last) => return (result, last),
            (Flow::Next(next), _) => begun = next,
        }
    }
}

/// Makes a call. Returns it, if it is the last one of its request.
#[inline(always)]
fn make_one<'c, 'r, D: Device>(device: &mut D, now: Time, begun: Begun<'c, 'r>) -> (Flow<'c, 'r>, Made) {
    let call = begun.call();
    let Some(call) = &call else { return (begun.end(Ok(())), None) };
    let private_data = begun.private_data();
    if D::OBSERVES {
        let step = Step::Call { call, private_data };
        device.observe(&StepRecord { now, core: begun.core(), step });
    }
    let outcome = device.call(call, private_data);
    match begun.end(outcome) {
        Flow::Next(next) => {
            if D::OBSERVES {
                let step = Step::Outcome { call, outcome, fault: None };
                device.observe(&StepRecord { now, core: next.core(), step });
            }
            (Flow::Next(next), None)
        }
        done => (done, D::OBSERVES.then_some((*call, outcome))),
    }
}
