//! Disks, crashes and restarts.

use std::time::Duration;

use super::{Choices, Event, World};
use crate::protocol::{Machine, ReplicaId};

impl<C: Choices> World<C> {
    /// Handles the end of a disk write: the oldest batches of a replica are stored.
    pub(super) fn disk(&mut self, at: ReplicaId, life: u64) {
        let host = &mut self.hosts[at];
        if host.life != life {
            return;
        }
        let number = host.store();
        if !host.unstored.is_empty() {
            self.schedule(1, 8, Event::Disk { at, life });
        }
        if let Some(number) = number {
            self.with(at, |machine, _| machine.stored(number));
        }
    }

    /// Crashes a replica. The batch that it was storing may be on the disk; later batches are not.
    pub(super) fn crash(&mut self, at: ReplicaId) {
        let stores = self.choices.below(2) == 1;
        let host = &mut self.hosts[at];
        if host.machine.take().is_none() {
            return;
        }
        host.life += 1;
        if stores {
            host.store();
        }
        host.unstored.clear();
        for peer in (0..self.size.replicas).filter(|&peer| peer != at) {
            self.disconnect(at, peer, Duration::ZERO);
        }
        self.schedule(10, 600, Event::Restart { at });
    }

    pub(super) fn restart(&mut self, at: ReplicaId) {
        let config = self.config(at);
        let host = &mut self.hosts[at];
        host.writers.fill(false);
        host.checked = 0;
        let (ballot, records) = host.disk.clone();
        host.machine = Some(Machine::new(config, ballot, records, self.now));
        for peer in (0..self.size.replicas).filter(|&peer| peer != at) {
            self.schedule(50, 20, Event::Connect { a: at, b: peer });
        }
    }
}
