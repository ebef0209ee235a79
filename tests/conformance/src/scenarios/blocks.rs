//! Blocks: memory that moves into a work request, and back with its completion; and memory of several registrations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{DeviceOf, MrOf, PdOf, Side};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::datapath::{Block, Completion, Parts, Pool, PostReason, Remote, SendWr, SrqCaps, WcStatus, prelude::*};
use cmid_proto::memory::{Access, MemoryReason};
use cmid_proto::{Errno, ErrorWith};

use super::memory::{LEN, READABLE, bytes, deregister, refused, register, used};

type PieceOf<L> = <DeviceOf<L> as DataPath>::Piece;
type BufferOf<L> = <MrOf<L> as MemoryRegion>::Buffer;

fn pool<L: Env>(pd: &PdOf<L>, blocks: usize, access: Access) -> Check<Pool<PieceOf<L>>> {
    let memory = vec![0; blocks * LEN];
    Ok(pd.pool(memory, LEN, access)?)
}

fn filled<L: Env>(pool: &Pool<PieceOf<L>>, byte: u8) -> Check<Block<PieceOf<L>>> {
    let mut block = pool.take().ok_or_else(|| Failure("no block is free".into()))?;
    block.fill(byte);
    Ok(block)
}

/// The first byte of the blocks of a request that is over.
fn first<L: Env>(parts: Option<Parts<PieceOf<L>>>) -> Check<u8> {
    let block = parts.and_then(Parts::into_block);
    block.map(|block| block[0]).ok_or_else(|| Failure("no block comes back".into()))
}

pub(super) fn a_block_comes_back_with_its_completion<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (here, there) = (pool::<L>(&own, 4, Access::empty())?, pool::<L>(&pd, 4, Access::empty())?);
    used("a pool is one registration", &own, 1)?;
    let (mut client, mut server) = b.join(&own, &pd)?;
    let mut receives = Vec::new();
    for wr_id in 1..=3 {
        receives.push((wr_id, filled::<L>(&there, 0)?));
    }
    same("a batch of receives", server.qp.post_recvs_blocks(receives)?, 3)?;
    client.qp.post_send_blocks(SendWr::send(4, filled::<L>(&here, 9)?.part(0..8)))?;
    let received = b.done(&mut server)?;
    same("the receive", (received.wr_id, received.status, received.byte_len), (1, WcStatus::SUCCESS, 8))?;
    same("its byte", first::<L>(server.qp.reclaim(&received))?, 9)?;
    ensure(server.qp.reclaim(&received).is_none(), || "a block comes back twice".into())?;
    same("free blocks", (here.available(), there.available()), (3, 2))?;
    let sent = b.done(&mut client)?;
    same("what was sent", first::<L>(client.qp.reclaim(&sent))?, 9)?;
    // One block in two requests.
    let shared = Arc::new(filled::<L>(&here, 7)?);
    for wr_id in 5..=6 {
        client.qp.post_send_blocks(SendWr::send(wr_id, Arc::clone(&shared)))?;
    }
    let refusal = client.qp.post_recv_blocks(7, Arc::clone(&shared)).map_err(|refused| refused.error.reason());
    same("a receive into it", refusal, Err(PostReason::SharedBlock))?;
    for _ in 0..2 {
        let received = b.done(&mut server)?;
        same("its byte", first::<L>(server.qp.reclaim(&received))?, 7)?;
        let sent = b.done(&mut client)?;
        ensure(client.qp.reclaim(&sent).is_some(), || "it is lost".into())?;
    }
    drop(shared);
    same("free blocks", (here.available(), there.available()), (4, 4))?;
    // What never completes comes back with its QP.
    server.qp.post_recv_blocks(8, filled::<L>(&there, 0)?)?;
    b.part((client, server))?;
    same("free blocks", there.available(), 4)?;
    two_qps_take_blocks_of_an_srq(b, &own, &pd)
}

fn two_qps_take_blocks_of_an_srq<L: Env>(b: &mut Fixture<'_, L>, own: &PdOf<L>, pd: &PdOf<L>) -> Check {
    let mut srq = pd.create_srq(SrqCaps { max_wr: 4, max_sge: 1 })?;
    let (here, there) = (pool::<L>(own, 1, Access::empty())?, pool::<L>(pd, 5, Access::empty())?);
    let mut receives = Vec::new();
    for wr_id in 0..3 {
        receives.push((wr_id, filled::<L>(&there, 0)?));
    }
    same("a batch of receives", srq.post_recvs_blocks(receives)?, 3)?;
    srq.post_recv_blocks(3, filled::<L>(&there, 0)?)?;
    let full = srq.post_recv_blocks(4, filled::<L>(&there, 0)?);
    let full = full.map_err(|refused| (refused.error.reason(), refused.given.is_some()));
    same("one too many", full, Err((PostReason::NotReclaimed { max: 4 }, true)))?;
    ensure(srq.reclaim(&Completion::default()).is_none(), || "no QP has taken it".into())?;
    let mut ends = [b.join_on_srq(own, pd, &srq)?, b.join_on_srq(own, pd, &srq)?];
    for byte in 0..4_u8 {
        let (client, server) = &mut ends[usize::from(byte % 2)];
        client.qp.post_send_blocks(SendWr::send(9, filled::<L>(&here, byte)?))?;
        let received = b.done(server)?;
        same("the receive", (received.wr_id, received.status), (byte.into(), WcStatus::SUCCESS))?;
        same("its byte", first::<L>(srq.reclaim(&received))?, byte)?;
        let sent = b.done(client)?;
        same("what was sent", first::<L>(client.qp.reclaim(&sent))?, byte)?;
    }
    same("free blocks", (there.available(), srq.unpolled()), (5, 0))?;
    srq.post_recv_blocks(5, filled::<L>(&there, 0)?)?;
    drop(srq);
    same("its QPs are there", there.available(), 4)?;
    ends.into_iter().try_for_each(|ends| b.part(ends))?;
    same("free blocks", there.available(), 5)
}

pub(super) fn a_window_owns_its_block<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    for by_peer in [false, true] {
        let (here, notice) = (pool::<L>(&own, 2, Access::empty())?, pool::<L>(&pd, 1, Access::empty())?);
        let there = pool::<L>(&pd, 2, Access::MW_BIND)?;
        used("each block that can be bound is a registration", &pd, 3)?;
        let (mut client, mut server) = b.join(&own, &pd)?;
        let mut window = pd.alloc_mw()?;
        let block = filled::<L>(&there, 1)?;
        let addr = block.remote(0).addr;
        server.qp.post_bind_block(1, &mut window, block, Access::REMOTE_WRITE)?;
        b.ends(&mut server, 1, WcStatus::SUCCESS)?;
        let through = Remote { addr, rkey: window.rkey() };
        client.qp.post_send_blocks(SendWr::write(2, filled::<L>(&here, 6)?.part(1..LEN), through))?;
        b.ends(&mut client, 2, WcStatus::SUCCESS)?;
        ensure(window.reclaim().is_none(), || "the peer may write to it".into())?;
        if by_peer {
            server.qp.post_recv_blocks(3, filled::<L>(&notice, 0)?)?;
            client.qp.post_send_blocks(SendWr::send_invalidate(3, filled::<L>(&here, 0)?, window.rkey()))?;
            b.ends(&mut client, 3, WcStatus::SUCCESS)?;
        } else {
            server.qp.post_invalidate(3, &mut window)?;
        }
        ensure(window.reclaim().is_none(), || "the invalidation is not polled".into())?;
        b.ends(&mut server, 3, WcStatus::SUCCESS)?;
        let part = window.reclaim().ok_or_else(|| Failure("it is not returned".into()))?;
        same("what the peer has written", (part[LEN - 2], part[LEN - 1]), (6, 1))?;
        ensure(window.reclaim().is_none(), || "it is returned twice".into())?;
        same("the block", there.available(), 1)?;
        server.qp.post_bind_block(4, &mut window, part, Access::REMOTE_READ)?;
        b.ends(&mut server, 4, WcStatus::SUCCESS)?;
        if by_peer {
            drop(window);
        } else {
            let mut parts = window.dealloc()?;
            same("what is returned", parts.pop().map(|part| part[LEN - 2]), Some(6))?;
        }
        same("the block", there.available(), 2)?;
        b.part((client, server))?;
        drop((here, notice, there));
        a_queued_bind_holds_its_window(b, &own, &pd, by_peer)?;
    }
    Ok(())
}

/// Otherwise the device would bind another window that has its key meanwhile, and its block would be free. The bind waits
/// behind an invalidation, and that behind a send for which the peer has no receive.
fn a_queued_bind_holds_its_window<L: Env>(
    b: &mut Fixture<'_, L>,
    own: &PdOf<L>,
    pd: &PdOf<L>,
    is_polled: bool,
) -> Check {
    let from = register(pd, vec![7; LEN], Access::LOCAL_WRITE | Access::MW_BIND)?;
    let (into, there) = (register(own, vec![0; LEN], Access::LOCAL_WRITE)?, pool::<L>(pd, 1, Access::MW_BIND)?);
    let (mut client, mut server) = b.join(own, pd)?;
    let (mut first, mut second) = (pd.alloc_mw()?, pd.alloc_mw()?);
    server.qp.post_bind(1, &mut first, &from, 0..8, Access::REMOTE_READ)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    server.qp.post_send(SendWr::send(2, from.sge(0..8)))?;
    server.qp.post_invalidate(3, &mut first)?;
    server.qp.post_bind_block(4, &mut second, filled::<L>(&there, 1)?, Access::REMOTE_WRITE)?;
    let users = pd.users();
    let Err(ErrorWith { given: second, error }) = second.dealloc() else {
        return Err(Failure("its bind is queued".into()));
    };
    same("its bind is queued", error, Errno::EBUSY)?;
    drop(second);
    same("what is left", (pd.users(), there.available()), (users, 0))?;
    if is_polled {
        client.qp.post_recv(5, into.sge(0..8))?;
        for wr_id in 2..=4 {
            b.ends(&mut server, wr_id, WcStatus::SUCCESS)?;
        }
        drop(pd.alloc_mw()?);
        same("without the window", (pd.users(), there.available()), (users - 1, 1))?;
    }
    // Otherwise the QP has no owner but the windows now, and executes nothing.
    let started = Instant::now();
    drop(first);
    b.part((client, server))?;
    same("without the QP", (pd.users(), there.available()), (users - 3, 1))?;
    ensure(started.elapsed() < Duration::from_secs(5), || format!("{:?}", started.elapsed()))?;
    deregister(from)?;
    deregister(into).map(drop)
}

pub(super) fn several_registrations_share_memory<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (_own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let memory = BufferOf::<L>::from(bytes(3)).share();
    let shared = |pd: &PdOf<L>, access| pd.register(memory.clone(), access);
    let (mut one, other) = (shared(&pd, Access::LOCAL_WRITE)?, shared(&pd, READABLE)?);
    same("the address", one.addr(), other.addr())?;
    one.write(0, &[8])?;
    same("a slice", one.slice().map(|slice| slice.len()), Err(Errno::EBUSY))?;
    let pooled = pd.pool(memory.clone(), LEN, Access::empty());
    refused("a pool", pooled, MemoryReason::SharedPool)?;
    // The end of the one leaves the other.
    one.deregister()?;
    let read = b.peer_reads(&pd, other.remote(0), LEN)?;
    same("what the peer has read", read.map(|read| (read[0], read[1])), Ok((8, bytes(3)[1])))?;
    drop(other);
    let back: BufferOf<L> = memory.into();
    let back = back.into_vec();
    same("what is left", back.map(|back| back.len()).ok(), Some(LEN))
}
