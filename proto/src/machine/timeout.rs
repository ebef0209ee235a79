//! Deadlines that pass.

use super::Core;
use crate::errno::Errno;
use crate::event::EventKind;
use crate::id::{Mourner, Waiting};
use crate::key::IdKey;
use crate::request::Verb;
use crate::state::State;
use crate::stored::Stored;
use crate::table::{self, Fact, Tell};
use crate::time::Time;

impl Core {
    /// Ends every request whose deadline is not after `now`. What the device says of them later is late.
    #[inline]
    pub fn handle_timeout(&mut self, now: Time) {
        if self.alarms.first().is_some_and(|(due, _)| due <= now) {
            self.end_overdue(now);
        }
    }

    #[inline(never)]
    fn end_overdue(&mut self, now: Time) {
        while let Some((due, key)) = self.alarms.first()
            && due <= now
        {
            let Some(id) = self.ids.get(key) else { return };
            if id.move_deadline == due {
                self.stop_quiescing(key);
                self.tell_migrated(key, Err(Errno::ETIMEDOUT));
            } else if id.join_deadline == due {
                self.expire_joins(key, now);
            } else {
                self.expire(key);
            }
        }
    }

    pub(super) fn set_deadline(&mut self, key: IdKey, deadline: Time) {
        if let Some(id) = self.ids.get_mut(key)
            && id.deadline != deadline
        {
            id.deadline = deadline;
            self.set_alarm(key);
        }
    }

    /// Brings the nearest deadline in line with those of an id.
    pub(super) fn set_alarm(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_untouched(key) else { return };
        let due = id.due();
        self.alarms.arm(&mut id.armed, due, key);
        if self.alarms.is_stale(id.armed, due, key) {
            self.find_nearest(key);
        }
        self.sweep_if_littered();
    }

    /// The short path of [`set_deadline`](Core::set_deadline), for an id that has no other deadlines: a plain one.
    #[inline(always)]
    pub(super) fn set_deadline_short(&mut self, key: IdKey, due: Time) {
        let Some(id) = self.ids.get_untouched(key) else { return };
        id.deadline = due;
        if due < id.armed.at() {
            self.alarms.arm(&mut id.armed, due, key);
            self.sweep_if_littered();
        } else if self.alarms.is_stale(id.armed, due, key) {
            self.find_nearest(key);
        }
    }

    #[inline(always)]
    fn sweep_if_littered(&mut self) {
        if self.alarms.is_littered() {
            self.sweep_alarms();
        }
    }

    #[cold]
    fn sweep_alarms(&mut self) {
        let ids = &self.ids;
        self.alarms.sweep(|time, key| ids.get(key).is_some_and(|id| id.armed.at() == time));
    }

    /// The nearest entry, of this id, is not its deadline any more.
    #[inline]
    fn find_nearest(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_untouched(key)
            && id.due() == Time::NEVER
            && self.alarms.drop_only(&mut id.armed)
        {
            return;
        }
        self.drop_stale();
    }

    /// Takes away what is left behind at the top of the heap.
    #[inline(never)]
    fn drop_stale(&mut self) {
        while let Some((time, key)) = self.alarms.first() {
            match self.ids.get_untouched(key) {
                Some(id) if id.due() == time => return,
                id => self.alarms.drop_first(id.map(|id| (id.due(), &mut id.armed)).map(|(due, armed)| (armed, due))),
            }
        }
    }

    fn expire(&mut self, key: IdKey) {
        self.set_deadline(key, Time::NEVER);
        let Some(id) = self.ids.get_mut(key) else { return };
        let (state, open) = (id.state, id.waits_for());
        if open == Some(Verb::GetRequest) {
            return self.clear_waiting(key, Waiting::Without { timed_out: true });
        }
        let (Some(verb), Tell::Go(next)) = (table::operation(state), table::tell(state, Fact::Deadline)) else {
            return;
        };
        let stored = if state == State::Destroying {
            id.mourner = Mourner::Caller;
            Stored::made(key, EventKind::Destroyed, -Errno::ETIMEDOUT.0)
        } else {
            Stored::made(key, EventKind::DeadlinePassed(verb), 0)
        };
        self.set_state(key, next);
        self.tell_expired(key, stored, open);
    }

    /// Tells that a deadline has passed: by event, or as the end of the synchronous request that is `open`.
    pub(super) fn tell_expired(&mut self, key: IdKey, stored: Stored, open: Option<Verb>) {
        let Some(id) = self.ids.get(key) else { return };
        let (home, moving) = (id.home, id.is_moving());
        match open {
            Some(_) if !moving => self.clear_waiting(key, Waiting::Without { timed_out: true }),
            // It may be on its way out of synchronous mode.
            Some(verb) => {
                let letter = self.post(stored, home);
                self.clear_waiting(key, Waiting::Posted(verb, letter));
            }
            None => {
                self.post(stored, home);
            }
        }
    }
}
