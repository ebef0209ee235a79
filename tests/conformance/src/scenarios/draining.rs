//! What is left in the queues of a QP, the end of it, and the depth of a CQ.

use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same, why};
use cmid_harness::fixture::{CqOf, EndOf, SOON, Side};
use cmid_harness::{Check, Env, Fixture, test_caps};
use cmid_proto::datapath::{
    Capacity, Caps, Completion, CreateReason, Drain, DrainError, Draining, PostReason, QpState, SendWr, Unpolled,
    WcStatus, prelude::*,
};
use cmid_proto::memory::Access;
use cmid_proto::{Errno, Time};

use super::data_path::Link;
use super::memory::{deregister, register};

const fn left(sends: u32, receives: u32) -> Unpolled {
    Unpolled { sends, receives }
}

/// Drains a QP within `at_most`. Returns what it has polled.
fn drained<L: Env>(end: &mut EndOf<L>, at_most: Duration) -> Result<Vec<Completion>, DrainError> {
    let begun = Instant::now();
    let (mut drain, mut all) = (Drain::until(Time::ZERO.after(at_most)), Vec::new());
    loop {
        let now = Time::ZERO.after(begun.elapsed());
        match drain.poll(now, &mut end.qp, &mut [&mut end.cq], |completion| all.push(completion))? {
            Draining::Over => return Ok(all),
            Draining::Waits => thread::sleep(Duration::from_millis(1)),
        }
    }
}

pub(super) fn the_requests_that_are_left_are_counted<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    same("a new QP", client.qp.unpolled(), left(0, 0))?;
    same("two receives", server.qp.post_recvs([(1, to.sge(0..4)), (2, to.sge(4..8))]), Ok(2))?;
    same("the receiver", server.qp.unpolled(), left(0, 2))?;
    client.qp.post_send(SendWr::write(3, mr.sge(0..8), to.remote(32)).unsignaled())?;
    same("a refusal", client.qp.post_send(SendWr::send(4, mr.sge(0..65))).is_err(), true)?;
    client.qp.post_send(SendWr::send(5, mr.sge(0..4)))?;
    b.ends(server, 1, WcStatus::SUCCESS)?;
    same("the receiver", server.qp.unpolled(), left(0, 1))?;
    same("before the poll", client.qp.unpolled(), left(2, 0))?;
    b.ends(client, 5, WcStatus::SUCCESS)?;
    same("with a later one", client.qp.unpolled(), left(0, 0))?;
    client.qp.post_send(SendWr::send(6, mr.sge(0..4)).unsignaled())?;
    b.ends(server, 2, WcStatus::SUCCESS)?;
    same("an unsignaled one", client.qp.unpolled(), left(1, 0))?;
    link.close(b)
}

pub(super) fn a_qp_is_drained_after_its_disconnect<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    client.qp.post_recvs((10..13).map(|n| (n, mr.sge(0..4))))?;
    server.qp.post_recv(20, to.sge(0..4))?;
    client.qp.post_send(SendWr::send(1, mr.sge(0..4)))?;
    // Nothing but the drain ends it.
    client.qp.post_send(SendWr::write(2, mr.sge(0..8), to.remote(32)).unsignaled())?;
    b.ends(server, 20, WcStatus::SUCCESS)?;
    same("a QP that works", drained::<L>(client, SOON), Err(DrainError::NotEnded(QpState::RTS)))?;
    server.qp.post_recv(21, to.sge(0..4))?;
    // Until the acknowledgement of the send is there.
    thread::sleep(b.env.quiet());
    // The peer's disconnect does not end the own QP.
    b.client.drive().disconnect(client.id, Time::NEVER)?;
    let polled = drained::<L>(client, SOON)?;
    let of = |wr_id: u64| polled.iter().find(|done| done.wr_id == wr_id).map(|done| done.status);
    same("the send", of(1), Some(WcStatus::SUCCESS))?;
    ensure(of(2).is_none_or(|status| status == WcStatus::WR_FLUSH_ERR), || format!("the write: {:?}", of(2)))?;
    same("the receives", [10, 11, 12].map(of), [Some(WcStatus::WR_FLUSH_ERR); 3])?;
    same("the mark", of(Drain::MARK), None)?;
    same("what is left", client.qp.unpolled(), left(0, 0))?;
    same("again", drained::<L>(client, SOON), Ok(Vec::new()))?;
    same("the peer's QP", drained::<L>(server, SOON), Err(DrainError::NotEnded(QpState::RTS)))?;
    b.server.drive().disconnect(server.id, Time::NEVER)?;
    let polled = drained::<L>(server, SOON)?;
    let all: Vec<_> = polled.iter().map(|done| (done.wr_id, done.status)).collect();
    same("the peer's receive", all, vec![(21, WcStatus::WR_FLUSH_ERR)])?;
    // Nothing pins the memory, although the QPs are there.
    let Link { pds: _pds, ends, mrs } = link;
    deregister(mrs.0)?;
    deregister(mrs.1)?;
    b.part(ends)
}

pub(super) fn a_drain_ends_with_its_deadline<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_wr: 2, ..test_caps() })?;
    let ((client, _), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    // A queue full of unsignaled requests has no room for another one.
    for n in 1..3 {
        client.qp.post_send(SendWr::write(n, mr.sge(0..8), to.remote(32)).unsignaled())?;
    }
    let full = client.qp.post_send(SendWr::write(3, mr.sge(0..8), to.remote(32)));
    same("the queue", why(full), Err(PostReason::QueueFull { max: 2 }))?;
    // Both have been executed.
    let deadline = Instant::now() + SOON;
    while link.mrs.1.load_acquire::<u64>(32)? != link.mrs.0.load_acquire::<u64>(0)? {
        ensure(Instant::now() < deadline, || "nothing is written".into())?;
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(b.env.quiet());
    let client = &mut link.ends.0;
    b.client.drive().disconnect(client.id, Time::NEVER)?;
    let quiet = b.env.quiet();
    same("the drain", drained::<L>(client, quiet), Err(DrainError::TimedOut(left(2, 0))))?;
    link.close(b)
}

pub(super) fn a_cq_is_resized_with_the_completions_in_it<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mrs = (register(&pds.0, vec![1; 8], open)?, register(&pds.1, vec![2; 8], open)?);
    let mut ends = b.join(&pds.0, &pds.1)?;
    let client = &mut ends.0;
    let (reserved, first) = (client.cq.room().reserved(), client.cq.room().depth());
    let write = |n: u64| SendWr::write(n, mrs.0.sge(0..8), mrs.1.remote(0));
    for n in 0..3 {
        client.qp.post_send(write(n))?;
    }
    thread::sleep(b.env.quiet());
    client.cq.resize(first * 4)?;
    same("its depth", client.cq.room().depth(), first * 4)?;
    same("what the QP has reserved", client.cq.room().reserved(), reserved)?;
    b.ends(client, 0, WcStatus::SUCCESS)?;
    for n in 3..6 {
        client.qp.post_send(write(n))?;
    }
    thread::sleep(b.env.quiet());
    let refused = client.cq.resize(reserved - 1).map_err(|error| error.reason());
    same("below the reservation", refused, Err(CreateReason::Reserved { depth: reserved - 1, reserved }))?;
    // The same depth again; one more, and one less, which a provider may round to the same size.
    for depth in [reserved, reserved, reserved + 1, reserved] {
        client.cq.resize(depth)?;
        same("as requested", client.cq.room().depth(), depth)?;
    }
    client.cq.arm()?;
    for n in 1..6 {
        b.ends(client, n, WcStatus::SUCCESS)?;
    }
    client.qp.post_send(write(6))?;
    b.ends(client, 6, WcStatus::SUCCESS)?;
    same("another completion", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
    // The descriptor is that of the CQ still.
    let deadline = Instant::now() + SOON;
    while client.cq.take_notifications()? == 0 {
        ensure(Instant::now() < deadline, || "no notification".into())?;
    }
    b.part(ends)?;
    let mut cq = a_cq(b)?;
    same("zero", cq.resize(0).map_err(|error| error.reason()), Err(CreateReason::Zero(Capacity::Depth)))?;
    let refused = cq.resize(1 << 30).map_err(|error| (error.reason(), Errno::from(error)));
    let is_too_large =
        |reason| matches!(reason, CreateReason::TooLarge { capacity: Capacity::Depth, asked, .. } if asked == 1 << 30);
    ensure(matches!(refused, Err((reason, Errno::EINVAL)) if is_too_large(reason)), || format!("{refused:?}"))?;
    same("it works", cq.poll_one()?.map(|done| done.wr_id), None)?;
    deregister(mrs.0)?;
    deregister(mrs.1)?;
    Ok(())
}

fn a_cq<L: Env>(b: &mut Fixture<'_, L>) -> Check<CqOf<L>> {
    let id = b.resolved()?;
    let cq = b.client.drive().device_mut().create_cq(id, 8)?;
    b.destroy(Side::Client, id)?;
    Ok(cq)
}
