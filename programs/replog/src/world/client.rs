//! A client: its acknowledged records, and its current record.

use std::time::Duration;

use crate::protocol::{Index, ReplicaId, RequestId};

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

#[derive(Debug)]
pub(super) struct Client {
    pub(super) request: RequestId,
    pub(super) invoked: Option<Duration>,
    /// The replica that it sends to.
    pub(super) target: ReplicaId,
    pub(super) attempt: u64,
    pub(super) done: Vec<Done>,
}

impl Client {
    pub(super) fn new(number: usize) -> Self {
        let request = RequestId { client: number as u64 + 1, number: 0 };
        Client { request, invoked: None, target: number, attempt: 0, done: Vec::new() }
    }

    pub(super) fn data(request: RequestId) -> Vec<u8> {
        format!("{}/{}", request.client, request.number).into_bytes()
    }

    pub(super) fn is_done(&self, records: u64) -> bool {
        self.done.len() as u64 >= records
    }
}
