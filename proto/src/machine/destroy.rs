//! Destruction: at once, or when the application's last ack is in. It never waits for anything else.

use super::{Core, Ended};
use crate::device::{Call, Outcome};
use crate::error::{Failure, Fault};
use crate::event::{CmEvent, EventKind};
use crate::id::{Doing, Waiting};
use crate::key::{About, IdKey};
use crate::mail::Stored;
use crate::request::Verb;
use crate::state::State;
use crate::time::Time;

impl Core {
    pub(super) fn begin_destroy(&mut self, key: IdKey, deadline: Time) {
        self.discard_mail(key);
        self.set_state(key, State::Destroying);
        let Some(id) = self.ids.get_mut(key) else { return };
        if matches!(id.doing, Doing::Quiesce { .. }) {
            self.stop_quiescing(key);
        }
        let Some(id) = self.ids.get_mut(key) else { return };
        if id.doing == Doing::Nothing && id.owed == 0 {
            self.call_destroy(key);
        } else {
            id.destroy_by_event = true;
            self.set_deadline(key, deadline);
        }
    }

    /// The last ack is in, or the call that was under way has returned.
    pub(super) fn continue_destroy(&mut self, key: IdKey) {
        if self
            .ids
            .get(key)
            .is_some_and(|id| id.state == State::Destroying && id.doing == Doing::Nothing && id.owed == 0)
        {
            self.set_deadline(key, Time::NEVER);
            self.call_destroy(key);
        }
    }

    pub(super) fn call_destroy(&mut self, key: IdKey) {
        self.call_for_id(key, Doing::Destroy, Call::Destroy { id: key });
    }

    pub(super) fn destroyed(&mut self, key: IdKey, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let Some(id) = self.ids.get(key) else { return Ok(None) };
        let (home, by_event) = (id.home, id.destroy_by_event);
        // Nobody reads the private channel of an id that is gone.
        let told = by_event && !id.sync;
        let failure = match outcome {
            Ok(()) => {
                self.forget(key);
                None
            }
            Err(errno) => {
                self.set_state(key, State::Failed);
                if let Some(id) = self.ids.get_mut(key) {
                    id.destroy_by_event = false;
                }
                Some(Failure { call: Verb::Destroy.name(), state: State::Failed, errno })
            }
        };
        if told {
            let status = failure.map_or(0, |failure| -failure.errno.0);
            self.post(Stored::made(key, EventKind::Destroyed, status), home);
        }
        if by_event {
            return Ok(None);
        }
        Ok(Some(Ended { about: About::Id(key), result: failure.map_or(Ok(()), Err) }))
    }

    /// The id is gone, or never came to be.
    pub(super) fn forget(&mut self, key: IdKey) {
        self.clear_waiting(key, Waiting::Never);
        self.discard_mail(key);
        if let Some(id) = self.ids.get_mut(key) {
            (id.deadline, id.move_deadline) = (Time::NEVER, Time::NEVER);
            let home = id.home;
            self.set_alarm(key);
            self.ids.remove(key);
            self.leave_channel(home);
        }
    }

    /// Undelivered events vanish with their id, as in the kernel (`ucma_destroy_private_ctx`); a listener's requests
    /// take their ids with them, which the device then rejects.
    fn discard_mail(&mut self, key: IdKey) {
        while let Some((letter, home)) = self.ids.get(key).and_then(|id| Some((id.mail.head()?, id.home))) {
            let stored = self.withdraw(letter, home);
            self.counters.discarded += 1;
            if stored.kind == EventKind::Cm(CmEvent::ConnectRequest) {
                self.begin_destroy(stored.id, Time::NEVER);
            }
        }
    }
}
