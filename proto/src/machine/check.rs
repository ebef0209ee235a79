//! Checks of the invariants, for tests, fuzzers and model checkers.

use super::Core;
use super::next::Due;
use crate::channel::{Channel, Place};
use crate::group::{Group, GroupPhase};
use crate::id::{Id, Rare, SyncState};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::stored::Stored;
use crate::table;
use crate::time::Time;

impl Core {
    /// Panics if an invariant does not hold. For tests; no other function panics.
    ///
    /// # Panics
    /// The message names the violated invariant.
    pub fn check(&self) {
        for (key, id) in self.ids.iter() {
            self.check_id(key, id);
            self.check_listener(key, id);
            self.check_sync(key, id);
            self.check_events(key, id);
        }
        for (key, channel) in self.channels.iter() {
            self.check_channel(key, channel);
        }
        for (key, group) in self.groups.iter() {
            self.check_group_of(key, group);
        }
        self.check_totals();
    }

    fn undelivered_events(&self) -> impl Iterator<Item = &Stored> {
        self.channels.iter().flat_map(|(_, channel)| &channel.events)
    }

    fn is_due(&self, due: Due) -> bool {
        self.due.contains(&due)
    }

    fn check_id(&self, key: IdKey, id: &Id) {
        let Some(channel) = self.channels.get(id.channel) else { panic!("{key} is on no channel") };
        let Some(device_channel) = self.channels.get(id.device_channel) else {
            panic!("{key} is reported on no channel")
        };
        assert!(!id.is_sync() || channel.private, "{key} is synchronous on a shared channel");
        assert!(!channel.closing && !device_channel.closing, "{key} is on a channel that closes");
        assert!(id.state != State::Listening || device_channel.private, "{key} listens on a shared channel");
        assert!(!id.rare.contains(Rare::WAIVED) || id.owed == 0, "{key} owes acks that were given up");
        let waits = table::operation(id.state).is_some() || id.waits_for() == Some(RequestKind::GetRequest);
        assert!(id.deadline == Time::NEVER || waits, "{key} has a deadline for nothing while {}", id.state);
        let moves = id.rare.contains(Rare::MOVES);
        assert!(moves || (id.move_deadline, id.move_to) == (Time::NEVER, None), "{key} is to migrate and does not");
        assert!(!moves || id.owed > 0 || self.is_due(Due::Migrate(key)), "{key} is to migrate and nothing holds it up");
        let is_queued = self.children.contains(&key) || self.is_due(Due::Destroy(key));
        assert!(!id.is_to_go() || is_queued, "{key} is to be destroyed and nothing holds it up");
        let answers = id.rare.contains(Rare::DISCONNECT_DUE);
        let is_answered = id.state == State::Closing && self.is_due(Due::Disconnect(key));
        assert!(!answers || is_answered, "{key} owes its peer a disconnect and nothing holds it up");
        let joins = self.memberships(key).map(|(_, group)| group.deadline).min().unwrap_or(Time::NEVER);
        assert_eq!(id.join_deadline, joins, "{key}: the deadline of its joins");
        let of_groups: u32 = self.memberships(key).map(|(_, group)| group.owed).sum();
        assert!(of_groups <= id.owed, "{key}: acks owed for its memberships");
        assert!(id.armed.at() <= id.due(), "{key} is armed for {:?} and due at {:?}", id.armed, id.due());
        let stands = id.armed.at() == Time::NEVER || self.deadlines.has(id.armed.at(), key);
        assert!(stands, "{key}: its place among the deadlines");
    }

    fn check_listener(&self, key: IdKey, id: &Id) {
        assert!(id.requests <= id.backlog, "{key} has more undelivered requests than its backlog allows");
        let device_channel = self.channels.get(id.device_channel);
        let is_known = device_channel.is_some_and(|device_channel| device_channel.listener == Some(key));
        assert!(id.state != State::Listening || is_known, "{key} listens and its channel is not a listener's");
        // The id's events must not depend on whether the application takes the listener's requests.
        let apart = is_known || device_channel.is_none_or(|channel| self.listener_on(channel).is_none());
        assert!(apart || id.may_share(), "{key} is {} on the channel of a listener", id.state);
    }

    fn check_sync(&self, key: IdKey, id: &Id) {
        let ended = self.channels.get(id.channel).is_some_and(|channel| channel.ended.is_some());
        assert!(!(id.is_sync() && ended) || id.sync_state == SyncState::Idle, "{key}: two ends of its request");
        assert!(id.is_sync() || id.sync_state == SyncState::Idle, "{key} is not synchronous");
        if let Some(request) = id.waits_for() {
            let newest = self.memberships(key).next().map(|(_, group)| group.phase);
            let under_way = table::operation(id.state) == Some(request)
                || (request == RequestKind::GetRequest && id.state == State::Listening)
                || (request == RequestKind::Join && newest == Some(GroupPhase::Joining));
            assert!(under_way, "{key} waits for {request}, which is not under way while {}", id.state);
        }
    }

    fn check_events(&self, key: IdKey, id: &Id) {
        let events = self.channels.get(id.channel).into_iter().flat_map(|channel| &channel.events);
        let of_id = |stored: &&Stored| stored.of.owner() == key;
        let (mut all, mut requests) = (0, 0);
        for stored in events.filter(of_id) {
            all += 1;
            requests += u32::from(stored.is_request());
        }
        assert_eq!((id.undelivered, u32::from(id.requests)), (all, requests), "{key}: its undelivered events");
        assert!(id.state != State::Destroying || all == 0, "{key} is destroyed and has undelivered events");
        let of_all = self.undelivered_events().filter(of_id).count();
        assert_eq!(of_all, all as usize, "{key}: an undelivered event is not where it is to be delivered");
    }

    fn check_channel(&self, key: ChannelKey, channel: &Channel) {
        let on_it = |id: &Id| id.channel == key || id.device_channel == key;
        let ids: u32 = self.ids.iter().map(|(_, id)| u32::from(on_it(id))).sum();
        assert_eq!(channel.ids, ids, "{key}: the ids on it");
        assert_eq!(channel.closing, channel.private && ids == 0, "{key}: whether it closes");
        assert_eq!(channel.closing, self.is_due(Due::Close(key)), "{key}: its closing is due");
        let counted: u32 = channel.events.iter().map(|stored| u32::from(stored.of_channel())).sum();
        assert_eq!(channel.counted, counted, "{key}: its events that count against its limit");
        let marked = if channel.private { &self.private_readable } else { &self.readable };
        let queued = marked.iter().filter(|&&queued| queued == key).count();
        assert_eq!(queued, usize::from(channel.place != Place::None), "{key}: its place among those to be read");
        let is_first = marked.front() == Some(&key);
        assert!(!is_first || channel.place == Place::ToRead, "{key} is the first one and is not to be read");
        let parked = self.parked.iter().filter(|&&parked| parked == key).count();
        assert_eq!(parked, usize::from(channel.parked), "{key}: its place among those that wait for room");
        assert!(!channel.parked || self.wants_event(key).is_none(), "{key} waits for room and there is room");
        let waits_for_resume = channel.paused || channel.has_failed();
        let waits_for_read = channel.place == Place::ToRead || channel.parked;
        assert!(!waits_for_read || !waits_for_resume, "{key} waits to be read and for its resume");
    }

    fn check_group_of(&self, key: GroupKey, group: &Group) {
        assert!(self.memberships(group.id).any(|(at, _)| at == key), "{key} has no owner");
        let Some(id) = self.ids.get(group.id) else { panic!("{key} is a membership of an id that is gone") };
        let joining = group.phase == GroupPhase::Joining;
        assert!(group.deadline == Time::NEVER || (joining && !group.leaving), "{key} has a deadline for nothing");
        assert!(!joining || !matches!(id.state, State::Removed | State::Destroying), "{key} will never be answered");
        let held_up = group.owed > 0 || self.is_due(Due::Leave(group.id, key));
        assert!(!group.leaving || held_up, "{key} is to be left and nothing holds it up");
        let undelivered = self.undelivered_events().any(|stored| stored.of.group == Some(key));
        assert!(!group.leaving || !undelivered, "{key} is to be left and has undelivered events");
    }

    fn check_totals(&self) {
        let of_device: u32 = self.undelivered_events().map(|stored| u32::from(stored.of_device())).sum();
        assert_eq!(of_device, self.undelivered, "events that count against the limit");
        let with_data = |stored: &&Stored| stored.data.is_some();
        let ended = self.channels.iter().filter_map(|(_, channel)| Some(&channel.ended.as_ref()?.1));
        let ended = ended.filter(with_data).count();
        let events = self.undelivered_events().filter(with_data).count();
        assert_eq!(self.data.len(), events + ended, "data that no event has");
        let nearest = self.ids.iter().map(|(key, id)| (id.due(), key)).min().filter(|&(due, _)| due != Time::NEVER);
        assert_eq!(self.deadlines.first(), nearest, "the nearest deadline");
        assert!(!self.deadlines.needs_compaction(), "more deadlines left behind than there may be");
        assert!(self.ids.len() <= self.limits.ids as usize + 1, "more ids than the limit");
        let mut marked = self.readable.iter().chain(&self.private_readable);
        assert!(marked.all(|&key| self.channels.contains(key)), "a channel that is gone is to be read");
        let of_application = self.channels.iter().filter(|(_, channel)| channel.is_taken_from());
        let deliverable: usize = of_application.map(|(_, channel)| channel.events.len()).sum();
        assert_eq!(deliverable, self.deliverable, "events that the application can take");
        assert!(self.parked.iter().all(|&key| self.channels.contains(key)), "a channel that is gone waits for room");
    }
}
