//! Failed work requests: the statuses of both sides, and the order of what is flushed. Polls that lose and repeat
//! nothing.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same, why};
use cmid_harness::fixture::{CqOf, EndOf, SOON};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr as _, test_caps};
use cmid_proto::datapath::{Completion, PostReason, QpState, Remote, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Access, MemoryReason};
use cmid_proto::{ConnParam, Errno, ErrorWith};

use super::data_path::Link;
use super::memory::{contents, deregister, refused, register};

/// Completions of receives and of the send queue, each in order.
type Halves = (Vec<(u64, WcStatus)>, Vec<(u64, WcStatus)>);

/// Takes this many completions at an end.
fn halves<L: Env>(b: &mut Fixture<'_, L>, end: &mut EndOf<L>, receives: &[u64], count: usize) -> Check<Halves> {
    let mut halves = Halves::default();
    for _ in 0..count {
        let done = b.done(end)?;
        same("the QP of a completion", done.qp_num, end.qp.num())?;
        let half = if receives.contains(&done.wr_id) { &mut halves.0 } else { &mut halves.1 };
        half.push((done.wr_id, done.status));
    }
    Ok(halves)
}

fn none_is_left<L: Env>(b: &mut Fixture<'_, L>, end: &mut EndOf<L>) -> Check {
    thread::sleep(b.env.quiet());
    same("another completion", end.cq.poll_one()?.map(|done| (done.wr_id, done.status)), None)
}

fn flushed(wr_ids: &[u64]) -> Vec<(u64, WcStatus)> {
    wr_ids.iter().map(|&wr_id| (wr_id, WcStatus::WR_FLUSH_ERR)).collect()
}

/// Posts writes and waits until their completions are in the CQ.
fn written<L: Env>(b: &mut Fixture<'_, L>, link: &mut Link<L>, wr_ids: &[u64]) -> Check {
    let to = link.mrs.1.remote(0);
    for &wr_id in wr_ids {
        link.ends.0.qp.post_send(SendWr::write(wr_id, link.mrs.0.sge(0..8), to))?;
    }
    thread::sleep(b.env.quiet());
    Ok(())
}

pub(super) fn each_completion_is_polled_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    written(b, &mut link, &[1, 2, 3, 4, 5])?;
    let cq = &mut link.ends.0.cq;
    same("a poll without room", cq.poll(&mut [])?, 0)?;
    // A poll that is given up after its first completion loses none of the others.
    let mut one = [Completion::default()];
    same("a poll of one", (cq.poll(&mut one)?, one[0].wr_id), (1, 1))?;
    let mut two = [Completion::default(); 2];
    same("a poll of two", (cq.poll(&mut two)?, two.map(|done| done.wr_id)), (2, [2, 3]))?;
    let untouched = Completion { wr_id: 99, ..Completion::default() };
    let mut four = [untouched; 4];
    let count = cq.poll(&mut four)?;
    same("a poll of the rest", (count, four.map(|done| done.wr_id)), (2, [4, 5, 99, 99]))?;
    same("a poll of an empty queue", (cq.poll(&mut four)?, cq.poll_one()?), (0, None))?;
    written(b, &mut link, &[6])?;
    same("the next completion", link.ends.0.cq.poll_one()?.map(|done| done.wr_id), Some(6))?;
    link.close(b)
}

pub(super) fn two_threads_poll_one_queue_in_turn<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let mut seen = BTreeSet::new();
    for round in 0..8 {
        let wr_ids: Vec<u64> = (round * 8..round * 8 + 8).collect();
        let to = link.mrs.1.remote(0);
        for &wr_id in &wr_ids {
            link.ends.0.qp.post_send(SendWr::write(wr_id, link.mrs.0.sge(0..8), to))?;
        }
        let shared = Mutex::new((&mut link.ends.0.cq, Vec::new()));
        let results = thread::scope(|scope| {
            let pollers = [(); 2].map(|()| scope.spawn(|| poll_until::<L>(&shared, wr_ids.len())));
            pollers.map(|poller| poller.join().unwrap_or_else(|_| Err(Failure("a poller panicked".into()))))
        });
        results.into_iter().collect::<Check>()?;
        let (_, taken) = shared.into_inner().map_err(|_| Failure("a poller panicked".into()))?;
        same("each once", taken.len(), wr_ids.len())?;
        seen.extend(taken);
    }
    same("all", seen.into_iter().collect::<Vec<_>>(), (0..64).collect())?;
    link.close(b)
}

/// Polls until both pollers together have this many completions.
fn poll_until<L: Env>(shared: &Mutex<(&mut CqOf<L>, Vec<u64>)>, count: usize) -> Check {
    let deadline = Instant::now() + SOON;
    loop {
        {
            let mut shared = shared.lock().map_err(|_| Failure("the other poller panicked".into()))?;
            let (cq, taken) = &mut *shared;
            taken.extend(cq.poll_one()?.map(|done| done.wr_id));
            if taken.len() >= count {
                return Ok(());
            }
        }
        ensure(Instant::now() < deadline, || format!("the pollers have not {count} completions in {SOON:?}"))?;
        thread::sleep(Duration::from_micros(200));
    }
}

pub(super) fn what_follows_a_failure_is_flushed_in_order<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let right = link.mrs.1.remote(0);
    let wrong = Remote { rkey: right.rkey ^ 0x5a, ..right };
    let source = register(&link.pds.0, vec![7; 8], Access::empty())?;
    let (client, mr) = (&mut link.ends.0, &link.mrs.0);
    let requests = [
        SendWr::write(1, mr.sge(0..8), wrong),
        SendWr::write(2, mr.sge(0..8), right).unsignaled(),
        SendWr::read(3, mr.sge(8..16), right),
        SendWr::fetch_add(4, mr.sge(16..24), right, 1),
        SendWr::write(5, source.sge(0..8), right).unsignaled(),
        SendWr::send(6, mr.sge(0..8)),
    ];
    same("posted", client.qp.post_sends(requests), Ok(6))?;
    let mut expected = flushed(&[1, 2, 3, 4, 5, 6]);
    expected[0].1 = WcStatus::REM_ACCESS_ERR;
    let first: Vec<_> = halves(b, client, &[], 4)?.1;
    same("the first ones", first, expected[..4].to_vec())?;
    let Err(ErrorWith { given: source, error }) = source.deregister_vec() else {
        return Err(Failure("a request whose flush is not polled pins nothing".into()));
    };
    refused::<()>("not polled", Err(error), MemoryReason::InFlight)?;
    same("the others", halves(b, client, &[], 2)?.1, expected[4..].to_vec())?;
    same("the source", deregister(source)?, vec![7; 8])?;
    none_is_left(b, client)?;
    link.close(b)
}

pub(super) fn a_send_without_a_receive_and_retries_fails_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    without_a_receive(b, 0, |link| Ok(link.ends.0.qp.post_send(SendWr::send(1, link.mrs.0.sge(0..8)))?))
}

pub(super) fn a_write_without_a_receive_fails_after_its_retries<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let post = |link: &mut Link<L>| {
        let write = SendWr::write_imm(1, link.mrs.0.sge(0..8), link.mrs.1.remote(0), 7);
        Ok(link.ends.0.qp.post_send(write)?)
    };
    without_a_receive(b, 1, post)
}

/// Posts work request 1, which needs a receive, and another. The peer posts none.
fn without_a_receive<L: Env>(
    b: &mut Fixture<'_, L>,
    retries: u8,
    post: impl FnOnce(&mut Link<L>) -> Result<(), Errno>,
) -> Check {
    let param = ConnParam { rnr_retry_count: retries, ..b.param() };
    let mut link = Link::open_by(b, test_caps(), param)?;
    post(&mut link)?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    client.qp.post_send(SendWr::write(2, mr.sge(0..8), to.remote(0)))?;
    b.ends(client, 1, WcStatus::RNR_RETRY_EXC_ERR)?;
    b.ends(client, 2, WcStatus::WR_FLUSH_ERR)?;
    // The receiver has not failed, and nothing arrives late.
    server.qp.post_recv(3, to.sge(8..16))?;
    none_is_left(b, server)?;
    same("the states", (client.qp.state()?, server.qp.state()?), (QpState::ERR, QpState::RTS))?;
    same("nothing is written", &contents(to)?[..16], &(100..116).collect::<Vec<u8>>()[..])?;
    link.close(b)
}

pub(super) fn a_message_waits_for_its_receive<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let param = ConnParam { rnr_retry_count: 7, ..b.param() };
    let mut link = Link::open_by(b, test_caps(), param)?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    client.qp.post_send(SendWr::send(1, mr.sge(0..8)))?;
    client.qp.post_send(SendWr::write(2, mr.sge(8..16), to.remote(0)))?;
    thread::sleep(b.env.quiet());
    same("what waits", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
    same("nothing is written", &contents(to)?[..8], &[100, 101, 102, 103, 104, 105, 106, 107])?;
    server.qp.post_recv(3, to.sge(16..24))?;
    let done = b.done(server)?;
    same("the receive", (done.wr_id, done.status, done.byte_len), (3, WcStatus::SUCCESS, 8))?;
    b.ends(client, 1, WcStatus::SUCCESS)?;
    b.ends(client, 2, WcStatus::SUCCESS)?;
    same("what is written", &contents(to)?[..8], &[8, 9, 10, 11, 12, 13, 14, 15])?;
    link.close(b)
}

pub(super) fn a_receive_that_is_too_short_ends_both_sides<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    server.qp.post_recv(1, to.sge(0..4))?;
    server.qp.post_recv(2, to.sge(8..16))?;
    client.qp.post_send(SendWr::send(3, mr.sge(0..8)))?;
    let done = b.done(client)?;
    same("the send", (done.wr_id, done.status), (3, WcStatus::REM_OP_ERR))?;
    let (receives, _) = halves(b, server, &[1, 2], 2)?;
    same("the receives", receives, vec![(1, WcStatus::LOC_QP_OP_ERR), (2, WcStatus::WR_FLUSH_ERR)])?;
    same("the memory after the receive", &contents(to)?[4..8], &[104, 105, 106, 107])?;
    same("the states", (client.qp.state()?, server.qp.state()?), (QpState::ERR, QpState::ERR))?;
    link.close(b)
}

pub(super) fn a_failed_atomic_changes_nothing<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let (client, to) = (&mut link.ends.0, link.mrs.1.remote(8));
    let wrong = Remote { rkey: to.rkey ^ 0x5a, ..to };
    client.qp.post_send(SendWr::compare_swap(1, link.mrs.0.sge(0..8), wrong, 0, 1))?;
    let done = b.done(client)?;
    same("the atomic", (done.wr_id, done.status), (1, WcStatus::REM_ACCESS_ERR))?;
    same("the target", &contents(&link.mrs.0)?[..8], &[0, 1, 2, 3, 4, 5, 6, 7])?;
    same("the peer's memory", &contents(&link.mrs.1)?[8..10], &[108, 109])?;
    link.close(b)
}

pub(super) fn a_full_queue_of_unsignaled_requests_needs_a_completion<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let (client, to) = (&mut link.ends.0, link.mrs.1.remote(0));
    for wr_id in 0..8 {
        client.qp.post_send(SendWr::write(wr_id, link.mrs.0.sge(0..8), to).unsignaled())?;
    }
    thread::sleep(b.env.quiet());
    // All are complete, and none has a completion: nothing frees the queue.
    same("completions", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
    let more = client.qp.post_send(SendWr::write(8, link.mrs.0.sge(0..8), to));
    same("one more", why(more), Err(PostReason::QueueFull { max: 8 }))?;
    same("the state", client.qp.state()?, QpState::RTS)?;
    link.close(b)
}
