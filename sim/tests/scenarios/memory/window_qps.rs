//! The QP that a window was bound through: only its peer may use the window, and the QP exists as long as the window.

use cmid_proto::datapath::{Block, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_sim::{Completion, Mw, Piece, QpState, Remote, WcStatus};

use super::windows::{INVALIDATE, bindable, bound, ended, ended_after};
use super::*;
use crate::common::{Equipment, SECOND, connected, why};

const READ: WcOpcode = WcOpcode::RDMA_READ;

#[test]
fn a_window_keeps_the_qp_that_it_was_bound_through() {
    for invalidated in [false, true] {
        let (mut env, pair, mr) = bindable(Rereg::None);
        let mut s = pair.server_qp;
        let mut mw = bound(&env, &mut s, &mr, 0..8, Access::REMOTE_READ);
        if invalidated {
            s.qp.post_invalidate(2, &mut mw).unwrap();
            assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, INVALIDATE));
        }
        let posted = s.pd.register([0; 8], RW).unwrap();
        s.qp.post_recv(3, posted.sge(0..8)).unwrap();
        env.server.device.destroy_qp(pair.new).unwrap();
        assert_eq!(env.server.device.destroy_qp(pair.new), Err(Errno::EINVAL), "it is off its id");
        // The QP is in the error state, with everything flushed, but it still exists.
        assert_eq!((s.qp.state(), s.pd.users(), s.pd.users_at_device()), (Ok(QpState::ERR), 4, Some(4)));
        assert_eq!(ended(&env, &mut s.recv_cq), (WcStatus::WR_FLUSH_ERR, WcOpcode::RECV));
        drop((posted, s.qp));
        assert_eq!((s.pd.users(), s.pd.users_at_device()), (3, Some(3)));
        mw.dealloc().unwrap();
        assert_eq!((s.pd.users(), s.pd.users_at_device()), (1, Some(1)));
        mr.deregister().unwrap();
    }
}

/// A program may post binds to a QP that has failed: each fails, and may be bound as far as is known.
#[test]
fn binds_that_fail_for_ever_are_refused_at_a_limit() {
    let (env, pair, mr) = bindable(Rereg::None);
    let mut s = pair.server_qp;
    let mut mw = s.pd.alloc_mw().unwrap();
    let mut posted = 0;
    let refusal = loop {
        match s.qp.post_bind(posted, &mut mw, &mr, 0..8, Access::REMOTE_READ) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
        env.fabric.advance_by(SECOND);
        assert!(s.send_cq.poll_one().unwrap().is_some());
        assert!(posted < 1000);
    };
    assert_eq!((posted, refusal.reason(), refusal.errno()), (256, PostReason::TooManyBinds, Errno::ENOMEM));
    mw.dealloc().unwrap();
    let mut other = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut other, &mr, 0..8, Access::REMOTE_READ).unwrap();
}

#[test]
fn a_qp_without_id_and_handle_goes_with_its_window() {
    let (mut env, mut pair, mr) = bindable(Rereg::None);
    let mut s = pair.server_qp;
    let mw = bound(&env, &mut s, &mr, 0..8, Access::REMOTE_READ);
    env.server.destroy(pair.new).unwrap();
    drop(s.qp);
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (3, Some(3)));
    // The peer of the QP can no longer reach any memory.
    let c = &mut pair.client_qp;
    let here = c.pd.register([0; 8], RW).unwrap();
    c.qp.post_send(SendWr::read(3, here.sge(0..8), Remote { addr: mr.addr(), rkey: mw.rkey() })).unwrap();
    assert_eq!(ended_after(&env, &mut c.send_cq, 60 * SECOND), (WcStatus::RETRY_EXC_ERR, READ));
    drop(mw);
    mr.deregister().unwrap();
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (0, Some(0)));
}

#[test]
fn a_window_of_a_device_that_is_gone_keeps_no_qp() {
    let (env, mut pair, mr) = bindable(Rereg::None);
    let s = &mut pair.server_qp;
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    env.host.remove_device();
    assert_eq!(s.qp.state(), Err(Errno::EINVAL));
    assert_eq!(why(s.qp.post_invalidate(2, &mut mw)), Err(PostReason::Gone));
    assert_eq!(s.pd.users(), 2);
    drop(mw);
    assert_eq!(s.pd.users(), 1);
}

/// A window with a bind that is queued behind an invalidation, which waits until the peer has a receive. Returns what the peer
/// needs to write through it, once it is bound.
fn queued(s: &mut Equipment, mr: &Mr, block: Block<Piece>) -> (Mw, Mw, Remote) {
    let mut first = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut first, mr, 0..8, Access::REMOTE_READ).unwrap();
    s.qp.post_send(SendWr::send(2, mr.sge(0..8))).unwrap();
    s.qp.post_invalidate(3, &mut first).unwrap();
    let (mut mw, addr) = (s.pd.alloc_mw().unwrap(), block.remote(0).addr);
    s.qp.post_bind_block(4, &mut mw, block, Access::REMOTE_WRITE).unwrap();
    let rkey = mw.rkey();
    (first, mw, Remote { addr, rkey })
}

/// Otherwise its block would be free, and another window that has its key would be bound to it.
#[test]
fn a_window_is_deallocated_after_its_queued_bind_also_if_it_is_dropped_before() {
    let (env, mut pair) = connected(Config { reuses_keys: true, ..Config::default() });
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let mr = s.pd.register([0; 64], RW | Access::MW_BIND).unwrap();
    let pool = s.pd.pool(vec![0; 8], 8, Access::MW_BIND).unwrap();
    let (_first, mw, at) = queued(s, &mr, pool.take().unwrap());
    let ErrorWith { given: mw, error: errno } = mw.dealloc().unwrap_err();
    assert_eq!(errno, Errno::EBUSY);
    drop(mw);
    let _next = s.pd.alloc_mw().unwrap();
    assert_eq!((pool.available(), s.pd.users()), (0, 6), "the QP, two regions and three windows");
    let here = c.pd.register([7; 64], RW).unwrap();
    c.qp.post_recv(5, here.sge(0..8)).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(pool.available(), 0, "the bind is not polled");
    let mut done = [Completion::default(); 5];
    assert_eq!(s.send_cq.poll(&mut done), Ok(4));
    assert_eq!(done.map(|done| (done.wr_id, done.status))[3], (4, WcStatus::SUCCESS));
    assert_eq!((pool.available(), s.pd.users()), (1, 5));
    c.qp.post_send(SendWr::write(6, here.sge(0..8), at)).unwrap();
    assert_eq!(ended(&env, &mut c.send_cq).0, WcStatus::REM_ACCESS_ERR);
}
