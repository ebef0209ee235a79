//! A client: appends its records one after the other, and sends a record again until it is acknowledged.

use std::rc::Rc;
use std::time::Duration;

use cmid_mio::proto::Time;
use cmid_mio::sim::{Node, Program, Turn};

use super::{Done, Shared};
use crate::protocol::{Index, ReplicaId, RequestId};

/// The shortest time to wait for an answer; the longest is half as much longer.
const WAIT: Duration = Duration::from_millis(200);

/// The longest time between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(60);

/// A request to append [`data`].
pub(super) type Request = RequestId;

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Committed(RequestId, Index),
    /// The replica does not lead. It may know who does.
    TryAt(RequestId, Option<ReplicaId>),
}

/// The bytes of a client's record.
pub(super) fn data(request: RequestId) -> Vec<u8> {
    format!("{}/{}", request.client, request.number).into_bytes()
}

#[derive(Debug)]
pub(super) struct Client {
    node: Node,
    shared: Rc<Shared>,
    number: usize,
    /// The current record, and when it was first sent.
    request: RequestId,
    invoked: Option<Duration>,
    /// The replica that it is sent to.
    target: ReplicaId,
    /// When it is sent, or sent to the next replica.
    due: Time,
}

impl Client {
    pub(super) fn new(node: &Node, number: usize, shared: &Rc<Shared>) -> Self {
        shared.replies[number].open(node);
        let request = RequestId { client: number as u64 + 1, number: 0 };
        let due = node.now().after(node.random_time(PAUSE));
        Client { node: node.clone(), shared: Rc::clone(shared), number, request, invoked: None, target: number, due }
    }

    fn take(&mut self, reply: Reply, now: Time) {
        let (Reply::Committed(request, _) | Reply::TryAt(request, _)) = reply;
        let Some(invoked) = self.invoked.filter(|_| request == self.request) else { return };
        match reply {
            Reply::Committed(request, index) => {
                let returned = Duration::from_nanos(now.0);
                self.shared.judge.borrow_mut().acknowledged(Done { request, invoked, returned, index });
                self.request.number += 1;
                self.invoked = None;
            }
            Reply::TryAt(_, None) => return,
            // `send` adds one.
            Reply::TryAt(_, Some(leader)) => self.target = leader + self.shared.size.replicas - 1,
        }
        self.due = now.after(self.node.random_time(PAUSE));
    }

    fn send(&mut self, now: Time) {
        if self.invoked.is_some() {
            self.target += 1;
        }
        self.invoked.get_or_insert(Duration::from_nanos(now.0));
        self.target %= self.shared.size.replicas;
        self.shared.requests[self.target].post(self.request);
        self.due = now.after(WAIT + self.node.random_time(WAIT / 2));
    }
}

impl Program for Client {
    fn turn(&mut self, now: Time) -> Turn {
        while let Some(reply) = self.shared.replies[self.number].take(now) {
            self.take(reply, now);
        }
        if self.request.number == self.shared.size.records {
            return Turn::Done;
        }
        if self.due <= now {
            self.send(now);
        }
        Turn::Wait(self.shared.replies[self.number].due().into_iter().chain([self.due]).min())
    }
}
