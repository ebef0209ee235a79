//! Blocks: memory that moves into a work request, and back with its completion.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use cmid_model::blocks::{self, Ground};
use cmid_proto::IdKey;
use cmid_proto::datapath::{Parts, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_verbs::{Access, Block, Pd, Pool};
use rustix::thread::{Uid, set_thread_res_uid};

use crate::data::{polled, register, success};
use crate::env::{Pair, Side, answered_on, param};
use crate::memory::{PAGE, mapped};

/// The length of a block: more than is sent inline.
const LEN: usize = 256;

pub(crate) fn pool(pd: &Pd, blocks: usize) -> Pool {
    pd.pool(vec![0; blocks * LEN], LEN, Access::empty()).expect("a pool")
}

fn filled(pool: &Pool, byte: u8) -> Block {
    let mut block = pool.take().expect("a free block");
    block.fill(byte);
    block
}

fn whole(parts: Option<Parts<cmid_verbs::Piece>>) -> Block {
    parts.and_then(Parts::into_block).expect("the block")
}

/// A request that the kernel has refused has its block until a later completion has passed it.
pub(crate) fn refused() {
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let here = pool(&c.pd, 2);
    let shared = register(&s, 0xee, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE);
    let (first, at) = (here.take().expect("a block"), shared.remote(0));
    let refused = std::thread::scope(|scope| {
        let post = || {
            let nobody = Uid::from_raw(65534);
            set_thread_res_uid(nobody, nobody, nobody).expect("it is root");
            c.qp.post_send_blocks(SendWr::read(1, first, at))
        };
        scope.spawn(post).join().expect("no panic")
    });
    let refused = refused.expect_err("the kernel compares the credentials");
    assert!(matches!(refused.error.reason(), PostReason::Device(_)) && refused.given.is_none());
    assert_eq!(here.available(), 1);
    c.qp.post_send_blocks(SendWr::read(1, here.take().expect("a block"), at)).expect("post_send");
    let done = success(polled(&mut c.cq), 1, WcOpcode::RDMA_READ);
    let block = whole(c.qp.reclaim(&done));
    assert_eq!((block[0], here.available()), (0xee, 1), "that of the second request");
}

/// What is under the ends of a connection.
struct Sides([(Side, IdKey); 2]);

impl Ground for Sides {
    fn wait(&mut self) {
        sleep(Duration::from_millis(1));
    }

    fn detach(&mut self, end: usize) {
        let (side, id) = &mut self.0[end];
        side.device.destroy_qp(*id).expect("destroy_qp");
    }
}

/// Programs that do what safe code may.
pub(crate) fn any_program() {
    let mut dice = 1_u64;
    for _ in 0..30 {
        let Pair { client, server, c, s, .. } = Pair::connected();
        let sides = Sides([(client, c.id), (server, s.id)]);
        let ends = [c, s].map(|end| {
            let memory = vec![blocks::READ; 2 * blocks::LEN];
            let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            let memory = end.pd.register(memory, rights).expect("register");
            let all = vec![0; blocks::BLOCKS * blocks::LEN];
            let pool = end.pd.pool(all, blocks::LEN, Access::empty()).expect("a pool");
            blocks::End { qp: end.qp, cq: end.cq, pool, memory }
        });
        let bytes = (0..1000).map(|_| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 56) as u8
        });
        blocks::adversary(&bytes.collect::<Vec<u8>>(), sides, ends);
    }
}

/// One pool of mapped memory, for connections of two devices that share what is open.
pub(crate) fn of_siblings() {
    let Pair { mut client, server, mut c, mut s, .. } = Pair::connected();
    let mut sibling = Side::with(server.device.sibling());
    let (_, addr) = sibling.listener();
    let id = client.resolved(addr);
    let (mut d, mut t) = answered_on(&mut client, &mut sibling, id, param(), Some(s.pd.clone()));
    let (memory, unmapped) = mapped(PAGE);
    let there = s.pd.pool(memory, LEN, Access::empty()).expect("a pool");
    assert_eq!(there.blocks(), PAGE / LEN);
    for (byte, (from, to)) in [(1, (&mut c, &mut s)), (2, (&mut d, &mut t))] {
        let here = pool(&from.pd, 1);
        to.qp.post_recv_blocks(3, filled(&there, 0)).expect("post_recv");
        from.qp.post_send_blocks(SendWr::send(4, filled(&here, byte))).expect("post_send");
        let block = whole(to.qp.reclaim(&success(polled(&mut to.cq), 3, WcOpcode::RECV)));
        assert_eq!(block[..], [byte; LEN]);
        assert!(from.qp.reclaim(&success(polled(&mut from.cq), 4, WcOpcode::SEND)).is_some());
    }
    let last = there.take().expect("a block");
    drop(there);
    assert_eq!(unmapped.load(Ordering::Relaxed), 0, "a block keeps the memory");
    drop(last);
    assert_eq!(unmapped.load(Ordering::Relaxed), 1);
}
