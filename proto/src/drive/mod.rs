//! The loop that all drivers share, with one method per request. A driver adds only the waiting.

mod attach;
mod requests;
mod step;
mod step_text;
mod turn;
#[cfg(test)]
mod turn_tests;

use alloc::collections::VecDeque;
use core::cell::Cell;
use core::time::Duration;

use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::error::{AckError, Error, Failure, FailureCause, Fault, Refused};
use crate::event::{AckToken, Event};
use crate::key::{ChannelKey, IdKey, Target};
use crate::limits::Limits;
use crate::machine::{Core, Ended, MakeCall, Released};
use crate::request::Request;
use crate::state::State;
use crate::time::Time;
use crate::transport::Transport;

pub use attach::Attaching;
pub use step::{Step, StepRecord};
pub use turn::{Next, Turn};

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

/// Makes the calls of a device.
struct ByDevice<'a, D>(&'a mut D);

impl<D: Device> MakeCall for ByDevice<'_, D> {
    #[inline(always)]
    fn make(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.0.call(call, private_data)
    }
}

/// The progress of a migration, a destruction or a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The request is done.
    Done,
    /// Acks are owed, or a destruction on an iWARP device waits for the answer to a connect; an event reports the end
    /// of the request.
    WhenAcked,
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

    /// Sets the time. The next [`turn`](Drive::turn) handles the deadlines that have passed.
    pub fn set_now(&mut self, now: Time) {
        self.advance(now);
    }

    /// Records that the driver has waited without reading the clock. [`now`](Drive::now) then reads the clock of the
    /// device, if it has one. For drivers that read the clock only where a time is needed.
    #[inline(always)]
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

    /// Returns the next event of a channel.
    #[doc(alias = "rdma_get_cm_event")]
    #[inline(always)]
    pub fn next_event(&mut self, on: ChannelKey) -> Option<Event> {
        let event = self.core.poll_event(on);
        if D::OBSERVES {
            if let Some(event) = &event {
                self.record(Step::Deliver { channel: on, event });
            }
        }
        event
    }

    /// Acknowledges an event. A migration, destruction or leave that waited for this ack is carried out.
    ///
    /// # Errors
    /// [`AckError`] with the ack token, if the token is of another driver or its id is gone. Nothing has changed.
    #[doc(alias = "rdma_ack_cm_event")]
    #[inline(always)]
    pub fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        let (owner, group) = (ack_token.owner(), ack_token.group());
        let result = self.core.ack(ack_token);
        self.record(Step::Ack {
            owner,
            group,
            result: result.as_ref().map_or_else(|refused| Err(refused.into()), |()| Ok(())),
        });
        result?;
        self.make_calls();
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
        if self.device.transport(id) == Some(Transport::Iwarp) && self.core.transport(id) == Some(Transport::InfiniBand)
        {
            self.core.note_iwarp(id);
            self.record(Step::Iwarp { id });
        }
    }

    #[inline(always)]
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        if !D::OBSERVES {
            let Drive { core, device, now, .. } = self;
            let performed = core.perform_by(now.get(), id, &request, deadline, &mut ByDevice(device));
            if let Some(result) = performed {
                // The other requests make no further call.
                if result.is_err() || Core::leaves_calls(&request) {
                    self.make_calls();
                }
                return result.map(|()| Progress::Done).map_err(Error::Failed);
            }
        }
        self.request_any(id, request, deadline)
    }

    #[inline(never)]
    fn request_any(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        if !D::OBSERVES {
            let Drive { core, device, now, .. } = self;
            let performed = core.perform_sync(now.get(), id, &request, deadline, |call, data| device.call(call, data));
            if let Some(result) = performed {
                if result.is_err() || Core::leaves_calls(&request) {
                    self.make_calls();
                }
                return result.map(|()| Progress::Done).map_err(Error::Failed);
            }
        }
        self.request_in_steps(id, request, deadline)
    }

    fn request_in_steps(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        self.submit(id, request, deadline)?;
        self.finish(Target::Id(id))?;
        let waits = self.core.waits_for_acks(id, request.request_kind());
        Ok(if waits { Progress::WhenAcked } else { Progress::Done })
    }

    fn submit(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<(), Refused> {
        if !D::OBSERVES {
            // Avoids a copy of the request.
            return self.core.submit(self.now.get(), id, request, deadline);
        }
        let result = self.core.submit(self.now.get(), id, request, deadline);
        self.record(Step::Submit { id, request, deadline, result });
        result
    }

    /// Makes calls until the request on `target` has ended. If there is no call, the request has ended already, or
    /// waits for an ack.
    fn finish(&mut self, target: Target) -> Result<(), Error> {
        while let Some(ended) = self.make_call() {
            if let Some(ended) = ended.filter(|ended| ended.target == target) {
                self.make_calls();
                return ended.result.map_err(Error::Failed);
            }
        }
        Ok(())
    }

    #[inline]
    fn make_calls(&mut self) {
        while self.core.has_calls() {
            self.make_call();
        }
    }

    /// Makes one call; `None` if there is none to make. The inner value is the request that has ended with the call,
    /// if one has.
    #[inline(never)]
    fn make_call(&mut self) -> Option<Option<Ended>> {
        let (token, call) = self.core.poll_call()?;
        if D::OBSERVES {
            let step = Step::Call { call: &call, private_data: self.core.call_data(token) };
            self.device.observe(&StepRecord { now: self.now.get(), core: &self.core, step });
        }
        let outcome = self.device.call(&call, self.core.call_data(token));
        let result = self.core.handle_outcome(token, outcome);
        self.record(Step::Outcome { call: &call, outcome, fault: result.err() });
        let ended = result.unwrap_or_else(|fault| {
            self.note(fault);
            None
        });
        Some(ended)
    }

    #[cold]
    fn data_failure(&self, call: &'static str, id: IdKey, errno: Errno, cause: Option<FailureCause>) -> Error {
        let state = self.core.state(id).unwrap_or(State::Destroying);
        Error::Failed(Failure { call, target: Target::Id(id), state, errno, cause })
    }

    /// Reports a step to an observing device. Compiles to nothing for other devices.
    #[inline(always)]
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
