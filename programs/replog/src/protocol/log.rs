//! The log in memory.

use std::collections::HashMap;

/// The number of a term. Each term has at most one leader.
pub type Term = u64;

/// The number of a record in the log. The first one has 1.
pub type Index = u64;

/// The identity of a record that a client appends. A record that is sent again is not appended twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The number of the client. Each client selects a different one.
    pub client: u64,
    /// The number of the record, unique for its client.
    pub number: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The term of the leader that has appended it.
    pub term: Term,
    /// The request that has appended it; `None` for the empty record at the beginning of a term.
    pub request: Option<RequestId>,
    /// The bytes of the client.
    pub data: Vec<u8>,
}

/// The end of a log. Comparison of the fields in order determines the more complete log: the one that ends in the later
/// term, or the longer one if both end in the same term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The term of the record; 0 before the first one.
    pub term: Term,
    /// The index of the record; 0 before the first one.
    pub index: Index,
}

/// The records, and the index of each request's record.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    records: Vec<Record>,
    by_request: HashMap<RequestId, Index>,
}

impl Log {
    pub(super) fn new(records: Vec<Record>) -> Self {
        let mut log = Log::default();
        records.into_iter().for_each(|record| log.push(record));
        log
    }

    pub(super) fn push(&mut self, record: Record) {
        self.records.push(record);
        let index = self.last_index();
        if let Some(request) = self.records.last().and_then(|record| record.request) {
            self.by_request.insert(request, index);
        }
    }

    /// Removes the records from `from` on.
    pub(super) fn truncate(&mut self, from: Index) {
        let kept = from.saturating_sub(1) as usize;
        for record in self.records.drain(kept.min(self.records.len())..) {
            if let Some(request) = record.request {
                self.by_request.remove(&request);
            }
        }
    }

    pub(super) fn last_index(&self) -> Index {
        self.records.len() as Index
    }

    pub(super) fn last(&self) -> Position {
        Position { term: self.records.last().map_or(0, |record| record.term), index: self.last_index() }
    }

    pub(super) fn get(&self, index: Index) -> Option<&Record> {
        self.records.get(usize::try_from(index.checked_sub(1)?).ok()?)
    }

    /// Returns the term of a record; 0 for index 0, `None` beyond the end.
    pub(super) fn term(&self, index: Index) -> Option<Term> {
        if index == 0 { Some(0) } else { self.get(index).map(|record| record.term) }
    }

    pub(super) fn index_of(&self, request: RequestId) -> Option<Index> {
        self.by_request.get(&request).copied()
    }

    /// Returns the records from `from` on.
    pub(super) fn since(&self, from: Index) -> &[Record] {
        self.records.get(from.saturating_sub(1) as usize..).unwrap_or_default()
    }

    /// Returns the index before the records of the term of `index`.
    pub(super) fn before_term_of(&self, index: Index) -> Index {
        let term = self.term(index);
        let mut before = index;
        while before > 0 && self.term(before) == term {
            before -= 1;
        }
        before
    }
}
