//! The calls of a request, and those that follow: steps 2 and 3 of the contract of `cmid_proto`.

use cmid_proto::{Begun, Call, Core, Errno, Error, Flow, Outcome, Progress, Request};

use super::account::OpenRequest;
use super::invariant::Invariant;
use super::witness::{Seen, Witness};
use super::world::{Environment, World};

/// The errno of failed calls.
const ERRNO: Errno = Errno::ENETUNREACH;

impl World {
    /// Makes the calls that follow from earlier steps.
    pub(super) fn follow(&mut self, seen: &Seen) -> Result<(), Invariant> {
        while let Some(begun) = self.core.next() {
            self.environment.make(seen, None, begun)?.map_err(|_| Invariant::Faults)?;
        }
        Ok(())
    }
}

impl Environment {
    /// Makes the calls of a request, or of what follows from earlier steps.
    pub(super) fn make(
        &mut self,
        seen: &Seen,
        asked: Option<&Request<'_>>,
        mut begun: Begun<'_, '_>,
    ) -> Result<Result<Progress, Error>, Invariant> {
        loop {
            let outcome = match begun.call() {
                Some(call) => self.call(seen, asked, &call, begun.core())?,
                None => Ok(()),
            };
            match begun.end(outcome) {
                Flow::Next(next) => begun = next,
                Flow::Done(result) => return Ok(result),
            }
        }
    }

    /// Makes one call.
    fn call(
        &mut self,
        seen: &Seen,
        asked: Option<&Request<'_>>,
        call: &Call,
        core: &Core,
    ) -> Result<Outcome, Invariant> {
        let account = call.id().and_then(|id| self.accounts.iter().find(|account| account.id == id));
        let owes = account.is_some_and(|account| account.owed > 0) && asked != Some(&Request::DestroyNow);
        if owes && matches!(call, Call::Migrate { .. } | Call::Destroy { .. }) {
            return Err(Invariant::CallsWhileAcksAreOwed);
        }
        let may_move = match asked {
            Some(request) => {
                matches!(request, Request::Migrate { .. } | Request::Accept { .. } | Request::Listen { .. })
            }
            None => account.is_some_and(|account| account.is_open(OpenRequest::Migrate)),
        };
        if matches!(call, Call::Migrate { .. }) && !may_move {
            return Err(Invariant::MovesUnasked);
        }
        // These calls must succeed: a channel that cannot be closed, or an unknown new id that cannot be destroyed,
        // leaks, and that is reported as a fault.
        let must_succeed = matches!(call, Call::CloseChannel { .. })
            || (matches!(call, Call::Destroy { .. }) && account.is_none_or(|account| !account.known));
        let has_undelivered = account.is_some_and(|account| account.undelivered() > 0);
        let fails = !must_succeed && self.is_to_fail();
        if let (&Call::Migrate { id, to, .. }, false) = (call, fails) {
            seen.note_if(self.device.unread_of(id) > 0, Witness::MovedWithUnread);
            seen.note_if(has_undelivered && core.channel(id) != Some(to), Witness::MovedWithUndelivered);
        }
        let outcome = self.device.call(call, fails.then_some(ERRNO));
        seen.note_if(outcome.is_err() && matches!(call, Call::Migrate { .. }), Witness::NotMoved);
        seen.note_if(outcome.is_err() && matches!(call, Call::Destroy { .. }), Witness::NotDestroyed);
        Ok(outcome)
    }

    /// Whether the action has this call fail.
    fn is_to_fail(&mut self) -> bool {
        let left = self.fails.take();
        self.fails = left.and_then(|left| left.checked_sub(1));
        left == Some(0)
    }
}

/// Makes the calls of a request with success.
pub(super) fn well(mut begun: Begun<'_, '_>) {
    while let Flow::Next(next) = begun.end(Ok(())) {
        begun = next;
    }
}
