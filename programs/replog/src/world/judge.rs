//! What must hold in a world, whatever happens.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Size;
use super::client::data;
use crate::protocol::{Index, Machine, Record, ReplicaId, RequestId, Role, Term};

/// An acknowledged record.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The record.
    pub request: RequestId,
    /// The time when the client first sent it.
    pub invoked: Duration,
    /// The time when the client received the acknowledgement.
    pub returned: Duration,
    /// Its index.
    pub index: Index,
}

/// Sees the machines of all replicas after each input, and the acknowledgements that clients get.
#[derive(Debug)]
pub(super) struct Judge {
    size: Size,
    /// The leader of each term.
    leaders: BTreeMap<Term, ReplicaId>,
    /// The records that some replica has committed.
    committed: Vec<Record>,
    /// Up to which index the commits of each replica are compared.
    compared: Vec<Index>,
    done: Vec<Done>,
}

impl Judge {
    pub(super) fn new(size: Size) -> Self {
        let compared = vec![0; size.replicas];
        Judge { size, leaders: BTreeMap::new(), committed: Vec::new(), compared, done: Vec::new() }
    }

    /// A replica starts, with the records of its disk.
    pub(super) fn starts(&mut self, at: ReplicaId) {
        self.compared[at] = 0;
    }

    /// Checks a replica.
    pub(super) fn check(&mut self, at: ReplicaId, machine: &Machine) {
        if let Role::Leader { .. } = machine.role() {
            let leader = *self.leaders.entry(machine.term()).or_insert(at);
            assert_eq!(leader, at, "two leaders in term {}", machine.term());
        }
        for index in self.compared[at] + 1..=machine.commit() {
            let record = machine.read(index).expect("a committed record exists");
            match self.committed.get(index as usize - 1) {
                Some(committed) => assert_eq!(committed, record, "replica {at} differs at {index}"),
                None => self.committed.push(record.clone()),
            }
        }
        self.compared[at] = machine.commit();
    }

    pub(super) fn acknowledged(&mut self, done: Done) {
        self.done.push(done);
    }

    /// Whether all clients have succeeded, and all replicas have committed all records.
    pub(super) fn is_done(&self) -> bool {
        let all = self.committed.len() as u64;
        self.done.len() as u64 == self.size.clients as u64 * self.size.records
            && self.compared.iter().all(|index| *index == all)
    }

    /// Compares the acknowledgements of the clients with the log. Returns them by index.
    pub(super) fn check_end(&self) -> Vec<Done> {
        let mut indexes = HashMap::new();
        for (index, record) in (1..).zip(&self.committed) {
            if let Some(request) = record.request {
                assert_eq!(record.data, data(request), "the data of {request:?}");
                assert_eq!(indexes.insert(request, index), None, "{request:?} is committed twice");
            }
        }
        let mut done = self.done.clone();
        for done in &done {
            assert_eq!(indexes.get(&done.request), Some(&done.index), "{done:?} is lost");
        }
        done.sort_by_key(|done| done.index);
        // A record that was sent after an acknowledgement has a larger index than the acknowledged one.
        let mut latest = Duration::ZERO;
        for done in &done {
            latest = latest.max(done.invoked);
            assert!(done.returned >= latest, "{done:?} was acknowledged before one with a smaller index was sent");
        }
        done
    }
}
