//! A replica: its machine, its memory and its disk.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::{Ballot, Batch, Machine, Record};

/// The bytes of the region of each connection.
const REGION: usize = 400;

#[derive(Debug)]
pub(super) struct Host {
    /// `None` while the replica is down.
    pub(super) machine: Option<Machine>,
    /// The number of starts.
    pub(super) life: u64,
    /// Whether each peer may write, and the bytes that each has written.
    pub(super) writers: Vec<bool>,
    pub(super) regions: Vec<Vec<u8>>,
    /// The time when the last completion is polled, by peer.
    pub(super) polled: Vec<Duration>,
    /// The number of the connection that was reported to the machine, by peer.
    pub(super) known: Vec<u64>,
    /// The time when the last action reaches another reactor, and the time when the last report of a reactor reaches
    /// the machine, by peer.
    pub(super) acted: Vec<Duration>,
    pub(super) reported: Vec<Duration>,
    pub(super) unstored: VecDeque<Batch>,
    pub(super) disk: (Ballot, Vec<Record>),
    /// The index up to which the commits of the machine are checked.
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
            known: vec![0; replicas],
            acted: vec![Duration::ZERO; replicas],
            reported: vec![Duration::ZERO; replicas],
            unstored: VecDeque::new(),
            disk: Default::default(),
            checked: 0,
        }
    }

    pub(super) fn store(&mut self) -> Option<u64> {
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
