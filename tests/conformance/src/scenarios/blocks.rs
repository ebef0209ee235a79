//! Blocks: memory that moves into a work request, and back with its completion; and memory of several registrations.

use std::sync::Arc;

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{DeviceOf, MrOf, PdOf, Side};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::Errno;
use cmid_proto::datapath::{
    Block, DataPath, Memory as _, MemoryRegion, MemoryWindow, Parts, Pool, PostReason, ProtectionDomain, QueuePair,
    Remote, SendWr, WcStatus,
};
use cmid_proto::memory::{Access, MemoryReason};

use super::memory::{LEN, READABLE, bytes, refused, used};

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
    Ok(())
}

pub(super) fn a_window_owns_its_block<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (here, there) = (pool::<L>(&own, 1, Access::empty())?, pool::<L>(&pd, 2, Access::MW_BIND)?);
    used("each block that can be bound is a registration", &pd, 2)?;
    let (mut client, mut server) = b.join(&own, &pd)?;
    let mut window = pd.alloc_mw()?;
    let block = filled::<L>(&there, 1)?;
    let addr = block.remote(0).addr;
    server.qp.post_bind_block(1, &mut window, block, Access::REMOTE_WRITE)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    client.qp.post_send_blocks(SendWr::write(2, filled::<L>(&here, 6)?, Remote { addr, rkey: window.rkey() }))?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    ensure(window.reclaim().is_none(), || "the peer may write to it".into())?;
    server.qp.post_invalidate(3, &mut window)?;
    ensure(window.reclaim().is_none(), || "the invalidation is not complete".into())?;
    b.ends(&mut server, 3, WcStatus::SUCCESS)?;
    let part = window.reclaim().ok_or_else(|| Failure("it is not returned".into()))?;
    same("what the peer has written", part[LEN - 1], 6)?;
    same("the block", there.available(), 1)?;
    server.qp.post_bind_block(4, &mut window, part, Access::REMOTE_READ)?;
    b.ends(&mut server, 4, WcStatus::SUCCESS)?;
    window.dealloc()?;
    same("the block", there.available(), 2)?;
    b.part((client, server))?;
    Ok(())
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
