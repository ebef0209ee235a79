//! Memory windows (behaviour 83).

use std::ops::Range;
use std::time::Duration;

use cmid_proto::datapath::{OfPd, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_sim::{Change, Cq, Flavour, Mw, QpState, WcStatus};

use super::*;
use crate::common::{Equipment, Pair, SECOND, completions, connected, only, why};

const BINDABLE: Access = RW.union(Access::MW_BIND);
pub(super) const BIND: WcOpcode = WcOpcode::BIND_MW;
pub(super) const INVALIDATE: WcOpcode = WcOpcode::LOCAL_INV;

pub(super) fn bindable(rereg: Rereg) -> (Env, Pair, Mr) {
    let (env, pair) = connected(Config { rereg, ..Config::default() });
    let mr = pair.server_qp.pd.register((0..64).collect::<Vec<_>>(), BINDABLE).unwrap();
    (env, pair, mr)
}

#[track_caller]
pub(super) fn ended(env: &Env, cq: &mut Cq) -> (WcStatus, WcOpcode) {
    ended_after(env, cq, SECOND)
}

#[track_caller]
pub(super) fn ended_after(env: &Env, cq: &mut Cq, span: Duration) -> (WcStatus, WcOpcode) {
    env.fabric.advance_by(span);
    let done = only(cq);
    (done.status, done.opcode)
}

/// A window that is bound to a range.
#[track_caller]
pub(crate) fn bound(env: &Env, s: &mut Equipment, mr: &Mr, range: Range<usize>, access: Access) -> Mw {
    let mut mw = s.pd.alloc_mw().unwrap();
    s.qp.post_bind(1, &mut mw, mr, range, access).unwrap();
    assert_eq!(ended(env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
    mw
}

/// On another fabric everything has the same numbers.
#[test]
fn what_is_of_another_fabric_or_a_datagram_qp_is_refused() {
    let (_env, pair, _) = bindable(Rereg::None);
    let mut mw = pair.server_qp.pd.alloc_mw().unwrap();
    let (mut env, mut far, _) = bindable(Rereg::None);
    assert_eq!(why(far.server_qp.qp.post_invalidate(1, &mut mw)), Err(PostReason::OtherPd(OfPd::Mw)));

    let id = env.client.id_in(cmid_proto::PortSpace::Udp, env.cc);
    env.client.bind(id, "10.0.0.1:0").unwrap();
    let mut d = env.client.qp(id);
    let (mut mw, mr) = (d.pd.alloc_mw().unwrap(), d.pd.register([0; 8], BINDABLE).unwrap());
    assert_eq!(why(d.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ)), Err(PostReason::IsDatagram));
    assert_eq!(why(d.qp.post_invalidate(1, &mut mw)), Err(PostReason::NotBound));
}

#[test]
fn a_bound_window_holds_the_rights_of_its_region() {
    // The end of the binding: an invalidation by this side, or by the peer, or the deallocation.
    for end in 0..3 {
        let (env, mut pair, mut mr) = bindable(Rereg::All);
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let mut mw = s.pd.alloc_mw().unwrap();
        s.qp.post_bind(1, &mut mw, &mr, 8..16, Access::REMOTE_WRITE).unwrap();
        let less = || Change::default().to_access(Access::LOCAL_WRITE);
        refused(mr.reregister(less(), Policy::default()).result.unwrap_err(), MemoryReason::InFlight);
        assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, BIND));
        for change in [less(), Change::default().to_buffer([0; 64])] {
            refused(mr.reregister(change, Policy::default()).result.unwrap_err(), MemoryReason::WindowBound);
        }
        let (there, here) = (s.pd.register([0; 8], RW).unwrap(), c.pd.register([9; 8], RW).unwrap());
        match end {
            0 => {
                s.qp.post_invalidate(2, &mut mw).unwrap();
                assert_eq!(why(s.qp.post_invalidate(2, &mut mw)), Err(PostReason::NotBound));
                refused(mr.reregister(less(), Policy::default()).result.unwrap_err(), MemoryReason::WindowBound);
                assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::SUCCESS, INVALIDATE));
            }
            1 => {
                s.qp.post_recv(2, there.sge(0..8)).unwrap();
                c.qp.post_send(SendWr::send_invalidate(3, here.sge(0..8), mw.rkey())).unwrap();
                assert_eq!(ended(&env, &mut c.send_cq).0, WcStatus::SUCCESS);
                refused(mr.reregister(less(), Policy::default()).result.unwrap_err(), MemoryReason::WindowBound);
                // The completion tells it.
                only(&mut s.recv_cq);
            }
            _ => drop(mw),
        }
        assert_eq!(mr.reregister(less(), Policy::default()).result, Ok(cmid_sim::Way::InPlace));
        assert_eq!(mr.slice().map(|slice| slice[8]), Ok(8));
    }
}

#[test]
fn a_dropped_region_waits_for_its_window() {
    let (env, mut pair, mr) = bindable(Rereg::None);
    let s = &mut pair.server_qp;
    let mw = bound(&env, s, &mr, 8..16, Access::REMOTE_READ);
    drop(mr);
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (3, Some(3)));
    drop(mw);
    assert_eq!((s.pd.users(), s.pd.users_at_device()), (1, Some(1)));
}

#[test]
fn a_bind_is_completed_after_the_requests_before_it() {
    let (env, mut pair, mr) = bindable(Rereg::None);
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let mut mw = s.pd.alloc_mw().unwrap();
    let here = c.pd.register([0; 8], RW).unwrap();
    // The message waits for a receive.
    s.qp.post_send(SendWr::send(1, mr.sge(0..8))).unwrap();
    s.qp.post_bind(2, &mut mw, &mr, 8..16, Access::REMOTE_READ).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(completions(&mut s.send_cq), []);
    c.qp.post_recv(3, here.sge(0..8)).unwrap();
    env.fabric.advance_by(SECOND);
    let ended: Vec<_> = completions(&mut s.send_cq).iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(ended, [1, 2].map(|id| (id, WcStatus::SUCCESS)));
}

#[test]
fn linux_6_1_reports_why_a_bind_failed() {
    let (env, pair) = connected(Config { flavour: Flavour::Linux6_1, ..Config::default() });
    let mut s = pair.server_qp;
    let mr = s.pd.register([0; 64], BINDABLE).unwrap();
    let mut mw = bound(&env, &mut s, &mr, 0..8, Access::REMOTE_READ);
    s.qp.post_bind(2, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(ended(&env, &mut s.send_cq), (WcStatus::MW_BIND_ERR, BIND));
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
}

/// On Linux 6.12 the QP fails at once (`rxe_requester`), on 6.1 when the bind is the first of the queue (`rxe_completer`).
#[test]
fn linux_6_1_fails_a_bind_after_the_requests_before_it() {
    for flavour in [Flavour::Linux6_1, Flavour::Linux6_12] {
        let (env, mut pair) = connected(Config { flavour, ..Config::default() });
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let mr = s.pd.register([0; 64], BINDABLE).unwrap();
        let here = c.pd.register([0; 8], RW).unwrap();
        let mut mw = s.pd.alloc_mw().unwrap();
        // The first message waits for a receive. What is posted behind the bind is not sent.
        s.qp.post_send(SendWr::send(1, mr.sge(0..8))).unwrap();
        s.qp.post_bind(2, &mut mw, &mr, 0..0, Access::REMOTE_READ).unwrap();
        s.qp.post_send(SendWr::send(3, mr.sge(0..8))).unwrap();
        env.fabric.advance_by(SECOND);
        let is_old = flavour == Flavour::Linux6_1;
        assert_eq!(s.qp.state(), Ok(if is_old { QpState::RTS } else { QpState::ERR }));
        assert_eq!(completions(&mut s.send_cq).len(), if is_old { 0 } else { 3 });
        (4..6).for_each(|wr_id| c.qp.post_recv(wr_id, here.sge(0..8)).unwrap());
        env.fabric.advance_by(SECOND);
        let ended: Vec<_> = completions(&mut s.send_cq).iter().map(|done| (done.wr_id, done.status)).collect();
        let late = [(1, WcStatus::SUCCESS), (2, WcStatus::MW_BIND_ERR), (3, WcStatus::WR_FLUSH_ERR)];
        assert_eq!(ended, if is_old { &late[..] } else { &[] });
        assert_eq!(completions(&mut c.recv_cq).len(), usize::from(is_old));
    }
}
