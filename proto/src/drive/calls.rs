//! Makes the device calls of requests, and reports them to the observer.

use super::poller::Polled;
use super::{Drive, Observer, Poller, Step, StepRecord};
use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::error::{Error, Fault, Refused};
use crate::key::IdKey;
use crate::machine::{Begun, Core, Flow, Progress};
use crate::request::Request;
use crate::time::Time;

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Makes a request on an id, and the calls that follow.
    pub(super) fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<Progress, Error> {
        let now = self.now.get();
        let step = |result| Step::Submit { id, request, deadline, result };
        self.make(|core| Ok(((), core.begin(now, id, &request, deadline)?)), step).map(|((), progress)| progress)
    }

    /// Makes the calls that follow from earlier steps. No request waits for them, so their faults are kept.
    pub(super) fn follow(&mut self) {
        if self.core.has_next() {
            self.make_following();
        }
    }

    #[cold]
    fn make_following(&mut self) {
        while self.core.has_next() {
            let made = self.make_calls(|core| Ok(((), core.next().ok_or(NO_CALL)?)), |_| None);
            self.note_fault(&made);
        }
    }

    /// Destroys one of the ids that are destroyed after their listener. Returns false if there is none.
    pub(super) fn destroy_child(&mut self) -> bool {
        let child = self.core.next_child().and_then(|begun| begun.call()).and_then(|call| call.id());
        let Some(id) = child else { return false };
        let made = self.make(|core| Ok(((), core.next_child().ok_or(NO_CALL)?)), |_| Step::Child { id });
        self.note_fault(&made);
        true
    }

    fn note_fault<T>(&mut self, made: &Result<T, Error>) {
        if let Some(fault) = fault(made) {
            self.note(fault);
        }
    }

    /// Makes the calls of what `begin` begins, and those that follow from it. The observer is told the `step`.
    pub(super) fn make<'r, 's, K: Copy>(
        &mut self,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<(K, Begun<'c, 'r>), Refused>,
        step: impl FnOnce(Result<K, Refused>) -> Step<'s>,
    ) -> Result<(K, Progress), Error> {
        let made = self.make_calls(begin, |result| Some(step(result)));
        self.follow();
        made
    }

    fn make_calls<'r, 's, K: Copy>(
        &mut self,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<(K, Begun<'c, 'r>), Refused>,
        step: impl FnOnce(Result<K, Refused>) -> Option<Step<'s>>,
    ) -> Result<(K, Progress), Error> {
        let Drive { core, device, polled, observer, now, .. } = self;
        let now = now.get();
        let (key, begun) = match begin(core) {
            Ok(begun) => begun,
            Err(refused) => {
                if let Some(step) = step(Err(refused)) {
                    observer.step(&StepRecord { now, core, step });
                }
                return Err(Error::Refused(refused));
            }
        };
        let step = step(Ok(key));
        let Some(call) = begun.call() else {
            let result = match begun.end(Ok(())) {
                Flow::Done(result) => result,
                Flow::Next(next) => make_others(next, device, polled, observer, now).0,
            };
            if let Some(step) = step {
                observer.step(&StepRecord { now, core, step });
            }
            return result.map(|progress| (key, progress));
        };
        if let Some(step) = step {
            observer.step(&StepRecord { now, core: begun.core(), step });
        }
        let private_data = begun.private_data();
        observer.step(&StepRecord { now, core: begun.core(), step: Step::Call { call: &call, private_data } });
        let outcome = polled.call(device, &call, private_data);
        match begun.end(outcome) {
            Flow::Done(result) => {
                let step = Step::Outcome { call: &call, outcome, fault: fault(&result) };
                observer.step(&StepRecord { now, core, step });
                result.map(|progress| (key, progress))
            }
            Flow::Next(next) => {
                let step = Step::Outcome { call: &call, outcome, fault: None };
                observer.step(&StepRecord { now, core: next.core(), step });
                let (result, made) = make_others(next, device, polled, observer, now);
                if let Some((call, outcome)) = made {
                    let step = Step::Outcome { call: &call, outcome, fault: fault(&result) };
                    observer.step(&StepRecord { now, core, step });
                }
                result.map(|progress| (key, progress))
            }
        }
    }
}

/// A call that was made, which the observer is not told yet.
type Made = Option<(Call, Outcome)>;

/// Makes the other calls of a request, one after the other.
#[inline(never)]
fn make_others<D: Device, P: Poller<D>, O: Observer>(
    mut begun: Begun<'_, '_>,
    device: &mut D,
    polled: &mut Polled<P>,
    observer: &mut O,
    now: Time,
) -> (Result<Progress, Error>, Made) {
    let mut made: Made = None;
    loop {
        if let Some((call, outcome)) = made.take() {
            let step = Step::Outcome { call: &call, outcome, fault: None };
            observer.step(&StepRecord { now, core: begun.core(), step });
        }
        let flow = match begun.call() {
            None => begun.end(Ok(())),
            Some(call) => {
                let private_data = begun.private_data();
                observer.step(&StepRecord { now, core: begun.core(), step: Step::Call { call: &call, private_data } });
                let outcome = polled.call(device, &call, private_data);
                made = Some((call, outcome));
                begun.end(outcome)
            }
        };
        match flow {
            Flow::Done(result) => return (result, made),
            Flow::Next(next) => begun = next,
        }
    }
}

/// No call is due. The application does not see it.
const NO_CALL: Refused = Refused::Full("calls");

fn fault<T>(result: &Result<T, Error>) -> Option<Fault> {
    if let Err(Error::Fault(fault)) = *result { Some(fault) } else { None }
}
