//! The network: messages may be lost and reordered; writes arrive in order.

use std::time::Duration;

use super::link::Link;
use super::{Choices, Event, World};
use crate::protocol::{Frame, Machine, Message, ReplicaId};

impl<C: Choices> World<C> {
    pub(super) fn link(&self, a: ReplicaId, b: ReplicaId) -> &Link {
        &self.links[a.min(b) * self.size.replicas + a.max(b)]
    }

    pub(super) fn link_mut(&mut self, a: ReplicaId, b: ReplicaId) -> &mut Link {
        &mut self.links[a.min(b) * self.size.replicas + a.max(b)]
    }

    pub(super) fn send(&mut self, from: ReplicaId, to: ReplicaId, message: Message) {
        let (epoch, acts_at) = (self.hosts[from].known[to], self.acts_at(from, to));
        let written = self.link(from, to).written;
        if !self.link(from, to).is(epoch) || (self.has_faults() && self.choices.below(20) == 19) {
            return;
        }
        let spread = if self.has_faults() && self.choices.below(20) == 19 { 100 } else { 4 };
        let at = acts_at + Duration::from_millis(1 + self.choices.below(spread));
        let at = at.max(written[usize::from(from > to)]);
        self.schedule_at(at, Event::Message { from, to, epoch, message });
    }

    pub(super) fn post_write(&mut self, from: ReplicaId, to: ReplicaId, offset: usize, bytes: Vec<u8>) {
        let (epoch, acts_at) = (self.hosts[from].known[to], self.acts_at(from, to));
        let at = acts_at + Duration::from_millis(1 + self.choices.below(4));
        let link = self.link_mut(from, to);
        let written = &mut link.written[usize::from(from > to)];
        let at = at.max(*written);
        *written = at;
        if link.is(epoch) {
            self.schedule_at(at, Event::Write { from, to, epoch, offset, bytes });
        }
    }

    /// Handles the arrival of a write. The memory accepts it if the replica has granted the right; otherwise the
    /// connection ends.
    pub(super) fn write(&mut self, from: ReplicaId, to: ReplicaId, offset: usize, bytes: &[u8]) {
        if !self.hosts[to].writers[from] {
            return self.disconnect(from, to, Duration::ZERO);
        }
        let term = self.hosts[to].machine.as_ref().map(Machine::term);
        let frame = Frame::decode(bytes).expect("a leader writes frames");
        assert_eq!(Some(frame.term), term, "a deposed leader has written");
        self.hosts[to].regions[from][offset..offset + bytes.len()].copy_from_slice(bytes);
        let epoch = self.link(from, to).epoch;
        let event = Event::Completion { from, to, epoch, offset, len: bytes.len() };
        // Completions are in the order of the writes, and may be polled much later.
        let at = self.hosts[to].polled[from].max(self.now + Duration::from_millis(self.choices.below(3)));
        self.hosts[to].polled[from] = at;
        self.schedule_at(at, event);
    }

    /// Ends a connection, and permits no new one for `closed`. The end is reported to both sides later.
    pub(super) fn disconnect(&mut self, a: ReplicaId, b: ReplicaId, closed: Duration) {
        let now = self.now;
        let link = self.link_mut(a, b);
        link.closed_until = link.closed_until.max(now + closed);
        if !link.up {
            return;
        }
        link.up = false;
        let epoch = link.epoch;
        let lost = [(a, b), (b, a)].map(|(at, peer)| self.schedule(1, 40, Event::Lost { at, peer, epoch }));
        let at = self.link(a, b).closed_until.max(lost[0]).max(lost[1]) + Duration::from_millis(5);
        self.schedule_at(at, Event::Connect { a, b });
    }

    pub(super) fn connect(&mut self, a: ReplicaId, b: ReplicaId) {
        let now = self.now;
        let alive = [a, b].iter().all(|&at| self.hosts[at].machine.is_some());
        let link = self.link_mut(a, b);
        // Not needed while a replica is down: its start connects.
        if link.up || !alive {
            return;
        }
        if now < link.closed_until {
            let at = link.closed_until;
            return self.schedule_at(at, Event::Connect { a, b });
        }
        *link = Link { up: true, epoch: link.epoch + 1, ..*link };
        let epoch = link.epoch;
        for (at, peer) in [(a, b), (b, a)] {
            self.hosts[at].writers[peer] = false;
            self.report(at, peer, epoch, true);
        }
    }
}
