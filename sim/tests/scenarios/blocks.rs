//! Blocks: memory that moves into a work request, and back with its completion.

use std::sync::Arc;

use cmid_proto::datapath::{Block, Length, OfPd, Part, Parts, Pool, PostReason, SendWr, prelude::*};
use cmid_proto::memory::{MemoryError, MemoryReason};
use cmid_proto::{Errno, ErrorWith};
use cmid_sim::{Access, Buffer, Caps, Completion, Config, Cq, Pd, Piece, WcStatus};

use crate::common::{Env, Equipment, Pair, SECOND, connected, only};
use crate::iwarp;

const LOCAL: Access = Access::empty();

fn pool(pd: &Pd, blocks: usize) -> Pool<Piece> {
    pd.pool(vec![0; blocks * 16], 16, LOCAL).unwrap()
}

fn filled(pool: &Pool<Piece>, byte: u8) -> Block<Piece> {
    let mut block = pool.take().expect("a free block");
    block.fill(byte);
    block
}

fn connected_with(caps: Caps) -> (Env, Pair) {
    let mut env = Env::new();
    let pair = env.established_with(caps);
    (env, pair)
}

/// The only completion of a CQ.
#[track_caller]
fn done(env: &Env, cq: &mut Cq) -> Completion {
    env.fabric.advance_by(SECOND);
    only(cq)
}

fn reason(refused: cmid_proto::datapath::Unposted<Piece>) -> (PostReason, Option<usize>) {
    (refused.error.reason(), refused.given.map(|blocks| blocks.len()))
}

#[test]
fn what_is_refused_comes_back_with_the_reason() {
    let (env, mut pair) = connected_with(Caps { max_send_wr: 1, max_recv_wr: 1, ..Caps::default() });
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let (here, there) = (pool(&c.pd, 4), pool(&s.pd, 4));
    let part = |from, to| here.take().unwrap().part(from..to);
    for (part, why) in [
        (part(0, 17), PostReason::OutOfRange { len: Length::new(16) }),
        (part(17, 17), PostReason::OutOfRange { len: Length::new(16) }),
        (part(3, 2), PostReason::ReversedRange),
        (Part::from(there.take().unwrap()), PostReason::OtherPd(OfPd::Mr)),
    ] {
        assert_eq!(reason(c.qp.post_send_blocks(SendWr::send(1, part)).unwrap_err()), (why, Some(1)));
    }
    assert_eq!((here.available(), there.available()), (4, 4));
    s.qp.post_recv_blocks(1, there.take().unwrap()).unwrap();
    assert_eq!(
        reason(s.qp.post_recv_blocks(2, there.take().unwrap()).unwrap_err()),
        (PostReason::NotReclaimed { max: 1 }, Some(1))
    );
    c.qp.post_send_blocks(SendWr::send(2, here.take().unwrap())).unwrap();
    let sent = done(&env, &mut c.send_cq);
    // The queue has room, and the program has not taken the block of the first request.
    let error = c.qp.post_send_blocks(SendWr::send(3, here.take().unwrap())).unwrap_err();
    assert_eq!((error.error.errno(), error.error.reason()), (Errno::ENOMEM, PostReason::NotReclaimed { max: 1 }));
    assert_eq!(
        error.to_string(),
        format!(
            "post_send on QP {}: the queue is full: it holds 1 requests with blocks, each until its completion is polled and reclaimed",
            c.qp.num()
        )
    );
    c.qp.reclaim(&sent).unwrap();
    c.qp.post_send_blocks(SendWr::send(3, error.given.unwrap())).unwrap();
}

#[test]
fn a_batch_that_is_refused_stays_with_its_owner() {
    let (_env, mut pair) = connected_with(Caps { max_send_wr: 2, max_recv_wr: 2, ..Caps::default() });
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let (here, there) = (pool(&c.pd, 4), pool(&s.pd, 4));
    let mut sends: Vec<_> = (0..2).map(|wr_id| SendWr::send(wr_id, Parts::from(here.take().unwrap()))).collect();
    sends.push(SendWr::send(2, here.take().unwrap().part(0..17).into()));
    let ErrorWith { given: blocks, error: refused } = c.qp.post_sends_blocks(sends).unwrap_err();
    assert_eq!((refused.posted, blocks.len()), (0, 3));
    let receives = (0..3).map(|wr_id| (wr_id, there.take().unwrap()));
    let ErrorWith { given: blocks, error: refused } = s.qp.post_recvs_blocks(receives).unwrap_err();
    assert_eq!((refused.error.reason(), blocks.len()), (PostReason::NotReclaimed { max: 2 }, 3));
    assert_eq!(s.qp.post_recvs_blocks((0..).zip(blocks.into_iter().take(2))).unwrap(), 2);
    let ErrorWith { given: blocks, error: refused } = s.qp.post_recvs_blocks::<Parts<_>, _>([]).unwrap_err();
    assert_eq!((refused.error.reason(), blocks.len()), (PostReason::EmptyBatch, 0));
}

/// The device has the request, and executes it later: its block does not come back before.
#[test]
fn a_block_that_the_device_may_have_queued_returns_to_its_pool_when_it_is_over() {
    let (env, mut pair) = connected_with(Caps::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let (here, there) = (pool(&c.pd, 2), pool(&s.pd, 2));
    for wr_id in 1..=2 {
        s.qp.post_recv_blocks(wr_id, there.take().unwrap()).unwrap();
    }
    env.host.fail_next_doorbell(Errno::EPERM);
    let refused = c.qp.post_send_blocks(SendWr::send(3, filled(&here, 3))).unwrap_err();
    assert_eq!(reason(refused), (PostReason::Device(Errno::EPERM), None));
    assert_eq!(here.available(), 1);
    c.qp.post_send_blocks(SendWr::send(3, filled(&here, 4))).unwrap();
    let sent = done(&env, &mut c.send_cq);
    let parts = c.qp.reclaim(&sent).expect("the block of the request that was posted");
    assert_eq!((parts[0][0], here.available()), (4, 1));
}

#[test]
fn blocks_of_a_destroyed_qp_return_when_its_cqs_are_drained() {
    for outlive in [false, true] {
        let (mut env, mut pair) = connected(Config { completions_outlive_qp: outlive, ..Config::default() });
        let Equipment { mut qp, pd, send_cq, mut recv_cq } = pair.server_qp;
        let (here, there) = (pool(&pair.client_qp.pd, 1), pool(&pd, 3));
        for wr_id in 1..=3 {
            qp.post_recv_blocks(wr_id, there.take().unwrap()).unwrap();
        }
        pair.client_qp.qp.post_send_blocks(SendWr::send(4, here.take().unwrap())).unwrap();
        env.fabric.advance_by(SECOND);
        drop(qp);
        assert_eq!(there.available(), 0, "the id has it");
        env.server.device.destroy_qp(pair.new).unwrap();
        if outlive {
            assert_eq!(there.available(), 0, "{outlive}");
            let mut left = [Completion::default(); 4];
            while recv_cq.poll(&mut left).unwrap() > 0 {}
        }
        assert_eq!((there.available(), pd.users()), (3, 1), "{outlive}");
        drop((there, send_cq, recv_cq));
        assert_eq!(pd.users(), 0, "the memory is deregistered");
    }
}

#[test]
fn on_iwarp_a_block_is_in_flight_until_its_own_completion() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let blocks = pool(&c.pd, 2);
    let there = s.pd.register(vec![7; 16], Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
    c.qp.post_send_blocks(SendWr::read(1, blocks.take().unwrap(), there.remote(0))).unwrap();
    c.qp.post_send_blocks(SendWr::write(2, blocks.take().unwrap(), there.remote(0))).unwrap();
    let mut one = [Completion::default()];
    while c.send_cq.poll(&mut one) == Ok(0) {
        let due = env.fabric.next_due().expect("a completion");
        env.fabric.advance_to(due);
    }
    assert_eq!(one[0].wr_id, 2, "TCP has the write");
    assert!(c.qp.reclaim(&Completion { wr_id: 1, ..one[0] }).is_none(), "the read goes on");
    assert!(c.qp.reclaim(&one[0]).is_some());
    let read = done(&env, &mut c.send_cq);
    assert_eq!((read.wr_id, read.status), (1, WcStatus::SUCCESS));
    assert_eq!(&c.qp.reclaim(&read).unwrap()[0][..], [7; 16]);
}

#[test]
fn a_pool_needs_a_block_and_lets_no_peer_write() {
    let (_env, pair) = connected(Config::default());
    let pd = &pair.client_qp.pd;
    let why = |refused: Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>>| match refused.unwrap_err() {
        ErrorWith { given: buffer, error: MemoryError::Refused(refused) } => (buffer.len(), refused.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(why(pd.pool(vec![0; 15], 16, LOCAL)), (15, MemoryReason::NoBlock));
    assert_eq!(why(pd.pool(vec![0; 16], 0, LOCAL)), (16, MemoryReason::NoBlock));
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert_eq!(why(pd.pool(vec![0; 16], 16, access)), (16, MemoryReason::PeersWriteToPool));
    }
    let pool = pd.pool(vec![3; 40], 16, Access::REMOTE_READ).unwrap();
    assert_eq!((pool.blocks(), pool.block_len(), pool.available()), (2, 16, 2));
    let [one, other] = [pool.take().unwrap(), pool.take().unwrap()];
    assert!(pool.take().is_none());
    assert_eq!(one.remote(0).addr.abs_diff(other.remote(0).addr), 16);
    assert_eq!((&one[..], pd.users()), (&[3; 16][..], 2));
    drop(pool);
    drop(one);
    assert_eq!(pd.users(), 2, "one block is left");
    drop(other);
    assert_eq!(pd.users(), 1);
}

#[test]
fn a_block_that_cannot_be_bound_comes_back() {
    let (_env, mut pair) = connected_with(Caps::default());
    let s = &mut pair.server_qp;
    let mut window = s.pd.alloc_mw().unwrap();
    let plain = pool(&s.pd, 2);
    let bindable = s.pd.pool(vec![0; 16], 16, Access::MW_BIND).unwrap();
    let refused = s.qp.post_bind_block(1, &mut window, plain.take().unwrap(), Access::REMOTE_READ).unwrap_err();
    assert_eq!(reason(refused), (PostReason::LacksRight(Access::MW_BIND), Some(1)));
    let shared = Arc::new(bindable.take().unwrap());
    let refused = s.qp.post_bind_block(1, &mut window, Arc::clone(&shared), Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(reason(refused), (PostReason::SharedBlock, Some(1)));
    s.qp.post_bind_block(1, &mut window, shared, Access::REMOTE_READ).unwrap();
    assert_eq!((plain.available(), bindable.available()), (2, 0));
}

#[test]
fn a_pool_has_memory_on_several_domains() {
    let (env, mut pair) = connected_with(Caps::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let both = c.pd.pool_with(std::slice::from_ref(&s.pd), vec![0; 32], 16, LOCAL).unwrap();
    assert_eq!((c.pd.users(), s.pd.users()), (2, 2));
    s.qp.post_recv_blocks(1, both.take().unwrap()).unwrap();
    c.qp.post_send_blocks(SendWr::send(2, filled(&both, 6))).unwrap();
    let received = done(&env, &mut s.recv_cq);
    let mut parts = s.qp.reclaim(&received).unwrap();
    assert_eq!(parts[0][..], [6; 16]);
    parts.as_mut_slice()[0].block_mut().unwrap().fill(8);
    let sent = done(&env, &mut c.send_cq);
    drop(c.qp.reclaim(&sent));
    // What was received on one is sent on the other, without a copy.
    s.qp.post_recv_blocks(3, both.take().unwrap()).unwrap();
    c.qp.post_send_blocks(SendWr::send(4, parts)).unwrap();
    let received = done(&env, &mut s.recv_cq);
    assert_eq!(s.qp.reclaim(&received).unwrap()[0][..], [8; 16]);
    let sent = done(&env, &mut c.send_cq);
    drop((c.qp.reclaim(&sent), both));
    assert_eq!((c.pd.users(), s.pd.users()), (1, 1));
}
