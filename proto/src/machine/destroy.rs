//! Destruction: at once, or when the application's last ack is in. It never waits for anything else, and with
//! [`Request::DestroyNow`](crate::Request::DestroyNow) for nothing.

use super::{Core, Ended};
use crate::channel::Phase;
use crate::device::{Call, Outcome};
use crate::error::{Failure, Fault};
use crate::event::{CmEvent, EventKind};
use crate::id::{Doing, Mourner, Waiting};
use crate::key::{About, ChannelKey, IdKey};
use crate::request::Verb;
use crate::state::State;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Every other request of the id ends with it: nothing more is told of them, not even if this destroy gives up at its
    /// deadline.
    pub(super) fn begin_destroy(&mut self, key: IdKey, deadline: Time, mourner: Mourner) {
        self.end_all(key, mourner);
        let Some(id) = self.ids.get_mut(key) else { return };
        if id.doing == Doing::Nothing && id.owed == 0 {
            self.call_destroy(key);
        } else {
            if mourner == Mourner::Caller {
                id.mourner = Mourner::Channel;
            }
            self.set_deadline(key, deadline);
        }
    }

    /// The id is to be destroyed, and nothing of it is delivered any more.
    fn end_all(&mut self, key: IdKey, mourner: Mourner) {
        self.clear_waiting(key, Waiting::Never);
        self.discard_mail(key);
        self.set_state(key, State::Destroying);
        self.stop_quiescing(key);
        self.end_leaves(key);
        if let Some(id) = self.ids.get_mut(key) {
            id.orphaned = id.doing != Doing::Nothing;
            id.mourner = mourner;
        }
    }

    /// The same without the acks that are owed; a destroy that waits for them ends by it, and nothing more is told of that.
    pub(super) fn begin_destroy_now(&mut self, key: IdKey, deadline: Time) {
        let Some(id) = self.ids.get_mut(key) else { return };
        (id.owed, id.waived) = (0, true);
        // A deadline is the older destroy's.
        let was_waiting = id.state == State::Destroying;
        let mut at = id.groups;
        while let Some(group) = at.and_then(|group| self.groups.get_mut(group)) {
            group.owed = 0;
            at = group.next;
        }
        if was_waiting {
            self.set_deadline(key, Time::NEVER);
        }
        self.begin_destroy(key, deadline, Mourner::Caller);
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

    fn call_destroy(&mut self, key: IdKey) {
        self.call_for_id(key, Doing::Destroy, Call::Destroy { id: key });
    }

    pub(super) fn destroyed(&mut self, key: IdKey, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let Some(id) = self.ids.get(key) else { return Ok(None) };
        let (home, mourner) = (id.home, id.mourner);
        match outcome {
            Ok(()) => {
                self.forget(key);
                Ok(self.tell_gone(key, home, mourner))
            }
            // The application has no key to try again with.
            Err(errno) if mourner == Mourner::Nobody => {
                self.forget(key);
                Err(Fault::Leak { call: Verb::Destroy.name(), errno })
            }
            Err(errno) => {
                self.set_state(key, State::Failed);
                if let Some(id) = self.ids.get_mut(key) {
                    id.mourner = Mourner::Caller;
                }
                if mourner == Mourner::Channel {
                    self.post(Stored::made(key, EventKind::Destroyed, errno.as_status()), home);
                    return Ok(None);
                }
                let failure = Failure { call: Verb::Destroy.name(), state: State::Failed, errno };
                Ok(Some(Ended { about: About::Id(key), result: Err(failure) }))
            }
        }
    }

    /// Tells that an id is gone, to the one who asked.
    pub(super) fn tell_gone(&mut self, key: IdKey, home: ChannelKey, mourner: Mourner) -> Option<Ended> {
        match mourner {
            Mourner::Nobody => None,
            // Nobody reads the private channel of an id that is gone, or one that is not open.
            Mourner::Channel
                if self.channels.get(home).is_some_and(|channel| !channel.private && channel.phase == Phase::Open) =>
            {
                self.post(Stored::made(key, EventKind::Destroyed, 0), home);
                None
            }
            Mourner::Channel | Mourner::Caller => Some(Ended { about: About::Id(key), result: Ok(()) }),
        }
    }

    /// The id is gone, or never came to be.
    pub(super) fn forget(&mut self, key: IdKey) {
        self.clear_waiting(key, Waiting::Never);
        self.discard_mail(key);
        self.forget_groups(key);
        if let Some(id) = self.ids.get_mut(key) {
            (id.deadline, id.move_deadline) = (Time::NEVER, Time::NEVER);
            let (home, line) = (id.home, id.line);
            self.set_alarm(key);
            self.ids.remove(key);
            self.leave_both(home, line);
        }
    }

    /// Undelivered events vanish with their id, as in the kernel (`ucma_destroy_private_ctx`); a listener's requests
    /// take their ids with them, which the device then rejects.
    fn discard_mail(&mut self, key: IdKey) {
        let mut begun = 0;
        while let Some((letter, home)) = self.ids.get(key).and_then(|id| Some((id.mail.head()?, id.home))) {
            let stored = self.withdraw(letter, home);
            self.counters.discarded += 1;
            if stored.kind == EventKind::Cm(CmEvent::ConnectRequest)
                && self.state(stored.id).is_some_and(|state| state != State::Destroying)
            {
                self.end_all(stored.id, Mourner::Nobody);
                self.destroy_or_queue(stored.id, &mut begun);
            }
        }
    }
}
