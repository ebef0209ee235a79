//! The log on a simulated disk: the batches, one after the other. After a power loss the journal ends before the first
//! batch that is not complete.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};

use cmid_mio::proto::Time;
use cmid_mio::sim::Disk;

use crate::protocol::{Ballot, Batch, Record};
use crate::store::Saved;

const FILE: &str = "journal";

/// The length of a batch and its hash, which covers the hash of the batch before: what was cut off and has come back does
/// not follow a batch that was written later.
const HEADER: usize = 16;

/// The numbers of a batch before its records.
const NUMBERS: usize = 4;

#[derive(Debug)]
pub(super) struct Journal {
    disk: Disk,
    /// The hash of the last batch.
    hash: u64,
    /// The batches that are not safe, with the time when they are.
    unsafe_until: VecDeque<(Time, u64)>,
}

impl Journal {
    /// Opens the journal of a disk.
    pub(super) fn open(disk: &Disk) -> (Self, Saved) {
        let bytes = disk.read(FILE);
        let (mut rest, mut hash, mut saved) = (&bytes[..], 0, Saved::default());
        while let Some((body, body_hash, after)) = split(rest, hash) {
            take(body, &mut saved);
            (rest, hash) = (after, body_hash);
        }
        disk.truncate(FILE, bytes.len() - rest.len());
        (Journal { disk: disk.clone(), hash, unsafe_until: VecDeque::new() }, saved)
    }

    /// Begins to store a batch.
    pub(super) fn store(&mut self, batch: &Batch) {
        let records = batch.records.iter().map(|record| size_of::<u64>() + Record::HEADER + record.data.len());
        let mut bytes = Vec::with_capacity(HEADER + NUMBERS * size_of::<u64>() + records.sum::<usize>());
        bytes.resize(HEADER, 0);
        encode(batch, &mut bytes);
        let (header, body) = bytes.split_at_mut(HEADER);
        self.hash = hash(self.hash, body);
        header[..8].copy_from_slice(&(body.len() as u64).to_be_bytes());
        header[8..].copy_from_slice(&self.hash.to_be_bytes());
        self.disk.append(FILE, &bytes);
        self.unsafe_until.push_back((self.disk.flush(), batch.number));
    }

    /// Returns the number of the next batch that is safe.
    pub(super) fn stored(&mut self, now: Time) -> Option<u64> {
        let first = self.unsafe_until.front().filter(|(due, _)| *due <= now);
        first.map(|(_, number)| *number).inspect(|_| _ = self.unsafe_until.pop_front())
    }

    /// Returns when that is.
    pub(super) fn due(&self) -> Option<Time> {
        self.unsafe_until.front().map(|(due, _)| *due)
    }
}

fn hash(before: u64, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(before);
    hasher.write(body);
    hasher.finish()
}

/// Returns the next batch, its hash and what follows; `None` if it is not complete.
fn split(bytes: &[u8], before: u64) -> Option<(&[u8], u64, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (len, expected) = header.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*len)).ok()?)?;
    let hash = hash(before, body);
    (hash.to_be_bytes() == *expected).then_some((body, hash, rest))
}

/// Appends the ballot, with 0 for none, and its vote likewise; the index of the first record; each record with its length.
fn encode(batch: &Batch, into: &mut Vec<u8>) {
    let Batch { ballot, from, records, .. } = batch;
    let vote = ballot.and_then(|ballot| ballot.vote).map_or(0, |vote| vote as u64 + 1);
    let term = ballot.map_or(0, |ballot| ballot.term);
    for number in [u64::from(ballot.is_some()), term, vote, *from] {
        into.extend_from_slice(&number.to_be_bytes());
    }
    for record in records {
        let len = Record::HEADER + record.data.len();
        into.extend_from_slice(&(len as u64).to_be_bytes());
        record.encode(into);
    }
}

/// Does what a batch says.
fn take(body: &[u8], saved: &mut Saved) {
    let mut rest = body;
    let mut number = || {
        let (number, after) = rest.split_first_chunk().expect("the hash has shown that it is complete");
        rest = after;
        u64::from_be_bytes(*number)
    };
    let [has_ballot, term, vote, from] = [(); NUMBERS].map(|()| number());
    if has_ballot == 1 {
        saved.ballot = Ballot { term, vote: vote.checked_sub(1).map(|vote| vote as usize) };
    }
    let mut is_first = true;
    while let Some((len, after)) = rest.split_first_chunk() {
        let (one, after) = after.split_at(u64::from_be_bytes(*len) as usize);
        if std::mem::take(&mut is_first) {
            assert!(from <= saved.records.len() as u64 + 1, "a gap in the journal before {from}");
            saved.records.truncate(from as usize - 1);
        }
        saved.records.push(Record::decode(one).expect("a record that was encoded"));
        rest = after;
    }
}
