//! Work requests on iWARP, where completions come out of order.

use cmid_harness::failure::{same, stopped, why};
use cmid_harness::{Check, Env, Fixture, test_caps};
use cmid_proto::Transport;
use cmid_proto::datapath::{Caps, PostReason, SendOp, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::Access;

use super::data_path::Link;
use super::memory::{contents, deregister, register};

/// The kernel of soft-iWARP would take the range of an earlier request, on both sides (`siw_activate_tx`).
pub(super) fn iwarp_an_empty_read_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_sge: 2, ..test_caps() })?;
    let (client, mr, from) = (&mut link.ends.0, &link.mrs.0, link.mrs.1.remote(0));
    let none = || [].as_slice();
    let refused = Err(PostReason::NotOfTransport(Transport::Iwarp));
    same("an empty range", why(client.qp.post_send(SendWr::read(1, mr.sge(7..7), from))), refused)?;
    same("no range", why(client.qp.post_send(SendWr::read(2, none(), from))), refused)?;
    let two = SendWr::read(3, [mr.sge(0..0), mr.sge(9..9)], from);
    same(
        "two empty ranges",
        stopped(client.qp.post_sends([two])),
        Err((0, PostReason::NotOfTransport(Transport::Iwarp))),
    )?;
    client.qp.post_send(SendWr::read(4, mr.sge(0..8), from))?;
    b.ends(client, 4, WcStatus::SUCCESS)?;
    client.qp.post_send(SendWr::write(5, none(), from))?;
    b.ends(client, 5, WcStatus::SUCCESS)?;
    link.close(b)
}

/// Soft-iWARP has no inline data there: the kernel would refuse the request after the library has queued it.
pub(super) fn iwarp_no_invalidation_is_inlined<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_inline: 16, ..test_caps() })?;
    let ((client, server), mr, to) = ((&mut link.ends.0, &mut link.ends.1), &link.mrs.0, &link.mrs.1);
    for wr_id in 1..=3 {
        server.qp.post_recv(wr_id, to.sge(0..8))?;
    }
    client.qp.post_send(SendWr::send(1, mr.sge(0..4)))?;
    client.qp.post_send(SendWr::send_invalidate(2, mr.sge(4..8), 0))?;
    (1..=2).try_for_each(|wr_id| b.ends(client, wr_id, WcStatus::SUCCESS))?;
    b.ends(server, 1, WcStatus::SUCCESS)?;
    link.close(b)
}

/// A read has one target there (RFC 5040, 4.3): soft-iWARP fills the first of several. It refuses a fenced read, and sends
/// nothing behind it; reads are answered in order without a fence.
pub(super) fn iwarp_a_read_has_one_range_and_needs_no_fence<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_sge: 2, ..test_caps() })?;
    let (client, mr, from) = (&mut link.ends.0, &link.mrs.0, link.mrs.1.remote(0));
    let two = || [mr.sge(0..4), mr.sge(8..12)];
    let refused = Err(PostReason::TooManyRanges { ranges: 2, max: 1 });
    same("two ranges", why(client.qp.post_send(SendWr::read(1, two(), from))), refused)?;
    let batch = client.qp.post_sends([SendWr::read(1, two(), from)]);
    same("in a batch", batch.map(drop).map_err(|batch| batch.error.reason()), refused)?;
    client.qp.post_send(SendWr::read(2, [mr.sge(0..4), mr.sge(9..9)], from).fenced())?;
    client.qp.post_sends([SendWr::read(3, [mr.sge(8..12)], from).fenced()])?;
    client.qp.post_send(SendWr::write(4, two(), link.mrs.1.remote(32)).fenced())?;
    (2..=4).try_for_each(|wr_id| b.ends(client, wr_id, WcStatus::SUCCESS))?;
    same("what is read", &contents(mr)?[..12], &[100, 101, 102, 103, 4, 5, 6, 7, 100, 101, 102, 103])?;
    link.close(b)
}

/// The provider has each request as a signaled one, because a completion tells nothing of others.
pub(super) fn iwarp_an_unsignaled_request_ends_by_itself<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_wr: 4, ..test_caps() })?;
    let (client, mr, to) = (&mut link.ends.0, &link.mrs.0, link.mrs.1.remote(0));
    for round in 0..3 {
        let source = register(&link.pds.0, vec![round; 8], Access::LOCAL_WRITE)?;
        for op in [SendOp::Write(to), SendOp::Read(to), SendOp::Write(to)] {
            client.qp.post_send(SendWr::new(1, op, source.sge(0..8)).unsignaled())?;
        }
        same("a request", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
        client.qp.post_send(SendWr::read(2, mr.sge(0..8), to))?;
        b.ends(client, 2, WcStatus::SUCCESS)?;
        same("requests in flight", client.qp.unpolled().sends, 0)?;
        same("what is read", deregister(source)?, vec![round; 8])?;
    }
    same("another completion", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
    link.close(b)
}
