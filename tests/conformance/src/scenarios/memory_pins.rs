//! Work requests in flight pin their memory until their completions have been polled or the QP is destroyed.

use cmid_harness::failure::{same, why};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr, TestPd};
use cmid_proto::datapath::{OfPd, PostReason, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Access, Change, Code, MemoryReason, MemoryStep, Policy, Valid};
use cmid_proto::{CmEvent, Errno, ErrorWith, Time};

use super::memory::{LEN, READABLE, bytes, deregister, failed, fields, refused, register, unused};

/// Checks that the region can be neither re-registered nor deregistered. Nothing changes and everything is returned.
fn pinned<M: TestMr<Pd: TestPd>>(what: &str, mut mr: M) -> Check<M> {
    let before = fields(&mr);
    let (result, back) = mr.reregister_vec(Change::default().to_buffer(bytes(9)), Policy::default());
    refused(what, result, MemoryReason::InFlight)?;
    same(what, back, Some(bytes(9)))?;
    let Err(ErrorWith { given: mr, error }) = mr.deregister_vec() else {
        return Err(Failure(format!("{what}: deregistered")));
    };
    refused::<()>(what, Err(error), MemoryReason::InFlight)?;
    same(what, fields(&mr), before)?;
    Ok(mr)
}

/// Checks that the region is not pinned. The device itself cannot re-register it.
fn free<M: TestMr<Pd: TestPd>>(what: &str, mut mr: M) -> Check {
    let (result, _) = mr.reregister_vec(Change::default().to_access(READABLE), Policy::default());
    failed(what, result, MemoryStep::Reregister(Code::Cmd), Errno::EOPNOTSUPP, Valid::Old)?;
    deregister(mr).map(drop)
}

pub(super) fn until_the_completion_is_polled<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (mut from, to) = (register(&own, bytes(1), READABLE)?, register(&pd, bytes(2), READABLE)?);
    let (mut client, mut server) = b.join(&own, &pd)?;
    from.slice_mut()?.fill(5);
    server.qp.post_recv(1, to.sge(0..LEN))?;
    let mut to = pinned("a receive that is posted", to)?;
    client.qp.post_send(SendWr::send(2, from.sge(0..LEN)))?;
    let slices = (to.slice().map(drop), from.slice_mut().map(drop));
    same("slices of both", slices, (Err(Errno::EBUSY), Err(Errno::EBUSY)))?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    same("a slice", to.slice().map(|slice| slice.to_vec()), Ok(vec![5; LEN]))?;
    let outside = (to.read(LEN, &mut [0]), to.load_relaxed::<u64>(4).map(drop));
    same("reads beyond the end and unaligned", outside, (Err(Errno::EINVAL), Err(Errno::EINVAL)))?;
    free("a receive that was polled", to)?;
    // The message has arrived, but the completion of the send has not been polled.
    let from = pinned("a send that is not polled", from)?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    free("a send that was polled", from)?;
    b.part((client, server))
}

/// Reads and writes pin the memory of their own side. The core cannot know what the peer does with remote memory.
pub(super) fn reads_and_writes_pin_as_well<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let there = register(&pd, bytes(2), READABLE | Access::REMOTE_WRITE)?;
    let (mut client, server) = b.join(&own, &pd)?;
    for read in [true, false] {
        let here = register(&own, bytes(1), READABLE)?;
        if read {
            client.qp.post_send(SendWr::read(1, here.sge(0..LEN), there.remote(0)))?;
        } else {
            client.qp.post_send(SendWr::write(1, here.sge(0..LEN), there.remote(0)))?;
        }
        let here = pinned("in flight", here)?;
        b.ends(&mut client, 1, WcStatus::SUCCESS)?;
        free("polled", here)?;
    }
    free("the peer's", there)?;
    b.part((client, server))
}

pub(super) fn until_the_flush_is_polled<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let mr = register(&pd, bytes(1), READABLE)?;
    let (client, mut server) = b.join(&own, &pd)?;
    server.qp.post_recv(1, mr.sge(0..LEN))?;
    server.qp.post_recv(2, mr.sge(0..LEN / 2))?;
    b.server.drive().disconnect(server.id, Time::NEVER)?;
    b.expect(Side::Client, client.id, CmEvent::Disconnected, 0, pdl::NONE)?;
    let mr = pinned("flushed, not polled", mr)?;
    b.ends(&mut server, 1, WcStatus::WR_FLUSH_ERR)?;
    let mr = pinned("one of two polled", mr)?;
    b.ends(&mut server, 2, WcStatus::WR_FLUSH_ERR)?;
    free("polled", mr)?;
    b.part((client, server))
}

pub(super) fn until_the_qp_is_gone<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let other = b.pd(Side::Server)?;
    let (mr, foreign) = (register(&pd, bytes(1), READABLE)?, register(&other, bytes(2), READABLE)?);
    let ends = {
        let (client, mut server) = b.join(&own, &pd)?;
        server.qp.post_recv(1, mr.sge(0..LEN))?;
        // Also an empty range, for which the device would check no key.
        for range in [0..LEN, 3..3] {
            let sge = foreign.sge(range);
            let (other, remote) = (Err(PostReason::OtherPd(OfPd::Mr)), mr.remote(0));
            same("a receive into another PD", why(server.qp.post_recv(2, sge)), other)?;
            for wr in [SendWr::send(3, sge), SendWr::write(3, sge, remote), SendWr::read(3, sge, remote)] {
                same("a request for it", why(server.qp.post_send(wr)), other)?;
            }
        }
        (client, server)
    };
    let mr = pinned("posted", mr)?;
    free("of another PD than the QP, where it cannot be posted", foreign)?;
    b.part(ends)?;
    free("nobody has polled, and nobody can", mr)?;
    // No slice is given of memory that a peer may write to, directly or through a window.
    let (bound, denied) = (Access::MW_BIND, Err(Errno::EACCES));
    for (access, slice) in [
        (READABLE | Access::REMOTE_WRITE, denied),
        (READABLE | Access::REMOTE_ATOMIC, denied),
        (READABLE | bound, denied),
        (Access::REMOTE_READ | bound, Ok(7)),
    ] {
        let mut mr = register(&pd, vec![7; 8], access)?;
        let slices = (mr.slice().map(|slice| slice[0]), mr.slice_mut().map(|slice| slice[0]));
        same("slices", slices, (slice, slice))?;
        deregister(mr)?;
    }
    Ok(())
}

/// Dropping pinned memory does not block: the message still arrives, and the memory is deregistered once it is
/// unpinned.
pub(super) fn dropped_memory_goes_later<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let from = register(&own, bytes(1), READABLE)?;
    let to = register(&pd, bytes(2), READABLE)?;
    let (mut client, mut server) = b.join(&own, &pd)?;
    server.qp.post_recv(1, to.sge(0..LEN))?;
    drop(to);
    refused("the QP and the memory", pd.dealloc(), MemoryReason::InUse(2))?;
    client.qp.post_send(SendWr::send(2, from.sge(0..LEN)))?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    b.part((client, server))?;
    deregister(from)?;
    unused(&own)?;
    Ok(pd.dealloc()?)
}
