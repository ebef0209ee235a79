//! Work requests on iWARP, where completions come out of order.

use cmid_harness::failure::{same, why};
use cmid_harness::{Check, Env, Fixture, test_caps};
use cmid_proto::datapath::{Caps, CompletionQueue, MemoryRegion, PostReason, QueuePair, SendOp, SendWr, WcStatus};
use cmid_proto::memory::Access;

use super::data_path::Link;
use super::memory::{contents, deregister, register};

/// The kernel of soft-iWARP takes the first range of a read, also if the read has none (`siw_activate_tx`).
pub(super) fn iwarp_an_empty_read_writes_nowhere<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_sge: 2, ..test_caps() })?;
    let (client, from) = (&mut link.ends.0, link.mrs.1.remote(0));
    let mut earlier = register(&link.pds.0, vec![0; 64], Access::LOCAL_WRITE)?;
    // Each place of the queue has named it.
    for wr_id in 0..32 {
        client.qp.post_send(SendWr::read(wr_id, earlier.sge(0..64), from))?;
        b.ends(client, wr_id, WcStatus::SUCCESS)?;
    }
    earlier.write(0, &[0; 64])?;
    let (mr, none) = (&link.mrs.0, || [].as_slice());
    client.qp.post_send(SendWr::read(1, mr.sge(7..7), from))?;
    client.qp.post_send(SendWr::read(2, none(), from))?;
    client.qp.post_sends([SendWr::read(3, [mr.sge(0..0), mr.sge(9..9)], from)])?;
    client.qp.post_sends([SendWr::read(4, none(), from)])?;
    for wr_id in 1..=4 {
        let done = b.done(client)?;
        same("an empty read", (done.wr_id, done.status, done.byte_len), (wr_id, WcStatus::SUCCESS, 0))?;
    }
    same("what earlier reads have named", contents(&earlier)?, vec![0; 64])?;
    same("what no read has named", contents(mr)?, (0..64).collect())?;
    deregister(earlier)?;
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
