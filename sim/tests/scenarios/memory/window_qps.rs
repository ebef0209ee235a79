//! The QP that a window was bound through: only its peer may use the window, and the QP exists as long as the window.

use cmid_proto::CmEvent;
use cmid_proto::datapath::{
    DataPath, MemoryRegion, MemoryWindow, PostReason, ProtectionDomain, QueuePair, SendWr, WcOpcode,
};
use cmid_sim::{Caps, QpState, Remote, WcStatus};

use super::windows::{BIND, INVALIDATE, connected, ended, ended_after};
use super::*;
use crate::common::{Equipment, Pair, SECOND, why};

const READ: WcOpcode = WcOpcode::RDMA_READ;

#[test]
fn only_the_peer_of_the_qp_that_it_was_bound_through_may_use_it() {
    let (mut env, mut pair, mr) = connected(Rereg::None);
    let (mut second, s) = (second_of(&mut env, &pair), &mut pair.server_qp);
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
    for (c, status) in [(&mut second.0, WcStatus::REM_ACCESS_ERR), (&mut pair.client_qp, WcStatus::SUCCESS)] {
        let here = c.pd.register([0; 8], RW).unwrap();
        c.qp.post_send(SendWr::read(3, here.sge(0..8), Remote { addr: mr.addr(), rkey: mw.rkey() })).unwrap();
        assert_eq!(ended(&env, &mut c.send_cq).0, status);
    }
}

/// A second connection to the listener. Its server QP is in the same domain as that of the first.
fn second_of(env: &mut Env, first: &Pair) -> (Equipment, Equipment, IdKey) {
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    let c = env.client.qp(client);
    let param = env.cp();
    env.client.connect(client, param, &[]).unwrap();
    let new = env.server.requested(env.cs, first.listener);
    let pd = first.server_qp.pd.clone();
    let [send_cq, recv_cq] = [0; 2].map(|_| env.server.device.create_cq(new, 64).unwrap());
    let qp = env
        .server
        .device
        .create_qp(cmid_proto::datapath::Attaching::bare(new), &pd, &send_cq, &recv_cq, Caps::default())
        .unwrap();
    let param = env.cp();
    env.server.accept(new, param, &[]).unwrap();
    env.client.next(env.cc).is(client, CmEvent::Established, 0);
    env.server.next(env.cs).is(new, CmEvent::Established, 0);
    (c, Equipment { qp, pd, send_cq, recv_cq }, new)
}

#[test]
fn a_window_keeps_the_qp_that_it_was_bound_through() {
    for invalidated in [false, true] {
        let (mut env, pair, mr) = connected(Rereg::None);
        let mut s = pair.server_qp;
        let mut mw = s.pd.alloc_mw().unwrap();
        s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
        assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
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
        returned(mr);
    }
}

#[test]
fn a_window_that_is_bound_elsewhere_lets_the_first_qp_go() {
    let (mut env, pair, mr) = connected(Rereg::None);
    let (_client, mut second, new) = second_of(&mut env, &pair);
    let mut s = pair.server_qp;
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
    assert_eq!(
        why(second.qp.post_invalidate(2, &mut mw)),
        Err(PostReason::NotBound),
        "it was not bound through this one"
    );
    s.qp.post_invalidate(2, &mut mw).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, INVALIDATE));
    env.server.device.destroy_qp(pair.new).unwrap();
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
    drop(s.qp);
    // The MR, the window and both QPs.
    assert_eq!(s.pd.users_at_device(), Some(4));
    second.qp.post_bind(3, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut second.send_cq), (WcStatus::SUCCESS, BIND));
    assert_eq!(s.pd.users_at_device(), Some(3));
    env.server.device.destroy_qp(new).unwrap();
    drop(second.qp);
    assert_eq!(s.pd.users_at_device(), Some(3));
    drop(mw);
    assert_eq!(s.pd.users_at_device(), Some(1));
    returned(mr);
}

#[test]
fn an_attempt_to_bind_it_elsewhere_keeps_no_other_qp() {
    let (mut env, pair, mr) = connected(Rereg::None);
    let (_client, mut second, new) = second_of(&mut env, &pair);
    let mut s = pair.server_qp;
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
    second.qp.post_bind(2, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut second.send_cq), (WcStatus::WR_FLUSH_ERR, BIND));
    env.server.device.destroy_qp(new).unwrap();
    drop(second.qp);
    assert_eq!(s.pd.users_at_device(), Some(3));
    env.server.device.destroy_qp(pair.new).unwrap();
    drop(s.qp);
    assert_eq!(s.pd.users_at_device(), Some(3));
    drop(mw);
    assert_eq!(s.pd.users_at_device(), Some(1));
    returned(mr);
}

#[test]
fn a_qp_without_id_and_handle_goes_with_its_window() {
    let (mut env, mut pair, mr) = connected(Rereg::None);
    let mut s = pair.server_qp;
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
    env.server.destroy(pair.new).unwrap();
    drop(s.qp);
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (3, Some(3)));
    // The peer of the QP can no longer reach any memory.
    let c = &mut pair.client_qp;
    let here = c.pd.register([0; 8], RW).unwrap();
    c.qp.post_send(SendWr::read(3, here.sge(0..8), Remote { addr: mr.addr(), rkey: mw.rkey() })).unwrap();
    assert_eq!(ended_after(&env, &mut c.send_cq, 60 * SECOND), (WcStatus::RETRY_EXC_ERR, READ));
    drop(mw);
    returned(mr);
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (0, Some(0)));
}

#[test]
fn a_window_of_a_device_that_is_gone_keeps_no_qp() {
    let (env, mut pair, mr) = connected(Rereg::None);
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
