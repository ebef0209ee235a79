//! Checks of the invariants, for tests, fuzzers and model checkers.

use super::Core;
use crate::channel::{Channel, Phase};
use crate::cm_event::CmEvent;
use crate::group::{Group, GroupPhase};
use crate::id::{Id, PendingCall, SyncState};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;

impl Core {
    /// Panics if an invariant does not hold. For tests; no other function panics.
    ///
    /// # Panics
    /// The message names the violated invariant.
    pub fn check(&self) {
        if let Some(single) = &self.single {
            let owner = self.listener_of(single).unwrap_or(single.id);
            let Some(id) = self.ids.get(owner) else {
                panic!("the event outside the lists is of {owner}, which is gone")
            };
            // Only requests read and change the lists of such an id, and a request links the event first.
            let is_free =
                if single.kind == CmEvent::ConnectRequest { id.only_listens() } else { id.is_plain_but_for_a_call() };
            assert!(id.channel == single.on && is_free, "{owner}: it must not have an event outside the lists");
            assert!(
                matches!(id.pending_call, PendingCall::Nothing | PendingCall::Request { .. }),
                "{}: it must not have an event outside the lists",
                single.id
            );
            let channel = self.channels.get(single.on);
            assert!(
                channel.is_some_and(|channel| channel.pending.head().is_none()),
                "{}: it has an earlier event on the lists",
                single.on
            );
        }
        match self.linked() {
            Some(linked) => linked.check_linked(),
            None => self.check_linked(),
        }
    }

    fn check_linked(&self) {
        for (key, id) in self.ids.iter() {
            self.check_id(key, id);
            self.check_waiting(key, id);
        }
        for (key, channel) in self.channels.iter() {
            self.check_channel(key, channel);
        }
        for (key, group) in self.groups.iter() {
            assert!(self.memberships(group.id).any(|(at, _)| at == key), "{key} has no owner");
            self.check_group_of(key, group);
        }
        self.check_totals();
    }

    fn check_group_of(&self, key: GroupKey, group: &Group) {
        let Some(id) = self.ids.get(group.id) else { panic!("{key} is a membership of an id that is gone") };
        let joining = group.phase == GroupPhase::Joining;
        assert!(group.deadline == Time::NEVER || (joining && !group.leaving), "{key} has a deadline for nothing");
        assert!(!joining || !matches!(id.state, State::Removed | State::Destroying), "{key} will never be answered");
        let held_up = group.owed > 0 || id.pending_call != PendingCall::Nothing;
        assert!(!group.leaving || held_up, "{key} is to be left and nothing holds it up");
        let undelivered =
            self.pending.events_of_owner(&id.pending).any(|event_ref| self.pending.get(event_ref).group() == Some(key));
        assert!(!group.leaving || !undelivered, "{key} is to be left and has undelivered events");
    }

    fn check_id(&self, key: IdKey, id: &Id) {
        let Some(channel) = self.channels.get(id.channel) else { panic!("{key} is on no channel") };
        assert!(!id.sync || channel.private, "{key} is synchronous on a shared channel");
        assert_ne!(channel.phase, Phase::Closing, "{key} is on a channel that closes");
        let Some(device_channel) = self.channels.get(id.device_channel) else {
            panic!("{key} is reported on no channel")
        };
        assert_ne!(device_channel.phase, Phase::Closing, "{key} is reported on a channel that closes");
        // An event of a listener that is being destroyed is late, so the listener may still be on its old channel.
        let alone = device_channel.private
            || matches!(id.pending_call, PendingCall::OpenToListen { .. } | PendingCall::MigrateToListen { .. });
        assert!(id.state != State::Listening || alone, "{key} listens on a shared channel");
        let is_queued = self.children.iter().filter(|&&child| child == key).count();
        assert_eq!(
            is_queued,
            usize::from(id.pending_call == PendingCall::Queued),
            "{key}: its place among those to be destroyed"
        );
        assert!(
            id.pending_call != PendingCall::Queued || id.state == State::Destroying,
            "{key} is {} and to be destroyed",
            id.state
        );
        let calls = !matches!(id.pending_call, PendingCall::Nothing | PendingCall::Queued);
        assert_eq!(id.call.is_some(), calls, "{key}: its call while {:?}", id.pending_call);
        self.check_listener(key, id);
        let ends_unreported =
            !matches!(id.pending_call, PendingCall::Nothing | PendingCall::Queued | PendingCall::Destroy);
        assert!(!id.orphaned || ends_unreported, "{key}: a destroy has ended {:?}", id.pending_call);
        assert!(
            id.orphaned || id.state != State::Destroying || !ends_unreported,
            "{key} is destroyed and {:?} is to be reported",
            id.pending_call
        );
        assert!(id.stored_plain_is_correct(), "{key} is not as plain as it is taken for");
        assert!(id.call_data.is_none() || id.call.is_some(), "{key}: the private data of a call that is over");
        assert!(
            id.owed == 0 || !(id.is_moving() || id.pending_call == PendingCall::Destroy),
            "{key} is moved or destroyed while acks are owed"
        );
        assert!(!id.waived || id.owed == 0, "{key} owes acks that were given up");
        assert!(
            id.deadline == Time::NEVER
                || table::operation(id.state).is_some()
                || id.sync_state == SyncState::For(RequestKind::GetRequest),
            "{key} has a deadline for nothing while {}",
            id.state
        );
        assert!(
            id.move_deadline == Time::NEVER || id.pending_migrate.is_some(),
            "{key} has a deadline for no migration"
        );
        let is_held_up = (id.owed > 0 || id.pending_call != PendingCall::Nothing) && id.state != State::Destroying;
        assert!(id.pending_migrate.is_none() || is_held_up, "{key} is to be moved and nothing holds it up");
        assert!(
            !id.answer_due || (id.state == State::Closing && id.pending_call != PendingCall::Nothing),
            "{key} owes its peer a disconnect and nothing holds it up"
        );
        let joins = self.memberships(key).map(|(_, group)| group.deadline).min().unwrap_or(Time::NEVER);
        assert_eq!(id.join_deadline, joins, "{key}: the deadline of its joins");
        assert!(self.memberships(key).all(|(_, group)| group.id == key), "{key} has a membership of another");
        let of_groups: u32 = self.memberships(key).map(|(_, group)| group.owed).sum();
        assert!(of_groups <= id.owed, "{key}: acks owed for its memberships");
        assert!(id.armed.at() <= id.due(), "{key} is armed for {:?} and due at {:?}", id.armed, id.due());
        let stands = id.armed.at() == Time::NEVER || self.deadlines.has(id.armed.at(), key);
        assert!(stands, "{key}: its place among the deadlines");
        assert!(
            id.state != State::Destroying || id.pending.head().is_none(),
            "{key} is destroyed and has undelivered events"
        );
    }

    fn check_listener(&self, key: IdKey, id: &Id) {
        let requests = self
            .pending
            .events_of_owner(&id.pending)
            .filter(|&event_ref| self.pending.get(event_ref).is_request())
            .count();
        assert_eq!(usize::from(id.requests), requests, "{key}: its undelivered requests");
        assert!(id.requests <= id.backlog, "{key} has more undelivered requests than its backlog allows");
        let device_channel = self.channels.get(id.device_channel);
        let is_known = device_channel.is_some_and(|device_channel| device_channel.listener == Some(key));
        let begins = matches!(id.pending_call, PendingCall::OpenToListen { .. } | PendingCall::MigrateToListen { .. });
        assert!(
            id.state != State::Listening || is_known || begins,
            "{key} listens and its channel is not a listener's"
        );
        // The id's events must not depend on whether the application takes the listener's requests.
        let apart = device_channel.is_none_or(|device_channel| {
            device_channel.listener == Some(key) || self.listener_on(device_channel).is_none()
        });
        assert!(apart || id.may_share(), "{key} is {} on the channel of a listener", id.state);
    }

    fn check_waiting(&self, key: IdKey, id: &Id) {
        match id.sync_state {
            SyncState::For(request_kind) => {
                assert!(id.sync, "{key} waits although it is not synchronous");
                let newest = self.memberships(key).next().map(|(_, group)| group.phase);
                let under_way = table::operation(id.state) == Some(request_kind)
                    || (request_kind == RequestKind::GetRequest && id.state == State::Listening)
                    || (request_kind == RequestKind::Join && newest == Some(GroupPhase::Joining));
                assert!(under_way, "{key} waits for {request_kind}, which is not under way while {}", id.state);
            }
            SyncState::Posted(_, event_ref) => {
                assert!(id.is_moving(), "{key} has kept an event as if it were moving");
                assert!(
                    self.pending.events_of_owner(&id.pending).any(|at| at == event_ref),
                    "{key} has lost the event that ended its request"
                );
            }
            SyncState::Ended(_, event_ref) => {
                assert!(id.sync, "{key} has kept an event although it is not synchronous");
                assert!(
                    self.pending.events_of_owner(&id.pending).all(|at| at != event_ref),
                    "{key} would report the end of its request twice"
                );
            }
            SyncState::Never | SyncState::Without { .. } => {}
        }
        let channel = self.channels.get(id.channel).map(|channel| channel.pending);
        for event_ref in self.pending.events_of_owner(&id.pending) {
            let is_there =
                channel.is_some_and(|channel| self.pending.events_of_channel(&channel).any(|at| at == event_ref));
            assert!(is_there, "{key}: an undelivered event is not where it is to be delivered");
            assert_eq!(self.pending.get(event_ref).owner(), key, "an event on the list of another id");
        }
        assert_eq!(
            self.pending.events_of_owner(&id.pending).last(),
            id.pending.tail(),
            "{key}: its undelivered events"
        );
    }

    fn check_channel(&self, key: ChannelKey, channel: &Channel) {
        let on_it = |id: &Id| id.channel == key || id.device_channel == key;
        let coming = |id: &Id| match id.pending_call {
            PendingCall::OpenToMigrate { to, .. } | PendingCall::Migrate { to, arrived: false, .. } => to == key,
            PendingCall::OpenToListen { device_channel, .. } | PendingCall::MigrateToListen { device_channel, .. } => {
                device_channel == key
            }
            // An id that is moved to be accepted is counted on its new channel already.
            PendingCall::MigrateToAccept { .. }
            | PendingCall::Nothing
            | PendingCall::OpenToCreate
            | PendingCall::Create
            | PendingCall::Request { .. }
            | PendingCall::Migrate { arrived: true, .. }
            | PendingCall::Join { .. }
            | PendingCall::Leave { .. }
            | PendingCall::Queued
            | PendingCall::Answer
            | PendingCall::Destroy => false,
        };
        let ids: u32 = self.ids.iter().map(|(_, id)| u32::from(on_it(id)) + u32::from(coming(id))).sum();
        assert_eq!(channel.ids, ids, "{key}: the ids on it");
        assert!(!channel.private || ids > 0 || channel.phase == Phase::Closing, "{key} has no owner");
        assert!(ids > 0 || channel.phase != Phase::Broken, "{key} could not be opened and has no owner");
        assert_eq!(
            self.pending.events_of_channel(&channel.pending).last(),
            channel.pending.tail(),
            "{key}: its undelivered events"
        );
        let mut before = None;
        for event_ref in self.pending.events_of_channel(&channel.pending) {
            assert_eq!(self.pending.before(event_ref), before, "{key}: its undelivered events, from the end");
            before = Some(event_ref);
        }
        let queued = self.readable.iter().filter(|&&queued| queued == key).count();
        assert_eq!(queued, usize::from(channel.readable), "{key}: its place among those to be read");
        let counted = self
            .pending
            .events_of_channel(&channel.pending)
            .filter(|&event_ref| self.pending.get(event_ref).of_channel())
            .count();
        assert_eq!(channel.pending.counted() as usize, counted, "{key}: its events that count against its limit");
        assert!(
            !channel.parked || !channel.paused || self.wants_event(key).is_none(),
            "{key} is paused and wants events"
        );
        let parked = self.parked.iter().filter(|&&parked| parked == key).count();
        assert_eq!(parked, usize::from(channel.parked), "{key}: its place among those that wait for room");
    }

    fn check_totals(&self) {
        let kept = self.ids.iter().filter(|(_, id)| matches!(id.sync_state, SyncState::Ended(..))).count();
        let events_of_owner: usize =
            self.ids.iter().map(|(_, id)| self.pending.events_of_owner(&id.pending).count()).sum();
        let mut on_channels = 0;
        let mut of_device = 0;
        let mut delivered = 0;
        for event_ref in self.channels.iter().flat_map(|(_, channel)| self.pending.events_of_channel(&channel.pending))
        {
            let stored = self.pending.get(event_ref);
            on_channels += 1;
            of_device += u32::from(stored.of_device());
            delivered += usize::from(self.ids.contains(stored.owner()));
        }
        assert_eq!(events_of_owner, delivered, "events on the ids' lists and on the channels'");
        assert_eq!(on_channels + kept, self.pending.nodes_len(), "events stored and on lists");
        assert_eq!(of_device, self.pending.of_device(), "events that count against the limit");
        let nearest = self.ids.iter().map(|(key, id)| (id.due(), key)).min().filter(|&(due, _)| due != Time::NEVER);
        assert_eq!(self.deadlines.first(), nearest, "the nearest deadline");
        assert!(!self.deadlines.needs_compaction(), "more deadlines left behind than there may be");
        assert!(self.ids.len() <= self.limits.ids as usize + 1, "more ids than the limit");
        let queued = self.calls.len() + self.readable.len() + self.parked.len() + self.children.len();
        assert_eq!(self.queued, queued, "calls, channels and children that wait");
        assert!(self.readable.iter().all(|&key| self.channels.contains(key)), "a channel that is gone is to be read");
        assert!(self.parked.iter().all(|&key| self.channels.contains(key)), "a channel that is gone waits for room");
        let calls = self.ids.iter().filter(|(_, id)| id.call_data.is_some()).count();
        let private_data = calls + self.pending.events_with_private_data();
        assert_eq!(self.pending.private_data_len(), private_data, "private data that nothing refers to");
    }
}
