//! Work requests: what each of them does to the memory and the completions of both sides.

use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same, stopped, why};
use cmid_harness::fixture::{EndOf, PdOf, SOON, Side};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr, make_qp, test_caps};
use cmid_proto::datapath::{
    Caps, Length, PostReason, QpState, Remote, SendWr, WcFlags, WcOpcode, WcStatus, prelude::*,
};
use cmid_proto::memory::{Access, MemoryReason};
use cmid_proto::{ConnParam, Errno, ErrorWith, PortSpace};

use super::memory::{contents, deregister, refused, register};

/// All that a peer can do.
const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// QPs for up to three ranges per request.
fn three_ranges() -> Caps {
    Caps { max_send_sge: 3, max_recv_sge: 3, ..test_caps() }
}

/// A connection, its PDs, and a region of 64 bytes on each side, numbered from 0 and from 100.
pub(super) struct Link<L: Env> {
    pub(super) pds: (PdOf<L>, PdOf<L>),
    pub(super) ends: (EndOf<L>, EndOf<L>),
    pub(super) mrs: (cmid_harness::fixture::MrOf<L>, cmid_harness::fixture::MrOf<L>),
}

impl<L: Env> Link<L> {
    pub(super) fn open(b: &mut Fixture<'_, L>, caps: Caps) -> Check<Self> {
        let param = b.param();
        Link::open_by(b, caps, param)
    }

    /// Both sides connect with these parameters.
    pub(super) fn open_by(b: &mut Fixture<'_, L>, caps: Caps, param: ConnParam) -> Check<Self> {
        let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
        let mrs = (register(&pds.0, (0..64).collect(), OPEN)?, register(&pds.1, (100..164).collect(), OPEN)?);
        let ends = b.join_by(&pds.0, &pds.1, caps, param)?;
        Ok(Link { pds, ends, mrs })
    }

    pub(super) fn close(self, b: &mut Fixture<'_, L>) -> Check {
        b.part(self.ends)?;
        deregister(self.mrs.0)?;
        deregister(self.mrs.1).map(drop)
    }
}

pub(super) fn a_message_is_gathered_and_scattered<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, three_ranges())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    // Empty ranges do not count.
    server.qp.post_recv(1, [to.sge(40..44), to.sge(0..0), to.sge(0..20), to.sge(60..60)])?;
    client.qp.post_send(SendWr::send(2, [mr.sge(1..3), mr.sge(10..14), mr.sge(7..8)]))?;
    let done = b.done(server)?;
    same(
        "the receive",
        (done.wr_id, done.status, done.opcode, done.byte_len),
        (1, WcStatus::SUCCESS, WcOpcode::RECV, 7),
    )?;
    b.ends(client, 2, WcStatus::SUCCESS)?;
    let bytes = contents(to)?;
    same("the first range", &bytes[40..45], &[1, 2, 10, 11, 144])?;
    same("the second range", &bytes[..4], &[12, 13, 7, 103])?;
    same("receives", server.qp.post_recvs((4..6).map(|n| (n, [to.sge(0..1), to.sge(50..60)]))), Ok(2))?;
    same("sends", client.qp.post_sends((4..6).map(|n| SendWr::send(n, [mr.sge(20..23), mr.sge(30..32)]))), Ok(2))?;
    for n in 4..6 {
        b.ends(server, n, WcStatus::SUCCESS)?;
        b.ends(client, n, WcStatus::SUCCESS)?;
    }
    same("a range of both messages", &contents(to)?[50..55], &[21, 22, 30, 31, 154])?;
    let four = [mr.sge(0..1), mr.sge(1..2), mr.sge(2..3), mr.sge(3..4)];
    same(
        "a send of four",
        why(client.qp.post_send(SendWr::send(3, four))),
        Err(PostReason::TooManyRanges { ranges: 4, max: 3 }),
    )?;
    let four = [to.sge(0..1), to.sge(1..2), to.sge(2..3), to.sge(3..4)];
    same("a receive of four", why(server.qp.post_recv(3, four)), Err(PostReason::TooManyRanges { ranges: 4, max: 3 }))?;
    // The lengths that a provider adds in 32 bits, or takes for a mark.
    let large = register(&link.pds.0, vec![0; 1 << 26], Access::LOCAL_WRITE)?;
    let too_long = Err(PostReason::RangesTooLong { len: Length::new(1 << 31) });
    let whole = || [(); 32].map(|()| large.sge(0..1 << 26));
    same("a send of 2 GiB", why(client.qp.post_send(SendWr::send(3, whole()))), too_long)?;
    let read = SendWr::read(3, whole(), to.remote(0));
    same("a read of 2 GiB", why(client.qp.post_send(read)), too_long)?;
    deregister(large)?;
    link.close(b)
}

pub(super) fn every_range_of_a_request_is_pinned<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, three_ranges())?;
    let own = &link.pds.1;
    let (one, other) = (register(own, vec![0; 8], OPEN)?, register(own, vec![0; 8], OPEN)?);
    link.ends.1.qp.post_recv(1, [link.mrs.1.sge(0..4), one.sge(0..4), other.sge(4..8)])?;
    let Err(ErrorWith { given: one, error }) = one.deregister_vec() else {
        return Err(Failure("the second range is not pinned".into()));
    };
    refused::<()>("the second range", Err(error), MemoryReason::InFlight)?;
    let Err(ErrorWith { given: other, error }) = other.deregister_vec() else {
        return Err(Failure("the third range is not pinned".into()));
    };
    refused::<()>("the third range", Err(error), MemoryReason::InFlight)?;
    link.ends.0.qp.post_send(SendWr::send(2, link.mrs.0.sge(0..12)))?;
    b.ends(&mut link.ends.1, 1, WcStatus::SUCCESS)?;
    same("the second range", deregister(one)?, vec![4, 5, 6, 7, 0, 0, 0, 0])?;
    same("the third range", deregister(other)?, vec![0, 0, 0, 0, 8, 9, 10, 11])?;
    b.ends(&mut link.ends.0, 2, WcStatus::SUCCESS)?;
    link.close(b)
}

pub(super) fn immediate_data_arrives_with_sends_and_writes<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    server.qp.post_recv(1, to.sge(0..8))?;
    server.qp.post_recv(2, to.sge(8..16))?;
    server.qp.post_recv(3, to.sge(16..24))?;
    client.qp.post_send(SendWr::send_imm(4, mr.sge(1..5), 0x0102_0304))?;
    client.qp.post_send(SendWr::write_imm(5, mr.sge(0..6), to.remote(32), u32::MAX))?;
    client.qp.post_send(SendWr::send(6, mr.sge(9..10)))?;
    let expected = [
        (1, WcOpcode::RECV, 4, Some(0x0102_0304)),
        (2, WcOpcode::RECV_RDMA_WITH_IMM, 6, Some(u32::MAX)),
        (3, WcOpcode::RECV, 1, None),
    ];
    for expected in expected {
        let done = b.done(server)?;
        same("status", done.status, WcStatus::SUCCESS)?;
        same("a receive", (done.wr_id, done.opcode, done.byte_len, done.imm()), expected)?;
        same("an invalidated key", done.invalidated_rkey(), None)?;
    }
    for (wr_id, opcode) in [(4, WcOpcode::SEND), (5, WcOpcode::RDMA_WRITE), (6, WcOpcode::SEND)] {
        let done = b.done(client)?;
        same("a send", (done.wr_id, done.status, done.opcode), (wr_id, WcStatus::SUCCESS, opcode))?;
    }
    let bytes = contents(to)?;
    same("the message", &bytes[..5], &[1, 2, 3, 4, 104])?;
    same("the receive of the write", &bytes[8..16], &[108, 109, 110, 111, 112, 113, 114, 115])?;
    same("what was written", &bytes[32..39], &[0, 1, 2, 3, 4, 5, 138])?;
    link.close(b)
}

pub(super) fn atomic_operations_return_the_old_value<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    link.mrs.1.write(8, &5_u64.to_ne_bytes())?;
    let ((client, _), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    let there = to.remote(8);
    client.qp.post_send(SendWr::fetch_add(1, mr.sge(0..8), there, 7))?;
    client.qp.post_send(SendWr::compare_swap(2, mr.sge(8..16), there, 12, 100))?;
    client.qp.post_send(SendWr::compare_swap(3, mr.sge(16..24), there, 12, 200))?;
    client.qp.post_send(SendWr::fetch_add(4, mr.sge(24..32), there, u64::MAX))?;
    let opcodes = [WcOpcode::FETCH_ADD, WcOpcode::COMP_SWAP, WcOpcode::COMP_SWAP, WcOpcode::FETCH_ADD];
    for (wr_id, opcode) in (1..).zip(opcodes) {
        let done = b.done(client)?;
        same("an atomic", (done.wr_id, done.status, done.opcode), (wr_id, WcStatus::SUCCESS, opcode))?;
    }
    for (offset, old) in [(0, 5), (8, 12), (16, 100), (24, 100)] {
        same("the old value", mr.load_acquire::<u64>(offset)?, old)?;
    }
    same("the value", to.load_acquire::<u64>(8)?, 99)?;
    let skewed = Remote { addr: there.addr + 4, ..there };
    same(
        "not aligned",
        why(client.qp.post_send(SendWr::fetch_add(5, mr.sge(0..8), skewed, 1))),
        Err(PostReason::BadAtomic),
    )?;
    for len in [0, 4, 16] {
        let posted = client.qp.post_send(SendWr::compare_swap(5, mr.sge(0..len), there, 1, 2));
        same("not of 8 bytes", why(posted), Err(PostReason::BadAtomic))?;
    }
    let halves = [mr.sge(0..4), mr.sge(8..12)];
    same(
        "in two ranges",
        why(client.qp.post_send(SendWr::fetch_add(5, halves, there, 1))),
        Err(PostReason::TooManyRanges { ranges: 2, max: 1 }),
    )?;
    let closed = register(&link.pds.1, vec![0; 8], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    client.qp.post_send(SendWr::fetch_add(6, mr.sge(0..8), closed.remote(0), 1))?;
    b.ends(client, 6, WcStatus::REM_ACCESS_ERR)?;
    same("without the right", deregister(closed)?, vec![0; 8])?;
    link.close(b)
}

pub(super) fn an_unsignaled_request_ends_with_a_later_one<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_send_wr: 4, ..test_caps() })?;
    let (client, to) = (&mut link.ends.0, link.mrs.1.remote(0));
    let source = register(&link.pds.0, vec![7; 8], Access::empty())?;
    for round in 0..3 {
        client.qp.post_send(SendWr::write(1, source.sge(0..8), to).unsignaled())?;
        for _ in 0..2 {
            client.qp.post_send(SendWr::write(2, link.mrs.0.sge(0..8), to).unsignaled())?;
        }
        client.qp.post_send(SendWr::write(3 + round, link.mrs.0.sge(0..8), to))?;
        let full = client.qp.post_send(SendWr::write(9, link.mrs.0.sge(0..8), to));
        same("a request too many", why(full), Err(PostReason::QueueFull { max: 4 }))?;
        b.ends(client, 3 + round, WcStatus::SUCCESS)?;
    }
    same("another completion", client.cq.poll_one()?.map(|done| done.wr_id), None)?;
    client.qp.post_send(SendWr::write(1, source.sge(0..8), to).unsignaled())?;
    let Err(ErrorWith { given: source, error }) = source.deregister_vec() else {
        return Err(Failure("an unsignaled request pins nothing".into()));
    };
    refused::<()>("an unsignaled request", Err(error), MemoryReason::InFlight)?;
    client.qp.post_send(SendWr::write(8, link.mrs.0.sge(0..8), to).fenced())?;
    b.ends(client, 8, WcStatus::SUCCESS)?;
    same("the source", deregister(source)?, vec![7; 8])?;
    link.close(b)
}

pub(super) fn an_unsignaled_request_that_fails_has_a_completion<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let closed = register(&link.pds.1, vec![0; 8], Access::LOCAL_WRITE)?;
    let (client, mr) = (&mut link.ends.0, &link.mrs.0);
    client.qp.post_send(SendWr::write(1, mr.sge(0..8), link.mrs.1.remote(0)).unsignaled())?;
    client.qp.post_send(SendWr::write(2, mr.sge(0..8), closed.remote(0)).unsignaled())?;
    b.ends(client, 2, WcStatus::REM_ACCESS_ERR)?;
    client.qp.post_send(SendWr::send(3, mr.sge(0..8)).unsignaled())?;
    b.ends(client, 3, WcStatus::WR_FLUSH_ERR)?;
    deregister(closed)?;
    link.close(b)?;
    let mut link = Link::open(b, test_caps())?;
    let (client, server) = (&mut link.ends.0, &mut link.ends.1);
    client.qp.post_send(SendWr::write(4, link.mrs.0.sge(0..9), link.mrs.1.remote(56)).unsignaled())?;
    b.ends(client, 4, WcStatus::REM_ACCESS_ERR)?;
    same("beyond the end", (client.qp.state()?, server.qp.state()?), (QpState::ERR, QpState::ERR))?;
    link.close(b)
}

pub(super) fn a_batch_is_posted_completely_or_not_at_all<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    let part = |n: u64| n as usize * 4..n as usize * 4 + 4;
    let send = |n: u64| SendWr::send(n, mr.sge(part(n)));
    let beyond = PostReason::OutOfRange { len: Length::new(64) };
    same("no sends", stopped(client.qp.post_sends((0..0).map(send))), Err((0, PostReason::EmptyBatch)))?;
    same(
        "no receives",
        stopped(server.qp.post_recvs((0..0).map(|n| (n, to.sge(part(n)))))),
        Err((0, PostReason::EmptyBatch)),
    )?;
    same(
        "too many sends",
        stopped(client.qp.post_sends((0..9).map(send))),
        Err((0, PostReason::QueueFull { max: 8 })),
    )?;
    let bad = (0..4).map(|n| SendWr::send(n, mr.sge(n as usize..if n == 2 { 65 } else { 62 })));
    same("a range beyond the end", stopped(client.qp.post_sends(bad)), Err((0, beyond)))?;
    let bad = (0..4).map(|n| (n, to.sge(0..if n == 3 { 65 } else { 8 })));
    same("a receive beyond the end", stopped(server.qp.post_recvs(bad)), Err((0, beyond)))?;
    for round in 0..2 {
        let receives = (0..8).map(|n| (n, to.sge(n as usize * 8..n as usize * 8 + 8)));
        same("receives", server.qp.post_recvs(receives), Ok(8))?;
        same("a receive too many", why(server.qp.post_recv(9, to.sge(0..1))), Err(PostReason::QueueFull { max: 8 }))?;
        // Only the last one has a completion.
        let sends = (0..8).map(|n| if n == 7 { send(n + round) } else { send(n + round).unsignaled() });
        same("sends", client.qp.post_sends(sends), Ok(8))?;
        for n in 0..8 {
            b.ends(server, n, WcStatus::SUCCESS)?;
        }
        b.ends(client, 7 + round, WcStatus::SUCCESS)?;
        let (bytes, first) = (contents(to)?, round as u8 * 4);
        for n in 0..8 {
            let sent = first + n as u8 * 4;
            let expected = [sent, sent + 1, sent + 2, sent + 3];
            same("a message of the batch", &bytes[n * 8..n * 8 + 4], &expected)?;
        }
    }
    link.close(b)
}

pub(super) fn inline_data_can_change_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, Caps { max_inline: 16, ..three_ranges() })?;
    let ((client, server), to) = ((&mut link.ends.0, &mut link.ends.1), &link.mrs.1);
    ensure(client.qp.caps().max_inline >= 16, || format!("{:?}", client.qp.caps()))?;
    server.qp.post_recv(1, to.sge(0..16))?;
    let mut source = register(&link.pds.0, vec![1; 16], Access::empty())?;
    client.qp.post_send(SendWr::send(2, [source.sge(0..6), source.sge(8..16)]))?;
    source.write(0, &[2; 16])?;
    same("it is not pinned", deregister(source)?, vec![2; 16])?;
    b.ends(server, 1, WcStatus::SUCCESS)?;
    b.ends(client, 2, WcStatus::SUCCESS)?;
    same("the message", &contents(to)?[..15], &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 114])?;
    // Nor does a write of inline data pin, nor what has no bytes.
    let source = register(&link.pds.0, vec![3; 16], Access::LOCAL_WRITE)?;
    client.qp.post_send(SendWr::write(3, source.sge(0..16), to.remote(16)))?;
    server.qp.post_recv(4, to.sge(64..64))?;
    client.qp.post_send(SendWr::send(5, source.sge(3..3)))?;
    client.qp.post_recv(6, source.sge(16..16))?;
    same("it is not pinned", deregister(source)?, vec![3; 16])?;
    b.ends(server, 4, WcStatus::SUCCESS)?;
    (3..=5).step_by(2).try_for_each(|wr_id| b.ends(client, wr_id, WcStatus::SUCCESS))?;
    same("what is written", &contents(to)?[16..33], &[[3; 16].as_slice(), &[132]].concat()[..])?;
    // More is fetched from the memory.
    let len = client.qp.caps().max_inline as usize + 1;
    let (long, far) = (register(&link.pds.0, vec![1; len], OPEN)?, register(&link.pds.1, vec![0; len], OPEN)?);
    client.qp.post_send(SendWr::write(7, long.sge(0..len), far.remote(0)))?;
    let Err(ErrorWith { given: long, error }) = long.deregister_vec() else {
        return Err(Failure("more than inline data is not pinned".into()));
    };
    refused::<()>("more than inline data", Err(error), MemoryReason::InFlight)?;
    b.ends(client, 7, WcStatus::SUCCESS)?;
    deregister(long)?;
    same("what is written", deregister(far)?, vec![1; len])?;
    link.close(b)
}

pub(super) fn a_send_invalidates_a_window_of_the_peer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let mut shown = register(&link.pds.1, vec![5; 8], Access::REMOTE_READ | Access::MW_BIND)?;
    let mut window = link.pds.1.alloc_mw()?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    same("a slice before", shown.slice_mut().map(|slice| slice[0]), Ok(5))?;
    server.qp.post_bind(1, &mut window, &shown, 0..8, Access::REMOTE_READ)?;
    same("a slice of what is in flight", shown.slice().map(drop), Err(Errno::EBUSY))?;
    b.ends(server, 1, WcStatus::SUCCESS)?;
    // A peer that reads changes nothing.
    same("a slice of what a peer reads", shown.slice().map(|slice| slice[0]), Ok(5))?;
    same("one to write", shown.slice_mut().map(drop), Err(Errno::EBUSY))?;
    let through = Remote { addr: shown.addr(), rkey: window.rkey() };
    client.qp.post_send(SendWr::read(2, mr.sge(0..8), through))?;
    b.ends(client, 2, WcStatus::SUCCESS)?;
    same("what the peer has read", &contents(mr)?[..9], &[5, 5, 5, 5, 5, 5, 5, 5, 8])?;
    server.qp.post_recv(3, to.sge(0..8))?;
    client.qp.post_send(SendWr::send_invalidate(4, mr.sge(0..4), window.rkey()))?;
    let done = b.done(server)?;
    same("the receive", (done.wr_id, done.status, done.byte_len), (3, WcStatus::SUCCESS, 4))?;
    same("the key", (done.imm_data, done.imm()), (window.rkey(), None))?;
    // rxe returns the kernel's flag to user space, where it has another meaning.
    let by_rxe = done.flags.contains(WcFlags::IP_CSUM_OK);
    ensure(by_rxe || done.invalidated_rkey() == Some(window.rkey()), || format!("{:?}", done.flags))?;
    b.ends(client, 4, WcStatus::SUCCESS)?;
    // rxe would follow a null pointer.
    same("invalidated again", why(server.qp.post_invalidate(5, &mut window)), Err(PostReason::NotBound))?;
    same("a slice after", shown.slice_mut().map(|slice| slice[0]), Ok(5))?;
    server.qp.post_bind(6, &mut window, &shown, 0..8, Access::REMOTE_READ)?;
    b.ends(server, 6, WcStatus::SUCCESS)?;
    server.qp.post_invalidate(7, &mut window)?;
    same("twice by this side", why(server.qp.post_invalidate(8, &mut window)), Err(PostReason::NotBound))?;
    b.ends(server, 7, WcStatus::SUCCESS)?;
    client.qp.post_send(SendWr::read(9, mr.sge(0..8), through))?;
    b.ends(client, 9, WcStatus::REM_ACCESS_ERR)?;
    // The window is not bound any more, so it does not hold the memory.
    same("the memory", deregister(shown)?, vec![5; 8])?;
    drop(window);
    link.close(b)
}

pub(super) fn only_solicited_completions_notify<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut link = Link::open(b, test_caps())?;
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    server.qp.post_recv(1, to.sge(0..8))?;
    server.qp.post_recv(2, to.sge(8..16))?;
    server.cq.arm_solicited()?;
    client.qp.post_send(SendWr::send(3, mr.sge(0..4)))?;
    b.ends(server, 1, WcStatus::SUCCESS)?;
    same("notifications", server.cq.take_notifications()?, 0)?;
    client.qp.post_send(SendWr::send(4, mr.sge(0..4)).solicited())?;
    let deadline = Instant::now() + SOON;
    while server.cq.take_notifications()? == 0 {
        ensure(Instant::now() < deadline, || format!("no notification in {SOON:?}"))?;
        thread::sleep(Duration::from_millis(1));
    }
    b.ends(server, 2, WcStatus::SUCCESS)?;
    b.ends(client, 3, WcStatus::SUCCESS)?;
    b.ends(client, 4, WcStatus::SUCCESS)?;
    link.close(b)
}

pub(super) fn the_device_of_an_id_is_known_once_it_has_one<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let channel = b.client.channel;
    let unbound = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
    let device_of = |b: &mut Fixture<'_, L>, id| b.client.drive().device_mut().device_of(id);
    same("without an address", device_of(b, unbound).map(drop).map_err(Errno::from), Err(Errno::ENODEV))?;
    b.destroy(Side::Client, unbound)?;
    same("gone", device_of(b, unbound).map(drop).map_err(Errno::from), Err(Errno::ENOENT))?;
    b.listen()?;
    let (first, second) = (b.resolved()?, b.resolved()?);
    let (nic, same_nic) = (device_of(b, first)?, device_of(b, second)?);
    ensure(nic == same_nic, || format!("{nic:?} and {same_nic:?}"))?;
    // A PD that was allocated on the device is one of each id on it.
    let pd = b.client.drive().device_mut().alloc_pd_on(&nic)?;
    let mr = register(&pd, vec![1; 8], Access::LOCAL_WRITE)?;
    let drive = b.client.drive();
    let (mut qp, cq) = drive.attach_qp(second, |device, attaching| make_qp(device, attaching, &pd, test_caps()))?;
    qp.post_recv(1, mr.sge(0..8))?;
    b.destroy(Side::Client, first)?;
    b.destroy(Side::Client, second)?;
    drop((qp, cq));
    same("the memory", deregister(mr)?, vec![1; 8])
}
