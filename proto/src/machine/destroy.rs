//! Destruction: at once, or after the application's last ack. On an iWARP device a destruction also waits for the
//! answer to a connect of the id, because the kernel's call would block until that answer. A destruction waits for
//! nothing else. [`Request::DestroyNow`](crate::Request::DestroyNow) does not wait.

use super::Core;
use super::begun::{Follow, Following, Progress, Unacked, done};
use super::next::Due;
use crate::call::Outcome;
use crate::channel::Channel;
use crate::event::EventKind;
use crate::id::{DestroyReport, Facts, Rare, SyncState};
use crate::key::IdKey;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::{Stored, take_events};
use crate::time::Time;

/// The number of ids of undelivered requests that are destroyed with their listener.
const CHILDREN_AT_ONCE: usize = 4;

impl Core {
    /// Makes a destruction wait, and ends all other requests of the id.
    pub(super) fn destroy_when_acked(&mut self, key: IdKey, deadline: Time) -> Following<'static> {
        self.end_all(key, DestroyReport::Event);
        self.set_deadline(key, deadline);
        self.end_waits_if_unread(key);
        Ok(Follow::Done(Progress::WhenAcked))
    }

    /// Ends the requests of an id that is to be destroyed, and discards its undelivered events.
    pub(super) fn end_all(&mut self, key: IdKey, destroy_report: DestroyReport) {
        self.set_sync_state(key, SyncState::Idle);
        self.discard_events(key);
        self.set_state(key, State::Destroying);
        self.stop_waiting(key);
        self.end_leaves(key);
        if let Some(id) = self.ids.get_mut(key) {
            id.destroy_report = destroy_report;
        }
    }

    /// Gives up the acks that are owed for an id. This also ends an earlier destruction that waits for them, without a
    /// report.
    fn waive_acks(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        id.owed = 0;
        id.rare.insert(Rare::WAIVED);
        id.facts.remove(Facts::AWAITS_ANSWER);
        self.change_groups(key, |group| group.owed = 0);
        // An id in state `Destroying` has the deadline of the earlier destruction.
        self.set_deadline(key, Time::NEVER);
    }

    /// Continues a destruction after the last ack, or after the answer to a connect.
    pub(super) fn continue_destroy(&mut self, key: IdKey) {
        if self.is_to_be_destroyed(key) {
            self.set_deadline(key, Time::NEVER);
            self.due.push_back(Due::Destroy(key));
        } else {
            self.end_waits_if_unread(key);
        }
    }

    /// Ends the waits of an id for events if its channel has failed: none is read.
    fn end_waits_if_unread(&mut self, key: IdKey) {
        let of_device = self.ids.get(key).and_then(|id| self.channels.get(id.device_channel));
        if of_device.is_some_and(Channel::has_failed) {
            self.end_waits_of(key);
        }
    }

    pub(super) fn destroyed(&mut self, key: IdKey, asked: Option<Unacked>, outcome: Outcome) -> Following<'static> {
        if asked.is_none() {
            match self.children.front() {
                Some(child) if *child == key => drop(self.children.pop_front()),
                Some(_) | None => self.made(Due::Destroy(key)),
            }
        }
        let Some(id) = self.ids.get_mut(key) else { return done() };
        let destroy_report = if asked.is_some() { DestroyReport::Result } else { id.destroy_report };
        let channel = id.channel;
        let Err(errno) = outcome else {
            self.forget(key);
            if destroy_report == DestroyReport::Event {
                // The application takes no events from the private channel of an id that is gone.
                if self.is_private(channel) {
                    self.activity += 1;
                } else {
                    self.post(channel, Stored::made(key, EventKind::Destroyed, outcome));
                }
            }
            return done();
        };
        if asked == Some(Unacked::Waived) {
            self.waive_acks(key);
        }
        if destroy_report == DestroyReport::Nothing {
            // The application has no key to repeat the destruction.
            self.forget(key);
            return Err(self.failure(key, RequestKind::Destroy.name(), errno).leak().into());
        }
        self.end_all(key, DestroyReport::Result);
        self.set_state(key, State::Failed);
        if destroy_report == DestroyReport::Result {
            return Err(self.failure(key, RequestKind::Destroy.name(), errno).into());
        }
        self.post(channel, Stored::made(key, EventKind::Destroyed, outcome));
        done()
    }

    /// Removes an id that is destroyed, with its undelivered events and its memberships.
    pub(super) fn forget(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let is_stale = id.due() != Time::NEVER && {
            (id.deadline, id.move_deadline, id.join_deadline) = (Time::NEVER, Time::NEVER, Time::NEVER);
            id.arm(key, &mut self.deadlines)
        };
        let (channel, device_channel) = (id.channel, id.device_channel);
        let (is_sync, has_events, has_groups) = (id.is_sync(), id.undelivered > 0, id.groups.is_some());
        if is_sync {
            self.set_sync_state(key, SyncState::Idle);
        }
        if has_events {
            self.discard_events(key);
        }
        if has_groups {
            self.forget_groups(key);
        }
        if is_stale {
            self.drop_stale();
        }
        self.ids.remove(key);
        self.leave_both(channel, device_channel);
        self.unpark();
    }

    /// Discards an id's undelivered events, as the kernel does (`ucma_destroy_private_ctx`). The ids of a listener's
    /// undelivered requests are destroyed too, the first few with their listener, the others in later turns; the device
    /// then rejects the peers.
    fn discard_events(&mut self, key: IdKey) {
        let Some((on, count)) = self.ids.get(key).map(|id| (id.channel, id.undelivered)) else { return };
        let Some(channel) = self.channels.get_mut(on).filter(|_| count > 0) else { return };
        let mut events = core::mem::take(&mut channel.events);
        let first = self.children.len();
        take_events(&mut events, key, count, |stored| {
            self.taken(on, stored);
            self.discard(stored);
            self.children.extend(stored.is_request().then_some(stored.of.id));
        });
        if let Some(channel) = self.channels.get_mut(on) {
            channel.events = events;
        }
        for at in first..self.children.len() {
            let child = self.children.get(at).copied();
            let child = child.filter(|&child| self.state(child).is_some_and(|state| state != State::Destroying));
            child.into_iter().for_each(|child| self.end_all(child, DestroyReport::Nothing));
        }
        let at_once = (0..CHILDREN_AT_ONCE).map_while(|_| self.children.remove(first));
        self.due.extend(at_once.map(Due::Destroy));
    }
}
