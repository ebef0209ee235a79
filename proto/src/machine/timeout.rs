//! Expiry of deadlines.

use super::Core;
use crate::errno::Errno;
use crate::event::EventKind;
use crate::id::{DestroyReport, SyncState};
use crate::key::IdKey;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Stored;
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

impl Core {
    /// Ends every request with a deadline that is not after `now`. Later events of the device for these requests count
    /// as late.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.deadlines.first().is_some_and(|(due, _)| due <= now) {
            self.end_overdue(now);
        }
    }

    fn end_overdue(&mut self, now: Time) {
        while let Some((due, key)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            let Some(id) = self.ids.get(key) else { return };
            if id.move_deadline == due {
                self.stop_waiting(key);
                self.report_migrated(key, Err(Errno::ETIMEDOUT));
            } else if id.join_deadline == due {
                self.expire_joins(key, now);
            } else {
                self.expire(key);
            }
        }
    }

    pub(super) fn set_deadline(&mut self, key: IdKey, deadline: Time) {
        if let Some(id) = self.ids.get_mut(key).filter(|id| id.deadline != deadline) {
            id.deadline = deadline;
            self.arm(key);
        }
    }

    /// Updates the heap of deadlines after a change of one of an id's.
    pub(super) fn arm(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        if id.arm(key, &mut self.deadlines) {
            self.drop_stale();
        }
    }

    /// Drops stale entries of the heap of deadlines.
    pub(super) fn drop_stale(&mut self) {
        let Core { ids, deadlines, .. } = self;
        deadlines.drop_stale(|key, time| ids.get_mut(key).and_then(|id| id.armed.stands(id.due(), time)));
    }

    fn expire(&mut self, key: IdKey) {
        self.set_deadline(key, Time::NEVER);
        let Some(id) = self.ids.get_mut(key) else { return };
        let (state, open) = (id.state, id.waits_for());
        if open == Some(RequestKind::GetRequest) {
            return self.set_sync_state(key, SyncState::Over { timed_out: true });
        }
        let (Some(request_kind), EventRule::Go(next)) =
            (table::operation(state), table::event_rule(state, EventColumn::Deadline))
        else {
            return;
        };
        let stored = if state == State::Destroying {
            id.destroy_report = DestroyReport::Result;
            Stored::made(key, EventKind::Destroyed, Err(Errno::ETIMEDOUT))
        } else {
            Stored::made(key, EventKind::DeadlinePassed(request_kind), Ok(()))
        };
        self.set_state(key, next);
        self.report_expired(key, stored, open);
    }

    /// Reports that a deadline has passed: by event, or as the end of the open synchronous request.
    pub(super) fn report_expired(&mut self, key: IdKey, stored: Stored, open: Option<RequestKind>) {
        match (open, self.channel(key)) {
            (Some(_), _) => self.set_sync_state(key, SyncState::Over { timed_out: true }),
            (None, Some(channel)) => self.post(channel, stored),
            (None, None) => {}
        }
    }
}
