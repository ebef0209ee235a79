//! What a provider does with posted work: a post that it refuses may be in the queue, requests wait for others, and a
//! device has limits.

use cmid_proto::datapath::{Attaching, PostReason, SendWr, SrqCaps, prelude::*};
use cmid_proto::memory::MemoryError;
use cmid_proto::{CmEvent, ConnParam, Errno, ErrorWith};
use cmid_sim::{Access, Caps, Config, Cq, QpState, Remote, SendOp, WcStatus};

use crate::common::{Env, SECOND, completions, connected, why};
use crate::data_path::ends;
use crate::iwarp;
use crate::memory::windows::bound;

pub(crate) const ALL: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::MW_BIND);
/// The errno of a doorbell in a thread with other credentials than those that opened the device.
const REFUSED: Errno = Errno(13);
pub(crate) const OK: WcStatus = WcStatus::SUCCESS;
const FLUSHED: WcStatus = WcStatus::WR_FLUSH_ERR;

pub(crate) fn polled(env: &Env, cq: &mut Cq) -> Vec<(u64, WcStatus)> {
    env.fabric.advance_by(SECOND);
    completions(cq).iter().map(|done| (done.wr_id, done.status)).collect()
}

#[test]
fn a_refused_post_is_executed_with_the_next_doorbell_and_pins_its_memory_until_then() {
    let (env, mut c, s) = ends();
    let mut here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let other = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0xEE; 64], ALL).unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_send(SendWr::read(1, here.sge(0..64), there.remote(0))).is_err());
    assert_eq!(polled(&env, &mut c.send_cq), []);
    assert_eq!(here.slice().map(|_| ()), Err(Errno::EBUSY));
    c.qp.post_send(SendWr::write(2, other.sge(0..8), there.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(2, OK)]);
    assert_eq!(*here.slice().unwrap(), [0xEE; 64]);
}

#[test]
fn a_refused_batch_is_in_the_queue_as_a_whole() {
    let (env, mut c, s) = ends();
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 64], ALL).unwrap();
    let write = |n| SendWr::write(n, here.sge(0..8), there.remote(0));
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_sends((1..4).map(write)).is_err());
    assert_eq!(polled(&env, &mut c.send_cq), []);
    c.qp.post_send(write(4)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(4, OK)]);
    there.deregister().unwrap();
    here.deregister().unwrap();
}

/// As on a device, where the first request beyond the room ends the batch.
#[test]
fn a_batch_without_an_end_is_refused() {
    let (_env, mut pair) = connected(Config::default());
    let c = &mut pair.client_qp;
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let endless = std::iter::repeat_with(|| (1, here.sge(0..8)));
    let max = Caps::default().max_recv_wr;
    assert_eq!(
        c.qp.post_recvs(endless).map_err(|batch| (batch.posted, batch.error.reason())),
        Err((0, PostReason::QueueFull { max }))
    );
}

#[test]
fn refused_posts_fill_the_queue() {
    let (env, mut c, s) = ends();
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 64], ALL).unwrap();
    for n in 0..u64::from(Caps::default().max_send_wr) {
        env.host.fail_next_doorbell(REFUSED);
        assert!(c.qp.post_send(SendWr::write(n, here.sge(0..8), there.remote(0))).is_err());
    }
    assert!(c.qp.post_send(SendWr::write(99, here.sge(0..8), there.remote(0))).is_err());
    assert_eq!(polled(&env, &mut c.send_cq), []);
}

#[test]
fn refused_posts_are_flushed_in_the_error_state() {
    let (mut env, mut pair) = connected(Config::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let here = c.pd.register(vec![1; 64], ALL).unwrap();
    let there = s.pd.register(vec![0; 64], ALL).unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_send(SendWr::write(1, here.sge(0..8), there.remote(0)).unsignaled()).is_err());
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_recv(2, here.sge(0..8)).is_err());
    env.client.disconnect(pair.client).unwrap();
    let here = here.deregister().unwrap_err().given;
    assert_eq!((polled(&env, &mut c.send_cq), polled(&env, &mut c.recv_cq)), (vec![], vec![]));
    // It can be refused in the error state, too.
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_send(SendWr::write(3, here.sge(0..8), there.remote(0))).is_err());
    let here = here.deregister().unwrap_err().given;
    assert_eq!(polled(&env, &mut c.send_cq), []);
    c.qp.post_send(SendWr::write(4, here.sge(0..8), there.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(4, FLUSHED)]);
    here.deregister().unwrap();
}

#[test]
fn the_memory_of_a_refused_post_comes_back_with_the_end_of_its_qp() {
    let (mut env, mut pair) = connected(Config::default());
    let there = pair.server_qp.pd.register(vec![0; 64], ALL).unwrap();
    let c = &mut pair.client_qp;
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(c.qp.post_send(SendWr::read(1, here.sge(0..64), there.remote(0))).is_err());
    let here = here.deregister().unwrap_err().given;
    env.client.device.destroy_qp(pair.client).unwrap();
    drop(pair.client_qp.qp);
    assert_eq!(here.deregister().unwrap().buffer, [1; 64]);
}

#[test]
fn a_refused_receive_is_taken_after_the_next_doorbell() {
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 64], Access::LOCAL_WRITE).unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(s.qp.post_recv(1, there.sge(0..8)).is_err());
    c.qp.post_send(SendWr::send(7, here.sge(0..8))).unwrap();
    assert_eq!(polled(&env, &mut s.recv_cq), []);
    let ErrorWith { given: there, error } = there.deregister().unwrap_err();
    assert!(matches!(error, MemoryError::Refused(_)), "{error}");
    s.qp.post_recv(2, there.sge(8..16)).unwrap();
    c.qp.post_send(SendWr::send(8, here.sge(0..8))).unwrap();
    assert_eq!(polled(&env, &mut s.recv_cq), [(2, OK)]);
    there.deregister().unwrap();
}

#[test]
fn a_refused_receive_of_a_shared_queue_is_taken_after_the_next_doorbell() {
    let (env, pair) = connected(Config::default());
    let pd = &pair.server_qp.pd;
    let mut srq = pd.create_srq(SrqCaps { max_wr: 2, max_sge: 1 }).unwrap();
    let there = pd.register(vec![0; 64], Access::LOCAL_WRITE).unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(srq.post_recv(1, there.sge(0..8)).is_err());
    assert_eq!(srq.unpolled(), 1);
    let there = there.deregister().unwrap_err().given;
    srq.post_recv(2, there.sge(0..8)).unwrap();
    assert!(srq.post_recv(3, there.sge(0..8)).is_err());
    drop(srq);
    there.deregister().unwrap();
}

#[test]
fn a_refused_bind_is_executed_later() {
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![1; 8], ALL).unwrap();
    let there = s.pd.register(vec![0xEE; 64], ALL).unwrap();
    let mut window = s.pd.alloc_mw().unwrap();
    env.host.fail_next_doorbell(REFUSED);
    assert!(s.qp.post_bind(1, &mut window, &there, 0..8, Access::REMOTE_READ).is_err());
    s.qp.post_send(SendWr::write(2, there.sge(0..8), here.remote(0)).unsignaled()).unwrap();
    assert_eq!(polled(&env, &mut s.send_cq), []);
    // It may be unbound, and must not be invalidated then.
    assert!(s.qp.post_invalidate(9, &mut window).is_err());
    let shown = Remote { addr: there.addr(), rkey: window.rkey() };
    c.qp.post_send(SendWr::read(3, here.sge(0..8), shown)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(3, OK)]);
}

#[test]
fn a_refused_invalidate_is_executed_later() {
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![1; 8], ALL).unwrap();
    let there = s.pd.register(vec![0xEE; 64], ALL).unwrap();
    let mut window = bound(&env, &mut s, &there, 0..8, Access::REMOTE_READ);
    env.host.fail_next_doorbell(REFUSED);
    assert!(s.qp.post_invalidate(2, &mut window).is_err());
    let shown = Remote { addr: there.addr(), rkey: window.rkey() };
    c.qp.post_send(SendWr::read(3, here.sge(0..8), shown)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(3, OK)]);
    s.qp.post_send(SendWr::write(4, there.sge(0..8), here.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut s.send_cq), [(4, OK)]);
    c.qp.post_send(SendWr::read(5, here.sge(0..8), shown)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(5, WcStatus::REM_ACCESS_ERR)]);
}

#[test]
fn a_local_invalidate_waits_for_the_requests_before_it() {
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 64], ALL).unwrap();
    let mut window = bound(&env, &mut s, &there, 0..8, Access::REMOTE_READ);
    // It finds no receive, so it is not finished, and the window stays.
    s.qp.post_send(SendWr::send(2, there.sge(0..8))).unwrap();
    let shown = Remote { addr: there.addr(), rkey: window.rkey() };
    s.qp.post_invalidate(3, &mut window).unwrap();
    s.qp.post_bind(4, &mut window, &there, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(polled(&env, &mut s.send_cq), []);
    c.qp.post_send(SendWr::read(5, here.sge(0..8), shown)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(5, OK)]);
    c.qp.post_recv(6, here.sge(0..8)).unwrap();
    assert_eq!(polled(&env, &mut s.send_cq), [(2, OK), (3, OK), (4, OK)]);
    // The window has the key of its second bind.
    c.qp.post_send(SendWr::read(7, here.sge(0..8), shown)).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(7, WcStatus::REM_ACCESS_ERR)]);
}

#[test]
fn a_fenced_write_sends_what_a_read_before_it_has_brought() {
    for fenced in [false, true] {
        let (env, mut c, s) = ends();
        let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
        let [from, to] = [0xEE, 0].map(|byte| s.pd.register(vec![byte; 8], ALL).unwrap());
        c.qp.post_send(SendWr::read(1, here.sge(0..8), from.remote(0))).unwrap();
        let write = SendWr::write(2, here.sge(0..8), to.remote(0));
        c.qp.post_send(if fenced { write.fenced() } else { write }).unwrap();
        assert_eq!(polled(&env, &mut c.send_cq), [(1, OK), (2, OK)]);
        assert_eq!(to.deregister().unwrap().buffer, [if fenced { 0xEE } else { 1 }; 8]);
    }
}

/// The peer answers one at a time.
#[test]
fn a_read_waits_until_the_peer_can_answer_it_and_what_is_behind_it_waits_too() {
    let (env, mut c, s) = ends();
    let [here, other] = [1, 2].map(|byte| c.pd.register(vec![byte; 8], Access::LOCAL_WRITE).unwrap());
    let [from, to] = [0xEE, 0].map(|byte| s.pd.register(vec![byte; 8], ALL).unwrap());
    c.qp.post_send(SendWr::read(1, here.sge(0..8), from.remote(0))).unwrap();
    c.qp.post_send(SendWr::read(2, other.sge(0..8), from.remote(0))).unwrap();
    c.qp.post_send(SendWr::write(3, here.sge(0..8), to.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(to.deregister().unwrap().buffer, [0xEE; 8], "what the first read has brought");
}

#[test]
fn a_qp_without_its_id_is_flushed_and_its_peer_changes_nothing() {
    for destroyed in [false, true] {
        let (mut env, mut pair) = connected(Config::default());
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let here = c.pd.register(vec![1; 8], ALL).unwrap();
        let there = s.pd.register(vec![0; 8], ALL).unwrap();
        s.qp.post_recv(1, there.sge(0..8)).unwrap();
        if destroyed {
            env.server.destroy(pair.new).unwrap();
        } else {
            env.server.device.destroy_qp(pair.new).unwrap();
        }
        assert_eq!(s.qp.state(), Ok(QpState::ERR));
        assert_eq!(polled(&env, &mut s.recv_cq), [(1, FLUSHED)]);
        s.qp.post_send(SendWr::write(2, there.sge(0..8), here.remote(0))).unwrap();
        assert_eq!(polled(&env, &mut s.send_cq), [(2, FLUSHED)]);
        c.qp.post_send(SendWr::write(3, here.sge(0..8), there.remote(0))).unwrap();
        env.fabric.advance_by(SECOND * 10);
        assert_eq!(polled(&env, &mut c.send_cq), [(3, WcStatus::RETRY_EXC_ERR)]);
        assert_eq!(there.deregister().unwrap().buffer, [0; 8]);
    }
}

/// Of siw: `SIW_MAX_QP_WR`, `SIW_MAX_SGE`, `SIW_MAX_INLINE`, half of `SIW_MAX_CQE`, `SIW_MAX_SRQ_WR`.
#[test]
fn an_iwarp_device_has_other_limits() {
    let mut env = iwarp::env();
    let id = env.client.bound(env.cc, "10.0.0.1:0");
    let device = &mut env.client.device;
    for (depth, expected) in [(1_638_400, Ok(())), (1_638_401, Err(Errno::EINVAL))] {
        assert_eq!(device.create_cq(id, depth).map(drop).map_err(Errno::from), expected, "{depth}");
    }
    let (pd, cq) = (device.alloc_pd(id).unwrap(), device.create_cq(id, 64).unwrap());
    let most = Caps { max_send_wr: 8, max_recv_wr: 0, max_send_sge: 6, max_recv_sge: 6, max_inline: 80 };
    for (caps, expected) in [
        (most, Ok(())),
        (Caps { max_send_wr: 0, ..most }, Err(Errno::EINVAL)),
        (Caps { max_send_wr: 32_769, ..most }, Err(Errno::EINVAL)),
        (Caps { max_send_sge: 7, ..most }, Err(Errno::EINVAL)),
        (Caps { max_recv_sge: 7, ..most }, Err(Errno::EINVAL)),
        (Caps { max_inline: 81, ..most }, Err(Errno::EINVAL)),
    ] {
        let made = device.create_qp(Attaching::bare(id), &pd, &cq, &cq, caps);
        assert_eq!(made.map(drop).map_err(Errno::from), expected, "{caps:?}");
        assert_eq!(device.destroy_qp(id), expected);
    }
    for (max_wr, max_sge, expected) in
        [(327_680, 6, Ok(6)), (327_681, 6, Err(Errno::EINVAL)), (1, 7, Err(Errno::EINVAL))]
    {
        let made = pd.create_srq(SrqCaps { max_wr, max_sge }).map(|srq| srq.caps().max_sge);
        assert_eq!(made.map_err(Errno::from), expected, "{max_wr}, {max_sge}");
    }
}

/// As on rxe, which does not check the range of a window (`check_rkey`).
#[test]
fn a_window_without_range_gives_access_to_the_whole_region() {
    for (windows_without_range, status) in [(true, OK), (false, WcStatus::REM_ACCESS_ERR)] {
        let (env, mut pair) = connected(Config { windows_without_range, ..Config::default() });
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
        let there = s.pd.register(vec![0; 64], ALL).unwrap();
        let window = bound(&env, s, &there, 8..16, Access::REMOTE_READ);
        let beside = Remote { addr: there.addr() + 32, rkey: window.rkey() };
        c.qp.post_send(SendWr::read(2, here.sge(0..8), beside)).unwrap();
        assert_eq!(polled(&env, &mut c.send_cq), [(2, status)]);
    }
}

/// As on rxe: `rxe_invalidate_mr` refuses the key of a region that user space has registered, after the message is
/// acknowledged.
#[test]
fn the_key_of_a_region_cannot_be_invalidated_by_a_message() {
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 8], ALL).unwrap();
    for n in 1..3 {
        s.qp.post_recv(n, there.sge(0..8)).unwrap();
    }
    let mut message = SendWr::send(3, here.sge(0..8));
    message.op = SendOp::SendInvalidate(there.rkey());
    c.qp.post_send(message).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(3, OK)]);
    assert_eq!(polled(&env, &mut s.recv_cq), [(1, WcStatus::REM_INV_REQ_ERR), (2, FLUSHED)]);
    assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::RTS), Ok(QpState::ERR)));
    there.deregister().unwrap();
}

/// An accept that answers reads, of a request that says it starts none: the kernel gives the QP no right to them.
#[test]
fn a_read_that_the_peer_does_not_answer_is_refused_or_fails() {
    let invalid = vec![(1, WcStatus::REM_INV_REQ_ERR)];
    for (starts, serves, expected) in [(1, 0, None), (0, 4, Some(invalid)), (1, 4, Some(vec![(1, OK)]))] {
        let mut env = Env::new();
        env.server.listener(env.cs, "10.0.0.2:7");
        let client = env.client.resolved(env.cc, "10.0.0.2:7");
        let mut c = env.client.qp(client);
        let param = env.cp();
        env.client.connect(client, ConnParam { initiator_depth: starts, ..param }, &[]).unwrap();
        let new = env.server.next(env.cs).id;
        let s = env.server.qp(new);
        env.server.accept(new, ConnParam { responder_resources: serves, ..param }, &[]).unwrap();
        env.client.next(env.cc).is(client, CmEvent::Established, 0);
        let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
        let posted = c.qp.post_send(SendWr::read(1, here.sge(0..8), there.remote(0)));
        match expected {
            None => assert_eq!(why(posted), Err(PostReason::NoReads)),
            Some(expected) => {
                posted.unwrap();
                let state = if expected[0].1 == OK { QpState::RTS } else { QpState::ERR };
                assert_eq!(polled(&env, &mut c.send_cq), expected);
                assert_eq!((c.qp.state(), s.qp.state()), (Ok(state), Ok(state)));
            }
        }
    }
}
