//! Work requests on iWARP: sends and writes complete when TCP has them, reads when they are answered.

use cmid_proto::datapath::{Caps, Completion, PostReason, SendWr, prelude::*};
use cmid_proto::{Errno, Transport};
use cmid_sim::{Access, Config, QpState, Remote, SendOp, WcFlags, WcOpcode, WcStatus};

use crate::common::{bytes_at, only, why};
use crate::data_path::ended;
use crate::iwarp;
use crate::providers::{ALL, OK, polled};

#[test]
fn on_iwarp_a_write_completes_before_the_read_that_was_posted_first() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let mut here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let other = c.pd.register(vec![2; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0xEE; 64], ALL).unwrap();
    let latency = Config::default().latency;
    c.qp.post_send(SendWr::read(1, here.sge(0..64), there.remote(0))).unwrap();
    c.qp.post_send(SendWr::write(2, other.sge(0..8), there.remote(0))).unwrap();
    env.fabric.advance_by(latency);
    ended(&mut c.send_cq, &[(2, OK, WcOpcode::RDMA_WRITE, 0)]);
    // The read is still in flight.
    assert_eq!(here.slice().map(|_| ()), Err(Errno::EBUSY));
    assert_eq!(other.deregister().unwrap().buffer, [2; 64]);
    env.fabric.advance_by(latency);
    ended(&mut c.send_cq, &[(1, OK, WcOpcode::RDMA_READ, 64)]);
    assert_eq!(*here.slice().unwrap(), [0xEE; 64]);
}

#[test]
fn on_iwarp_a_fenced_request_waits_for_the_reads_before_it() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0xEE; 64], ALL).unwrap();
    c.qp.post_send(SendWr::read(1, here.sge(0..64), there.remote(0))).unwrap();
    c.qp.post_send(SendWr::write(2, here.sge(0..8), there.remote(0)).fenced()).unwrap();
    c.qp.post_send(SendWr::write(3, here.sge(0..8), there.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(1, OK), (2, OK), (3, OK)]);
}

#[test]
fn on_iwarp_a_write_that_the_peer_refuses_succeeds_and_ends_the_connection() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let here = c.pd.register(vec![1; 64], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 64], Access::LOCAL_WRITE).unwrap();
    c.qp.post_send(SendWr::write(1, here.sge(0..8), there.remote(0))).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(1, OK)]);
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
}

#[test]
fn on_iwarp_a_read_that_the_peer_does_not_answer_is_refused() {
    for (depths, is_answered) in [
        ([(0, 0), (0, 0)], [false, false]),
        ([(0, 4), (0, 4)], [true, false]),
        ([(4, 4), (0, 4)], [true, true]),
        ([(0, 0), (4, 4)], [true, false]),
    ] {
        let mut env = iwarp::env();
        let (_ids, mut ends) = iwarp::established_with(&mut env, depths);
        let [here, there] = [&ends[0].pd, &ends[1].pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
        for (end, near, far, is_answered) in [(0, &here, &there, is_answered[0]), (1, &there, &here, is_answered[1])] {
            let end = &mut ends[end];
            let expected = if is_answered { Ok(()) } else { Err(PostReason::NoReads) };
            assert_eq!(why(end.qp.post_send(SendWr::read(1, near.sge(0..8), far.remote(0)))), expected, "{depths:?}");
            end.qp.post_send(SendWr::write(2, near.sge(0..8), far.remote(0))).unwrap();
            assert!(polled(&env, &mut end.send_cq).contains(&(2, OK)));
        }
    }
}

/// `siw_sq_flush` completes the read that is sent next as one that awaits its answer, and as what is sent.
#[test]
fn on_iwarp_a_full_cq_has_room_for_the_read_that_is_flushed_twice() {
    const DEPTH: u32 = 64;
    let mut env = iwarp::env();
    let caps = Caps { max_send_wr: DEPTH, ..Caps::default() };
    let ([client, _], [mut c, s]) = iwarp::established_by(&mut env, caps, [(1, 1); 2]);
    assert_eq!((c.send_cq.room().depth(), c.send_cq.room().reserved()), (DEPTH, DEPTH));
    let here = c.pd.register(vec![1; 8], ALL).unwrap();
    let there = s.pd.register(vec![0; 8], ALL).unwrap();
    for n in 1..u64::from(DEPTH) {
        c.qp.post_send(SendWr::write(n, here.sge(0..8), there.remote(0))).unwrap();
    }
    c.qp.post_send(SendWr::read(DEPTH.into(), here.sge(0..8), there.remote(0))).unwrap();
    env.client.device.destroy_qp(client).unwrap();
    let mut polled = vec![Completion::default(); 2 * DEPTH as usize];
    let count = c.send_cq.poll(&mut polled).unwrap();
    assert!(polled[..count].iter().map(|done| done.wr_id).eq(1..=DEPTH.into()));
    assert_eq!(c.send_cq.poll(&mut polled), Ok(0), "no overrun");
}

/// The library returns success for what it queues behind a refused request, and does not ring.
#[test]
fn on_iwarp_nothing_is_posted_behind_a_refused_request() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 8], ALL).unwrap();
    let write = |wr_id| SendWr::write(wr_id, here.sge(0..8), there.remote(0));
    c.qp.post_send(write(1)).unwrap();
    env.host.fail_next_doorbell(Errno::EACCES);
    assert_eq!(why(c.qp.post_send(write(2))), Err(PostReason::Device(Errno::EACCES)));
    assert_eq!(why(c.qp.post_send(write(3))), Err(PostReason::Stuck));
    assert_eq!(c.qp.post_sends([write(4)]).map_err(|batch| batch.error.reason()), Err(PostReason::Stuck));
    assert_eq!(polled(&env, &mut c.send_cq), [(1, OK)]);
    c.qp.post_recv(5, here.sge(0..8)).unwrap();
}

#[test]
fn on_iwarp_there_are_no_immediate_data_and_no_atomics() {
    let mut env = iwarp::env();
    let (_ids, [mut c, s]) = iwarp::established(&mut env);
    let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 8], ALL).unwrap();
    let remote = there.remote(0);
    for op in [
        SendOp::SendImm(1),
        SendOp::WriteImm(remote, 1),
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CompareSwap { remote, compare: 0, swap: 1 },
    ] {
        let refused = c.qp.post_send(SendWr { op, ..SendWr::write(1, here.sge(0..8), remote) });
        assert_eq!(why(refused), Err(PostReason::NotOfTransport(Transport::Iwarp)));
    }
    assert_eq!(polled(&env, &mut c.send_cq), []);
}

#[test]
fn on_iwarp_what_is_posted_after_the_end_does_not_complete() {
    let mut env = iwarp::env();
    let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap());
    s.qp.post_recv(1, there.sge(0..8)).unwrap();
    let remote = there.remote(0);
    c.qp.post_send(SendWr::read(2, here.sge(0..8), Remote { rkey: remote.rkey ^ 1, ..remote })).unwrap();
    assert_eq!(polled(&env, &mut c.send_cq), [(2, WcStatus::WR_FLUSH_ERR)]);
    // Who may not answer is not flushed.
    assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::ERR), Ok(QpState::RTS)));
    for (end, mr) in [(&mut c, &here), (&mut s, &there)] {
        end.qp.post_send(SendWr::send(3, mr.sge(0..8))).unwrap();
        assert_eq!([polled(&env, &mut end.send_cq), polled(&env, &mut end.recv_cq)], [[], []]);
    }
}

#[test]
fn on_iwarp_a_disconnect_refuses_what_is_posted_then() {
    let mut env = iwarp::env();
    let ([client, _], [mut c, s]) = iwarp::established(&mut env);
    let here = c.pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap();
    c.qp.post_recv(1, here.sge(0..8)).unwrap();
    env.client.disconnect(client).unwrap();
    assert_eq!(polled(&env, &mut c.recv_cq), [(1, WcStatus::WR_FLUSH_ERR)]);
    assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::SQD), Ok(QpState::ERR)));
    let refused = [PostReason::Device(Errno::ENOTCONN), PostReason::Stuck];
    for reason in refused {
        assert_eq!(why(c.qp.post_send(SendWr::send(2, here.sge(0..8)))), Err(reason));
    }
}

#[test]
fn on_iwarp_no_receive_is_solicited() {
    let mut env = iwarp::env();
    let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], Access::LOCAL_WRITE).unwrap());
    s.recv_cq.arm().unwrap();
    s.recv_cq.arm_solicited().unwrap();
    s.qp.post_recv(1, there.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, here.sge(0..8)).solicited()).unwrap();
    assert_eq!(polled(&env, &mut s.recv_cq), [(1, OK)]);
    assert_eq!(s.recv_cq.take_notifications(), Ok(0));
}

/// `siw_sqe_complete`: the completion of a request that was posted as solicited is a solicited one, of any kind.
#[test]
fn on_iwarp_a_solicited_request_notifies_its_own_side() {
    let mut env = iwarp::env();
    let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
    for wr_id in 0..6 {
        s.qp.post_recv(wr_id, there.sge(0..8)).unwrap();
        let (request, solicited) = match wr_id / 2 {
            0 => (SendWr::send(wr_id, here.sge(0..8)), wr_id % 2 == 1),
            1 => (SendWr::write(wr_id, here.sge(0..8), there.remote(0)), wr_id % 2 == 1),
            _ => (SendWr::read(wr_id, here.sge(0..8), there.remote(0)), wr_id % 2 == 1),
        };
        c.send_cq.arm_solicited().unwrap();
        c.qp.post_send(if solicited { request.solicited() } else { request }).unwrap();
        assert_eq!(polled(&env, &mut c.send_cq), [(wr_id, OK)]);
        assert_eq!(c.send_cq.take_notifications(), Ok(solicited.into()), "{wr_id}");
    }
}

/// Hazard P107: `siw_qp_sq_proc_tx` checks the key and the range of a read, and not the right.
#[test]
fn on_iwarp_a_peer_reads_memory_without_the_right() {
    for (access, off, is_read) in [(Access::empty(), 0, true), (Access::LOCAL_WRITE, 0, true), (ALL, 1, false)] {
        let mut env = iwarp::env();
        let (_ids, [mut c, s]) = iwarp::established(&mut env);
        let here = c.pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap();
        let there = s.pd.register(vec![7; 8], access).unwrap();
        c.qp.post_send(SendWr::read(1, here.sge(0..8), there.remote(off))).unwrap();
        assert_eq!(polled(&env, &mut c.send_cq), [(1, if is_read { OK } else { WcStatus::WR_FLUSH_ERR })]);
        assert_eq!(bytes_at(&here, 0), [if is_read { 7 } else { 0 }; 8]);
    }
}

#[test]
fn on_iwarp_a_completion_has_no_flags() {
    let mut env = iwarp::env();
    let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
    s.qp.post_recv(1, there.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, here.sge(0..8))).unwrap();
    env.fabric.advance_by(Config::default().latency * 4);
    assert_eq!(only(&mut s.recv_cq).flags, WcFlags::empty());
}

#[test]
fn on_iwarp_a_peer_may_end_a_region() {
    let mut env = iwarp::env();
    let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
    for (wr_id, key, status) in [(1, 0, WcStatus::REM_INV_REQ_ERR), (2, there.rkey() ^ 1, OK)] {
        s.qp.post_recv(wr_id, there.sge(0..8)).unwrap();
        c.qp.post_send(SendWr::send_invalidate(wr_id, here.sge(0..8), key)).unwrap();
        assert_eq!(polled(&env, &mut s.recv_cq), [(wr_id, status)]);
    }
    s.qp.post_send(SendWr::send(3, there.sge(0..8))).unwrap();
    s.qp.post_send(SendWr::send(4, there.sge(0..8))).unwrap();
    assert_eq!(polled(&env, &mut s.send_cq), [(3, WcStatus::LOC_QP_OP_ERR)]);
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
}

#[test]
fn on_iwarp_a_message_without_room_ends_the_connection() {
    for receive in [None, Some(4)] {
        let mut env = iwarp::env();
        let (_ids, [mut c, mut s]) = iwarp::established(&mut env);
        let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![1; 8], ALL).unwrap());
        if let Some(len) = receive {
            s.qp.post_recv(1, there.sge(0..len)).unwrap();
        }
        c.qp.post_send(SendWr::send(2, here.sge(0..8))).unwrap();
        assert_eq!(polled(&env, &mut c.send_cq), [(2, OK)]);
        let ended: Vec<_> = receive.map(|_| (1, WcStatus::LOC_LEN_ERR)).into_iter().collect();
        assert_eq!(polled(&env, &mut s.recv_cq), ended);
        assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::ERR), Ok(QpState::ERR)));
    }
}
