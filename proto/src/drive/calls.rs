//! Begins requests, and the calls that follow from earlier steps.

use super::{Drive, Observer, Poller, Step};
use crate::device::Device;
use crate::error::{Error, Refused};
use crate::key::IdKey;
use crate::machine::{Begun, Core, Progress};
use crate::request::Request;
use crate::time::Time;

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Makes a request on an id, and the calls that follow.
    pub(super) fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        // Whether a deadline has passed is asked of the clock, also after a wait that has not read it.
        let now = if deadline == Time::NEVER { self.outside.now.get() } else { self.now() };
        let Drive { core, outside, .. } = self;
        let begun = match core.begin(now, id, &request, deadline) {
            Ok(begun) => begun,
            Err(refused) => {
                outside.record(core, Step::Submit { id, request, deadline, result: Err(refused) });
                return Err(refused.into());
            }
        };
        // The step of a request without a call is told after its effect, and before the calls that follow from it.
        let is_called = begun.is_called();
        if is_called {
            outside.record(begun.core(), Step::Submit { id, request, deadline, result: Ok(()) });
        }
        let made = outside.make_calls(begun);
        if !is_called {
            outside.record(core, Step::Submit { id, request, deadline, result: Ok(()) });
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

    /// Makes the calls of a change that is no request on an id, and those that follow from it. `step` is told first.
    pub(super) fn make<K: Copy>(
        &mut self,
        begin: impl FnOnce(&mut Core) -> Result<(K, Begun<'_, 'static>), Refused>,
        step: impl FnOnce(Result<K, Refused>) -> Step<'static>,
    ) -> Result<K, Error> {
        let Drive { core, outside, .. } = self;
        let (key, begun) = match begin(core) {
            Ok(begun) => begun,
            Err(refused) => {
                outside.record(core, step(Err(refused)));
                return Err(refused.into());
            }
        };
        outside.record(begun.core(), step(Ok(key)));
        let made = outside.make_calls(begun).map(|_| key);
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
        while let Some(begun) = self.core.next() {
            let made = self.outside.make_calls(begun);
            self.note_fault(made);
        }
    }

    /// Destroys one of the ids that are destroyed after their listener. Returns false if there is none.
    pub(super) fn destroy_child(&mut self) -> bool {
        let Some(begun) = self.core.next_child() else { return false };
        if let Some(id) = begun.call().and_then(|call| call.id()) {
            self.outside.record(begun.core(), Step::Child { id });
        }
        let made = self.outside.make_calls(begun);
        self.follow();
        self.note_fault(made);
        true
    }

    fn note_fault(&mut self, made: Result<Progress, Error>) {
        if let Some(fault) = made.err().and_then(|error| error.fault()) {
            self.note(fault);
        }
    }
}
