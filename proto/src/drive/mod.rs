//! The loop that all drivers share, and a method per request. A driver adds only the waiting.

mod attach;
mod requests;
mod step;
mod turn;
#[cfg(test)]
mod turn_tests;

use alloc::collections::VecDeque;
use core::cell::Cell;
use core::time::Duration;

use crate::device::Device;
use crate::errno::Errno;
use crate::error::{AckError, Error, Failure, Fault, Refused};
use crate::event::{AckToken, Event};
use crate::key::{ChannelKey, IdKey, Target};
use crate::limits::Limits;
use crate::machine::{Core, Ended, Released};
use crate::request::Request;
use crate::state::State;
use crate::time::Time;

pub use attach::Attaching;
pub use step::{Step, StepRecord};
pub use turn::{Next, Turn};

/// How many faults are kept for [`Drive::next_fault`]; the core's counter counts on.
const FAULTS_KEPT: usize = 64;

/// A core and its device.
///
/// Every method returns at once. Methods that make a request also make its device call; what the device reports of it
/// later comes as an event.
#[derive(Debug)]
pub struct Drive<D: Device> {
    core: Core,
    device: D,
    now: Cell<Time>,
    /// The core's news that the application was told of.
    activity_seen: u64,
    faults: VecDeque<Fault>,
}

impl<D: Device> Drop for Drive<D> {
    fn drop(&mut self) {
        self.record(Step::End);
    }
}

/// How a migration, a destruction or a leave goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It is done.
    Done,
    /// Acks are owed; an event will tell when it is done.
    WhenAcked,
}

/// An id and its private channel between two drivers. To be given to [`Drive::adopt`]; dropping it destroys both.
#[derive(Debug)]
#[must_use = "dropping it destroys the id"]
pub struct ReleasedId<H> {
    released: Released,
    handle: H,
}

impl<H> ReleasedId<H> {
    /// The state that the id is in.
    #[must_use]
    pub fn state(&self) -> State {
        self.released.state()
    }
}

/// Why an id was not taken in.
#[derive(Debug, thiserror::Error)]
#[error("not adopted: {error}")]
pub struct AdoptError<H> {
    /// What was wrong.
    pub error: Error,
    /// The id, if there was no room for it. `None`: the device failed, and the id is destroyed.
    pub released_id: Option<ReleasedId<H>>,
}

impl<D: Device> Drive<D> {
    /// Nothing on a device.
    #[must_use]
    pub fn new(device: D, limits: Limits) -> Self {
        let faults = VecDeque::with_capacity(FAULTS_KEPT);
        let mut drive = Drive { core: Core::new(limits), device, now: Cell::new(Time::ZERO), activity_seen: 0, faults };
        drive.record(Step::Begin { limits });
        drive
    }

    /// The core: states, counters, results of synchronous mode.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The device: its data path, addresses, descriptors.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, for what changes it but is no business of the core (CQs, memory).
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Sets the time. Deadlines that have passed are acted on by the next [`turn`](Drive::turn).
    pub fn set_now(&mut self, now: Time) {
        self.advance(now);
    }

    /// The time as it was set last, or as [`within`](Drive::within) has read it since.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// The deadline that is `span` from the present time. A driver that waits has a clock, and reads it here; without one the
    /// present time is [`now`](Drive::now).
    #[must_use]
    pub fn within(&self, span: Duration) -> Time {
        if let Some(now) = self.device.clock() {
            self.advance(now);
        }
        self.now.get().after(span)
    }

    fn advance(&self, now: Time) {
        self.now.set(self.now.get().max(now));
    }

    /// The next event of a channel.
    #[inline(always)]
    pub fn next_event(&mut self, on: ChannelKey) -> Option<Event> {
        let event = self.core.poll_event(on);
        if D::OBSERVES
            && let Some(event) = &event
        {
            self.record(Step::Deliver { channel: on, event });
        }
        event
    }

    /// The application is done with an event; a migration, destruction or leave that waited for it is carried out.
    ///
    /// # Errors
    /// [`AckError`] with the ack token again, if it is of another driver or its id is gone. Nothing has changed.
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

    /// The next thing that the device did wrong, oldest first; the program can go on.
    pub fn next_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
    }

    /// Says that a channel may have something to read. It stays so until a read finds nothing.
    pub fn readable(&mut self, channel: ChannelKey) {
        self.core.handle_readable(channel);
        self.record(Step::Readable { channel });
    }

    /// Stops the reading of a channel, see [`Core::pause_channel`]. To stop new connections, pause the channel of their listener at the
    /// device, [`Core::device_channel`].
    ///
    /// # Errors
    /// Refused if there is no such channel.
    pub fn pause_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        let result = self.core.pause_channel(channel);
        self.record(Step::PauseChannel { channel, result });
        Ok(result?)
    }

    /// Reads a channel again, see [`Core::resume_channel`].
    ///
    /// # Errors
    /// Refused if there is no such channel.
    pub fn resume_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        let result = self.core.resume_channel(channel);
        self.record(Step::ResumeChannel { channel, result });
        Ok(result?)
    }

    #[inline(always)]
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        if !D::OBSERVES {
            let Drive { core, device, now, .. } = self;
            let performed = core.perform(now.get(), id, &request, deadline, |call, data| device.call(call, data));
            if let Some(result) = performed {
                self.make_calls();
                return result.map(|()| Progress::Done).map_err(Error::Failed);
            }
        }
        self.request_in_steps(id, request, deadline)
    }

    #[inline(never)]
    fn request_in_steps(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        self.submit(id, request, deadline)?;
        self.finish(Target::Id(id))?;
        let waits = self.core.waits_for_acks(id, request.request_kind());
        Ok(if waits { Progress::WhenAcked } else { Progress::Done })
    }

    fn submit(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<(), Refused> {
        if !D::OBSERVES {
            // Without a copy of the request.
            return self.core.submit(self.now.get(), id, request, deadline);
        }
        let result = self.core.submit(self.now.get(), id, request, deadline);
        self.record(Step::Submit { id, request, deadline, result });
        result
    }

    /// Makes calls until the request about this has ended. Without a call it has ended already, or waits for an ack.
    fn finish(&mut self, target: Target) -> Result<(), Error> {
        while let Some(ended) = self.make_call() {
            if let Some(ended) = ended
                && ended.target == target
            {
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

    /// Makes one call; `None` if there is none to make. Inside: the request that ended by it, if one did.
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

    fn data_failure(&self, call: &'static str, id: IdKey, errno: Errno) -> Error {
        Error::Failed(Failure { call, state: self.core.state(id).unwrap_or(State::Destroying), errno })
    }

    /// Nothing at all for a device that does not listen.
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
