//! Replicas with several reactors: what passes between the machine and the connections takes time, but stays in order.

use std::time::Duration;

use super::{Choices, Event, World};
use crate::protocol::ReplicaId;

/// The maximum time between reactors, in milliseconds.
const SPREAD: u64 = 10;

impl<C: Choices> World<C> {
    /// Returns when an action of the machine of `at` reaches the connection with a peer.
    pub(super) fn acts_at(&mut self, at: ReplicaId, peer: ReplicaId) -> Duration {
        if self.size.reactors == 1 {
            return self.now;
        }
        let acts_at = self.now + Duration::from_millis(self.choices.below(SPREAD));
        let latest = &mut self.hosts[at].acted[peer];
        *latest = acts_at.max(*latest);
        *latest
    }

    /// Permits a peer to write, if the connection is the one that the machine knows.
    pub(super) fn grant(&mut self, at: ReplicaId, peer: ReplicaId, epoch: u64) {
        if self.link(at, peer).is(epoch) {
            self.hosts[at].writers[peer] = true;
        }
    }

    /// Revokes the right to write of all peers. A replica with several reactors waits until all have done it: grants
    /// under way are before that.
    pub(super) fn fence(&mut self, at: ReplicaId) {
        self.hosts[at].writers.fill(false);
        self.queue.retain(|_, event| !matches!(event, Event::Grant { at: other, .. } if *other == at));
    }

    /// The machine of `at` gets the beginning of a connection, or its end.
    pub(super) fn report(&mut self, at: ReplicaId, peer: ReplicaId, epoch: u64, connected: bool) {
        if self.size.reactors == 1 {
            return self.take_report(at, peer, epoch, connected);
        }
        let reported_at = self.now + Duration::from_millis(self.choices.below(SPREAD));
        let latest = &mut self.hosts[at].reported[peer];
        *latest = reported_at.max(*latest);
        let (reported_at, life) = (*latest, self.hosts[at].life);
        self.schedule_at(reported_at, Event::Report { at, life, peer, epoch, connected });
    }

    pub(super) fn take_report(&mut self, at: ReplicaId, peer: ReplicaId, epoch: u64, connected: bool) {
        if connected {
            self.hosts[at].known[peer] = epoch;
            self.with(at, |machine, _| machine.connected(peer));
        } else {
            self.with(at, |machine, now| machine.disconnected(now, peer));
        }
    }
}
