//! Expiry of deadlines.

use super::Core;
use crate::deadlines::Deadlines;
use crate::errno::Errno;
use crate::event::EventKind;
use crate::id::Id;
use crate::id::{DestroyWaiter, SyncState};
use crate::key::IdKey;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Stored;
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

impl Core {
    /// Ends every request with a deadline that is not after `now`. Later events of the device for these requests count
    /// as late.
    #[inline]
    pub fn handle_timeout(&mut self, now: Time) {
        if self.deadlines.first().is_some_and(|(due, _)| due <= now) {
            self.end_overdue(now);
        }
    }

    #[inline(never)]
    fn end_overdue(&mut self, now: Time) {
        while let Some((due, key)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            let Some(id) = self.ids.get(key) else { return };
            if id.move_deadline == due {
                self.stop_quiescing(key);
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
            self.arm_deadline(key);
        }
    }

    /// Updates the heap of deadlines for an id.
    pub(super) fn arm_deadline(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_untouched(key) else { return };
        let due = id.due();
        self.deadlines.arm(&mut id.armed, due, key);
        if self.deadlines.is_stale(id.armed, due, key) {
            self.find_nearest(key);
        }
        self.sweep_if_littered();
    }

    /// The short path of [`set_deadline`](Core::set_deadline) for a plain id, which has no other deadlines.
    #[inline(always)]
    pub(super) fn set_deadline_short(&mut self, key: IdKey, due: Time) {
        let Some(id) = self.ids.get_untouched(key) else { return };
        if change_deadline(id, key, due, &mut self.deadlines) {
            self.settle_deadlines();
        }
    }

    /// Completes a [change](change_deadline) of a deadline.
    #[inline(never)]
    pub(super) fn settle_deadlines(&mut self) {
        let is_current = |(due, key)| self.ids.get(key).is_some_and(|id| id.deadline == due);
        if !self.deadlines.first().is_some_and(is_current) || self.deadlines.needs_compaction() {
            self.settle_any();
        }
    }

    #[inline(never)]
    fn settle_any(&mut self) {
        self.drop_stale();
        self.sweep_if_littered();
    }

    #[inline(always)]
    fn sweep_if_littered(&mut self) {
        if self.deadlines.needs_compaction() {
            self.sweep_alarms();
        }
    }

    #[cold]
    fn sweep_alarms(&mut self) {
        let ids = &self.ids;
        self.deadlines.compact(|time, key| ids.get(key).is_some_and(|id| id.armed.at() == time));
    }

    /// Replaces the nearest entry, which is of this id and has become stale.
    #[inline]
    fn find_nearest(&mut self, key: IdKey) {
        let deadlines = &mut self.deadlines;
        let dropped = |id: &mut Id| id.due() == Time::NEVER && deadlines.drop_only(&mut id.armed);
        if self.ids.get_untouched(key).is_some_and(dropped) {
            return;
        }
        self.drop_stale();
    }

    /// Removes stale entries from the top of the heap.
    #[inline(never)]
    fn drop_stale(&mut self) {
        while let Some((time, key)) = self.deadlines.first() {
            match self.ids.get_untouched(key) {
                Some(id) if id.due() == time => return,
                id => {
                    self.deadlines.drop_first(id.map(|id| (id.due(), &mut id.armed)).map(|(due, armed)| (armed, due)))
                }
            }
        }
    }

    fn expire(&mut self, key: IdKey) {
        self.set_deadline(key, Time::NEVER);
        let Some(id) = self.ids.get_mut(key) else { return };
        let (state, open) = (id.state, id.waits_for());
        if open == Some(RequestKind::GetRequest) {
            return self.clear_waiting(key, SyncState::Without { timed_out: true });
        }
        let (Some(request_kind), EventRule::Go(next)) =
            (table::operation(state), table::event_rule(state, EventColumn::Deadline))
        else {
            return;
        };
        let stored = if state == State::Destroying {
            id.destroy_waiter = DestroyWaiter::Caller;
            Stored::made(key, EventKind::Destroyed, -Errno::ETIMEDOUT.0)
        } else {
            Stored::made(key, EventKind::DeadlinePassed(request_kind), 0)
        };
        self.set_state(key, next);
        self.report_expired(key, stored, open);
    }

    /// Reports that a deadline has passed: by event, or as the end of the open synchronous request.
    pub(super) fn report_expired(&mut self, key: IdKey, stored: Stored, open: Option<RequestKind>) {
        let Some(id) = self.ids.get(key) else { return };
        let (channel, moving) = (id.channel, id.is_moving());
        match open {
            Some(_) if !moving => self.clear_waiting(key, SyncState::Without { timed_out: true }),
            // The id may be leaving synchronous mode.
            Some(request_kind) => {
                let event_ref = self.post(stored, channel);
                self.clear_waiting(key, SyncState::Posted(request_kind, event_ref));
            }
            None => {
                self.post(stored, channel);
            }
        }
    }
}

/// Sets the deadline of a plain id. Returns whether [`settle_deadlines`](Core::settle_deadlines) must follow.
#[inline(always)]
pub(super) fn change_deadline(id: &mut Id, key: IdKey, due: Time, deadlines: &mut Deadlines) -> bool {
    id.deadline = due;
    if due < id.armed.at() {
        deadlines.arm(&mut id.armed, due, key);
        deadlines.needs_compaction()
    } else if deadlines.is_stale(id.armed, due, key) {
        // The nearest entry is that of this id and is removed without a look-up.
        due != Time::NEVER || !deadlines.drop_nearest(&mut id.armed)
    } else {
        false
    }
}
