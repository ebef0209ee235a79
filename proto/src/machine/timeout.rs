//! Deadlines that pass.

use super::Core;
use crate::errno::Errno;
use crate::event::EventKind;
use crate::id::{Mourner, Waiting};
use crate::key::IdKey;
use crate::mail::Stored;
use crate::request::Verb;
use crate::state::State;
use crate::table::{self, Fact, Tell};
use crate::time::Time;

impl Core {
    /// Ends every request whose deadline is not after `now`. What the device says of them later is late.
    pub fn handle_timeout(&mut self, now: Time) {
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
        // A destroy that gives up holds nothing up any more.
        self.resume(key);
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
