//! Posts and polls allocate nothing, after the first of each kind.

use cmid_proto::datapath::{SendWr, SrqCaps, prelude::*};
use cmid_verbs::{Access, Completion, Cq, Mr};

use crate::data::{polled, register};
use crate::env::{End, Pair};
use crate::heap;

/// Polls this many completions.
fn poll(cq: &mut Cq, count: usize) {
    for _ in 0..count {
        assert!(polled(cq).is_success());
    }
    assert_eq!(cq.poll(&mut [Completion::default()]), Ok(0));
}

/// Requests of all kinds, one by one and in batches, and their completions.
fn round(c: &mut End, s: &mut End, from: &Mr, to: &Mr) {
    s.qp.post_recv(1, to.sge(0..64)).expect("post_recv");
    s.qp.post_recvs([(2, to.sge(0..64)), (3, to.sge(0..64))]).expect("post_recvs");
    c.qp.post_send(SendWr::send(4, from.sge(0..64))).expect("post_send");
    c.qp.post_sends([5, 6].map(|wr_id| SendWr::send(wr_id, from.sge(0..16)))).expect("post_sends");
    c.qp.post_send(SendWr::write(7, from.sge(0..64), to.remote(0))).expect("post_send");
    poll(&mut c.cq, 4);
    poll(&mut s.cq, 3);
}

/// Counts the allocations of `round` after the first time.
fn allocates_nothing(what: &str, mut round: impl FnMut()) {
    round();
    let before = heap::allocations();
    (0..20).for_each(|_| round());
    assert_eq!(heap::allocations() - before, 0, "{what}");
}

pub(crate) fn none() {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let (from, to) = (register(&c, 1, Access::empty()), register(&s, 2, access));
    allocates_nothing("the queues of QPs", || round(&mut c, &mut s, &from, &to));
    // Without a QP of its own: what posting to an SRQ allocates.
    let mut srq = s.pd.create_srq(SrqCaps { max_wr: 64, max_sge: 1 }).expect("create_srq");
    allocates_nothing("an SRQ", || {
        srq.post_recv(1, to.sge(0..64)).expect("post_recv");
        srq.post_recvs([(2, to.sge(0..64)), (3, to.sge(0..64))]).expect("post_recvs");
    });
}
