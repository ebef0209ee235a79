//! Replicas with several reactors: actions and reports between the machine and the connections take time, but stay in
//! order.

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

    /// Permits a peer to write, if the connection is the one that was reported to the machine.
    pub(super) fn grant(&mut self, at: ReplicaId, peer: ReplicaId, epoch: u64) {
        if self.link(at, peer).is(epoch) {
            self.hosts[at].writers[peer] = true;
        }
    }

    /// Revokes the right of all peers to write. A replica with several reactors waits until all have done so. Grants
    /// that are under way precede the revocation.
    pub(super) fn fence(&mut self, at: ReplicaId) {
        self.hosts[at].writers.fill(false);
        self.queue.retain(|_, event| !matches!(event, Event::Grant { at: other, .. } if *other == at));
    }

    /// Reports the beginning or the end of a connection to the machine of `at`.
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
