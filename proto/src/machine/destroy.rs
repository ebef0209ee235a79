//! Destruction: at once, or after the application's last ack. On an iWARP device a destruction also waits for the
//! answer to a connect of the id, because the kernel's call would block until that answer. A destruction waits for
//! nothing else. [`Request::DestroyNow`](crate::Request::DestroyNow) does not wait.

use super::{Core, Ended};
use crate::call::{Call, Outcome};
use crate::channel::Phase;
use crate::cm_event::CmEvent;
use crate::error::Fault;
use crate::event::EventKind;
use crate::id::{DestroyWaiter, PendingCall, SyncState};
use crate::key::{ChannelKey, IdKey, Target};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Begins a destruction. It ends all other requests of the id. Their ends are not reported, even if this
    /// destruction ends at its deadline.
    pub(super) fn begin_destroy(&mut self, key: IdKey, deadline: Time, destroy_waiter: DestroyWaiter) {
        self.end_all(key, destroy_waiter);
        let Some(id) = self.ids.get_mut(key) else { return };
        if id.is_free() {
            self.call_destroy(key);
        } else {
            if destroy_waiter == DestroyWaiter::Caller {
                id.destroy_waiter = DestroyWaiter::Channel;
            }
            self.set_deadline(key, deadline);
        }
    }

    /// Ends the requests of an id that is to be destroyed, and discards its undelivered events.
    fn end_all(&mut self, key: IdKey, destroy_waiter: DestroyWaiter) {
        self.clear_waiting(key, SyncState::Never);
        self.discard_events(key);
        self.set_state(key, State::Destroying);
        self.stop_quiescing(key);
        self.end_leaves(key);
        if let Some(id) = self.ids.get_mut(key) {
            id.orphaned = id.pending_call != PendingCall::Nothing;
            id.destroy_waiter = destroy_waiter;
        }
    }

    /// As `begin_destroy`, without the acks that are owed. This also ends an earlier destruction that waits for these
    /// acks, without a report.
    pub(super) fn begin_destroy_now(&mut self, key: IdKey, deadline: Time) {
        let Some(id) = self.ids.get_mut(key) else { return };
        (id.owed, id.waived) = (0, true);
        id.on_device.note_answer();
        // An id in state `Destroying` has the deadline of the earlier destruction.
        let was_waiting = id.state == State::Destroying;
        let mut at = id.groups;
        while let Some(group) = at.and_then(|group| self.groups.get_mut(group)) {
            group.owed = 0;
            at = group.next;
        }
        if was_waiting {
            self.set_deadline(key, Time::NEVER);
        }
        self.begin_destroy(key, deadline, DestroyWaiter::Caller);
    }

    /// Continues a destruction after the last ack, after the return of the call that was under way, or after the answer
    /// to a connect.
    pub(super) fn continue_destroy(&mut self, key: IdKey) {
        if self.ids.get(key).is_some_and(|id| id.state == State::Destroying && id.is_free()) {
            self.set_deadline(key, Time::NEVER);
            self.call_destroy(key);
        }
    }

    fn call_destroy(&mut self, key: IdKey) {
        self.call_for_id(key, PendingCall::Destroy, Call::Destroy { id: key });
    }

    pub(super) fn destroyed(&mut self, key: IdKey, outcome: Outcome) -> Result<Option<Ended>, Fault> {
        let Some(id) = self.ids.get(key) else { return Ok(None) };
        let (channel, destroy_waiter) = (id.channel, id.destroy_waiter);
        match outcome {
            Ok(()) => {
                self.forget(key);
                Ok(self.report_gone(key, channel, destroy_waiter))
            }
            // The application has no key to repeat the destruction.
            Err(errno) if destroy_waiter == DestroyWaiter::None => {
                self.forget(key);
                Err(Fault::Leak { call: RequestKind::Destroy.name(), target: Target::Id(key), errno })
            }
            Err(errno) => {
                self.set_state(key, State::Failed);
                if let Some(id) = self.ids.get_mut(key) {
                    id.destroy_waiter = DestroyWaiter::Caller;
                }
                if destroy_waiter == DestroyWaiter::Channel {
                    self.post(Stored::made(key, EventKind::Destroyed, errno.as_status()), channel);
                    return Ok(None);
                }
                let failure = self.failure(key, RequestKind::Destroy, errno);
                Ok(Some(Ended { target: Target::Id(key), result: Err(failure) }))
            }
        }
    }

    /// Reports the end of a destruction as its waiter requires: by event, or as the end of a call.
    pub(super) fn report_gone(
        &mut self,
        key: IdKey,
        channel: ChannelKey,
        destroy_waiter: DestroyWaiter,
    ) -> Option<Ended> {
        match destroy_waiter {
            DestroyWaiter::None => None,
            // The application takes no events from the private channel of an id that is gone, or from a channel that is
            // not open.
            DestroyWaiter::Channel
                if self
                    .channels
                    .get(channel)
                    .is_some_and(|channel| !channel.private && channel.phase == Phase::Open) =>
            {
                self.post(Stored::made(key, EventKind::Destroyed, 0), channel);
                None
            }
            DestroyWaiter::Channel | DestroyWaiter::Caller => Some(Ended { target: Target::Id(key), result: Ok(()) }),
        }
    }

    /// Removes an id that is destroyed, or could not be created.
    pub(super) fn forget(&mut self, key: IdKey) {
        self.clear_waiting(key, SyncState::Never);
        self.discard_events(key);
        self.forget_groups(key);
        if let Some(id) = self.ids.get_mut(key) {
            (id.deadline, id.move_deadline) = (Time::NEVER, Time::NEVER);
            let (channel, device_channel) = (id.channel, id.device_channel);
            self.arm_deadline(key);
            self.ids.remove(key);
            self.leave_both(channel, device_channel);
        }
    }

    /// Discards an id's undelivered events, as the kernel does (`ucma_destroy_private_ctx`). The ids of a listener's
    /// undelivered requests are destroyed too; the device then rejects the peers.
    fn discard_events(&mut self, key: IdKey) {
        let mut begun = 0;
        while let Some((event_ref, channel)) = self.ids.get(key).and_then(|id| Some((id.pending.head()?, id.channel))) {
            let stored = self.withdraw(event_ref, channel);
            self.counters.discarded += 1;
            if stored.kind == EventKind::Cm(CmEvent::ConnectRequest)
                && self.state(stored.id).is_some_and(|state| state != State::Destroying)
            {
                self.end_all(stored.id, DestroyWaiter::None);
                self.destroy_or_queue(stored.id, &mut begun);
            }
        }
    }
}
