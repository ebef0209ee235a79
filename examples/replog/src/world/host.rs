//! A replica: its machine, its memory and its disk.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Choices, Event, World};
use crate::protocol::{Ballot, Batch, Machine, Record, ReplicaId};

/// The bytes of the region of each connection.
const REGION: usize = 400;

#[derive(Debug)]
pub(super) struct Host {
    /// `None` while the replica is down.
    pub(super) machine: Option<Machine>,
    /// Counts the starts.
    pub(super) life: u64,
    /// Who may write, and what is written, by peer.
    pub(super) writers: Vec<bool>,
    pub(super) regions: Vec<Vec<u8>>,
    /// When the last completion is polled.
    pub(super) polled: Vec<Duration>,
    pub(super) unstored: VecDeque<Batch>,
    disk: (Ballot, Vec<Record>),
    /// Up to this record the commits of the machine are checked.
    pub(super) checked: u64,
}

impl Host {
    pub(super) fn new(replicas: usize) -> Self {
        Host {
            machine: None,
            life: 0,
            writers: vec![false; replicas],
            regions: vec![vec![0; REGION]; replicas],
            polled: vec![Duration::ZERO; replicas],
            unstored: VecDeque::new(),
            disk: Default::default(),
            checked: 0,
        }
    }

    fn store(&mut self) -> Option<u64> {
        let Batch { number, ballot, from, records } = self.unstored.pop_front()?;
        let (stored_ballot, stored_records) = &mut self.disk;
        *stored_ballot = ballot.unwrap_or(*stored_ballot);
        if !records.is_empty() {
            stored_records.truncate(from as usize - 1);
            assert_eq!(stored_records.len() as u64 + 1, from, "a gap on the disk");
            stored_records.extend(records);
        }
        Some(number)
    }
}

impl<C: Choices> World<C> {
    /// The disk has stored the oldest batches of a replica.
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

    /// A replica dies. The batch that it was storing may be on the disk; the later ones are not.
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
