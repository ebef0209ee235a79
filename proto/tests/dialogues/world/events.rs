//! Events: from the device, to the application, and their acks.

use cmid_proto::{Admission, ChannelKey, CmEvent, EventKind, IdKey, RawEvent, RequestKind};

use super::{GROUPS, OpenRequest, Owed, World};
use crate::fixture::raw;
use crate::taken;

impl World {
    /// The device reports an event.
    pub(crate) fn event(&mut self, id: IdKey, kind: CmEvent, on: Option<ChannelKey>) {
        let Some(device_channel) = on.or(self.core.device_channel(id)) else { return };
        if self.core.wants_event(device_channel).is_none() {
            return;
        }
        self.number += 1;
        let number = self.number;
        let [first, second] = GROUPS.map(|addr| self.core.group_at(id, addr));
        let group = if number % 2 == 0 { first.or(second) } else { second.or(first) };
        let data = RawEvent { private_data: &[5; 9][..], group, ..raw(id, kind, number) };
        taken::compare(&self.core, device_channel, data);
        if self.both(|core| core.handle_event(device_channel, data)) == Ok(Admission::Known) {
            self.known.entry(id).or_default().waiting.push(number);
            if let (CmEvent::MulticastJoin | CmEvent::MulticastError, Some(group)) = (kind, group) {
                self.of_group.insert(number, group);
                self.answered.insert(group);
            }
        }
    }

    pub(crate) fn request(&mut self, listener: IdKey) {
        let Some(home) = self.core.device_channel(listener) else { return };
        let Some(child) = self.core.wants_event(home) else { return };
        self.number += 1;
        let number = self.number;
        let data = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, number) };
        taken::compare(&self.core, home, data);
        if let Ok(Admission::Child(_)) = self.both(|core| core.handle_event(home, data)) {
            self.known.entry(listener).or_default().waiting.push(number);
        }
    }

    /// Takes an event; checks that each arrives once and in order.
    pub(crate) fn take_event(&mut self, on: ChannelKey) -> bool {
        let (Some(event), Some(twin)) = (self.core.poll_event(on), self.twin.poll_event(on)) else { return false };
        assert_eq!(event, twin);
        let owner = event.listener.unwrap_or(event.id);
        let known = self.known.get_mut(&owner).unwrap_or_else(|| panic!("{event:?} of an id that is gone"));
        let take = |list: &mut Vec<OpenRequest>, request| {
            let at = list.iter().position(|&other| other == request);
            at.map(|at| list.remove(at)).unwrap_or_else(|| panic!("{request:?} on {owner} ended twice"));
        };
        match event.kind {
            EventKind::Migrated => take(&mut known.open, OpenRequest::Migrate),
            EventKind::Destroyed => take(&mut known.open, OpenRequest::Destroy),
            EventKind::Left => take(&mut known.open, OpenRequest::Leave),
            EventKind::DeadlinePassed(request_kind) => {
                assert!(!self.removed.contains(&event.id), "{event:?} after the removal");
                assert_eq!(event.group.is_some(), request_kind == RequestKind::Join);
                if let Some(group) = event.group {
                    assert!(self.answered.insert(group), "{event:?} for a join that was answered");
                }
            }
            EventKind::Cm(_) => loop {
                assert!(!known.waiting.is_empty(), "{event:?} was never there");
                let first = known.waiting.remove(0);
                if first == event.status {
                    break;
                }
                assert!(self.ended.contains(&first), "{event:?} came before number {first}");
            },
        }
        // From now on the id of the request belongs to the application.
        self.known.entry(event.id).or_default();
        if event.cm() == Some(CmEvent::DeviceRemoval) {
            self.removed.insert(event.id);
        }
        if let (Some(one), Some(two)) = (event.ack_token, twin.ack_token) {
            self.ack_tokens.push(Owed { ack_tokens: (one, two), owner, group: event.group });
        }
        if event.kind == EventKind::Destroyed {
            self.forget_if_gone(owner);
        }
        true
    }

    pub(crate) fn ack(&mut self, pick: u8) {
        if !self.ack_tokens.is_empty() {
            let (one, two) = self.ack_tokens.remove(usize::from(pick) % self.ack_tokens.len()).ack_tokens;
            self.core.ack(one).unwrap();
            self.twin.ack(two).unwrap();
        }
        // Tokens of destroyed ids are returned and have no effect.
        if let Some(Owed { ack_tokens: (one, two), owner, .. }) = self.void.pop() {
            let before = self.core.clone();
            assert_eq!(self.core.ack(one).unwrap_err().ack_token.owner(), owner);
            assert_eq!(self.twin.ack(two).unwrap_err().ack_token.owner(), owner);
            assert_eq!(self.core, before);
        }
    }
}
