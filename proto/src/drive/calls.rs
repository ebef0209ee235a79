//! Makes the device calls of requests, and reports them to the observer.

use super::{Drive, Observer, Poller, Step};
use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::error::{Error, Fault};
use crate::key::IdKey;
use crate::machine::{Follow, Part, Progress, RequestOf};
use crate::request::Request;
use crate::time::Time;

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Makes a request on an id, and the calls that follow.
    pub(super) fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        let part = self.core.first_part(self.now.get(), RequestOf { id, request: &request, deadline });
        let result = part.as_ref().map(drop).map_err(|&refused| refused);
        // The step of a request without a call is told after its effect, and before the calls that follow from it.
        let is_uncalled = matches!(part, Ok(Part::Uncalled { .. }));
        if !is_uncalled {
            self.record(Step::Submit { id, request, deadline, result });
        }
        let made = self.make_calls(part?);
        if is_uncalled {
            self.record(Step::Submit { id, request, deadline, result });
        }
        self.follow();
        made
    }

    /// Destroys an id after an error that is told instead of that of the destroy, which is a fault.
    pub(crate) fn destroy_after_error(&mut self, id: IdKey) {
        if let Err(Error::Failed(failure)) = self.destroy(id, Time::NEVER) {
            self.note(failure.leak());
        }
    }

    /// Makes the calls of a request, and those that follow from it.
    pub(super) fn make(&mut self, part: Part<'_>) -> Result<Progress, Error> {
        let made = self.make_calls(part);
        self.follow();
        made
    }

    /// Makes the calls that follow from earlier steps. No request waits for them, so their faults are kept.
    pub(super) fn follow(&mut self) {
        if self.core.has_next() {
            self.make_following();
        }
    }

    #[cold]
    fn make_following(&mut self) {
        while let Some(part) = self.core.next_part() {
            let made = self.make_calls(part);
            self.note_fault(&made);
        }
    }

    /// Destroys one of the ids that are destroyed after their listener. Returns false if there is none.
    pub(super) fn destroy_child(&mut self) -> bool {
        let Some(id) = self.core.next_child_id() else { return false };
        self.record(Step::Child { id });
        let made = self.make(Part::Destroy { id, asked: None });
        self.note_fault(&made);
        true
    }

    fn note_fault(&mut self, made: &Result<Progress, Error>) {
        if let Some(fault) = made.as_ref().err().and_then(fault) {
            self.note(fault);
        }
    }

    /// Makes the calls of a request, one after the other.
    pub(super) fn make_calls(&mut self, mut part: Part<'_>) -> Result<Progress, Error> {
        loop {
            let call = self.core.call_of(&part);
            let private_data = part.private_data();
            let outcome = match &call {
                Some(call) => {
                    self.record(Step::Call { call, private_data });
                    self.call(call, private_data)
                }
                None => Ok(()),
            };
            match self.core.end_of(&part, outcome) {
                Ok(Follow::Next(next)) => {
                    self.record_outcome(call.as_ref(), outcome, None);
                    part = next;
                }
                Ok(Follow::Done(progress)) => {
                    self.record_outcome(call.as_ref(), outcome, None);
                    return Ok(progress);
                }
                Err(error) => {
                    self.record_outcome(call.as_ref(), outcome, fault(&error));
                    return Err(error);
                }
            }
        }
    }

    fn record_outcome(&mut self, call: Option<&Call>, outcome: Outcome, fault: Option<Fault>) {
        if let Some(call) = call {
            self.record(Step::Outcome { call, outcome, fault });
        }
    }
}

fn fault(error: &Error) -> Option<Fault> {
    if let Error::Fault(fault) = *error { Some(fault) } else { None }
}
