//! Requests of clients: each appends its records one after the other, and sends a record again until it is
//! acknowledged.

use std::collections::HashMap;
use std::time::Duration;

use super::client::{Client, Done};
use super::{Choices, Event, Reply, World};
use crate::protocol::RequestId;

impl<C: Choices> World<C> {
    /// Sends the record of a client, unless the client has made another attempt since.
    pub(super) fn client(&mut self, number: usize, attempt: u64) {
        let (now, replicas) = (self.now, self.size.replicas);
        let client = &mut self.clients[number];
        if client.attempt != attempt || client.is_done(self.size.records) {
            return;
        }
        if client.invoked.is_some() {
            client.target += 1;
        }
        client.attempt += 1;
        client.invoked.get_or_insert(now);
        let (to, request, attempt) = (client.target % replicas, client.request, client.attempt);
        self.schedule(1, 5, Event::Request { to, request });
        self.schedule(200, 100, Event::Client { client: number, attempt });
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) {
        let number = request.client as usize - 1;
        let now = self.now;
        let client = &mut self.clients[number];
        if client.request != request {
            return;
        }
        let Some(invoked) = client.invoked else { return };
        match reply {
            Reply::Committed(index) => {
                client.done.push(Done { request, invoked, returned: now, index });
                client.request.number += 1;
                client.invoked = None;
                client.attempt += 1;
            }
            Reply::TryAt(None) => return,
            // `client` adds one.
            Reply::TryAt(Some(leader)) => client.target = leader + self.size.replicas - 1,
        }
        let attempt = client.attempt;
        self.schedule(1, 60, Event::Client { client: number, attempt });
    }

    /// Compares the acknowledgements of the clients with the log.
    pub(super) fn check_end(mut self) -> Vec<Done> {
        let mut indexes = HashMap::new();
        for (index, record) in (1..).zip(&self.committed) {
            if let Some(request) = record.request {
                assert_eq!(record.data, Client::data(request), "the data of {request:?}");
                assert_eq!(indexes.insert(request, index), None, "{request:?} is committed twice");
            }
        }
        let mut done: Vec<_> = self.clients.iter_mut().flat_map(|client| client.done.drain(..)).collect();
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
