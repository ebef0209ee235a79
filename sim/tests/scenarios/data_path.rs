//! Data over a connection with QPs.

use std::time::Duration;

use cmid_proto::datapath::{Attaching, Length, OfPd, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_proto::{CmEvent, Errno};
use cmid_sim::{Access, Config, Cq, QpState, Rule, WcStatus};

use crate::common::{Env, Equipment, Pair, SECOND, bytes_at, completions, connected, why};

/// The ends of a connection, the client's first.
#[track_caller]
pub(crate) fn ends() -> (Env, Equipment, Equipment) {
    let (env, Pair { client_qp, server_qp, .. }) = connected(Config::default());
    (env, client_qp, server_qp)
}

#[track_caller]
pub(crate) fn ended(cq: &mut Cq, expected: &[(u64, WcStatus, WcOpcode, u32)]) {
    let seen: Vec<_> = completions(cq).iter().map(|c| (c.wr_id, c.status, c.opcode, c.byte_len)).collect();
    assert_eq!(seen, expected);
}

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

#[test]
fn a_link_of_a_bandwidth_takes_a_time_for_each_byte_of_a_write_and_of_the_answer_of_a_read() {
    let (env, mut c, s) = ends();
    let here = c.pd.register(vec![7; 1000], BOTH).unwrap();
    let there = s.pd.register(vec![0; 1000], BOTH).unwrap();
    let remote = there.remote(0);
    let ways = Config::default().latency * 2;
    // A microsecond for each byte.
    let link = env.fabric.rule(Rule::bandwidth(1_000_000));
    let micros = Duration::from_micros;
    for (wr_id, opcode) in [(1, WcOpcode::RDMA_WRITE), (2, WcOpcode::RDMA_READ)] {
        let is_write = opcode == WcOpcode::RDMA_WRITE;
        let of = if is_write { SendWr::write } else { SendWr::read };
        c.qp.post_send(of(wr_id, here.sge(0..1000), remote)).unwrap();
        env.fabric.advance_by(ways + micros(999));
        ended(&mut c.send_cq, &[]);
        env.fabric.advance_by(micros(1));
        ended(&mut c.send_cq, &[(wr_id, WcStatus::SUCCESS, opcode, if is_write { 0 } else { 1000 })]);
    }
    // One after the other: both directions share the link, so the first answer waits for the second write to leave.
    c.qp.post_send(SendWr::write(3, here.sge(0..600), remote)).unwrap();
    c.qp.post_send(SendWr::write(4, here.sge(0..400), remote)).unwrap();
    env.fabric.advance_by(ways / 2 + micros(999));
    ended(&mut c.send_cq, &[]);
    env.fabric.advance_by(micros(1));
    ended(&mut c.send_cq, &[(3, WcStatus::SUCCESS, WcOpcode::RDMA_WRITE, 0)]);
    env.fabric.advance_by(ways / 2);
    ended(&mut c.send_cq, &[(4, WcStatus::SUCCESS, WcOpcode::RDMA_WRITE, 0)]);
    // Each request and each answer.
    assert_eq!(link.count(), 8);
    // What was sent before the link became fast is not overtaken.
    c.qp.post_send(SendWr::write(5, here.sge(0..1000), remote)).unwrap();
    drop(link);
    c.qp.post_send(SendWr::write(6, here.sge(0..1000), remote)).unwrap();
    env.fabric.advance_by(ways + micros(999));
    ended(&mut c.send_cq, &[]);
    env.fabric.advance_by(micros(1));
    ended(&mut c.send_cq, &[5, 6].map(|wr_id| (wr_id, WcStatus::SUCCESS, WcOpcode::RDMA_WRITE, 0)));
    c.qp.post_send(SendWr::write(7, here.sge(0..1000), remote)).unwrap();
    env.fabric.advance_by(ways);
    ended(&mut c.send_cq, &[(7, WcStatus::SUCCESS, WcOpcode::RDMA_WRITE, 0)]);
}

#[test]
fn a_server_may_send_before_the_client_has_read_the_answer() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let id = env.client.resolved(env.cc, "10.0.0.2:7");
    let mut c = env.client.qp(id);
    let here = c.pd.register(vec![0; 8], BOTH).unwrap();
    c.qp.post_recv(1, here.sge(0..8)).unwrap();
    let param = env.cp();
    env.client.connect(id, param, &[]).unwrap();
    let new = env.server.requested(env.cs, listener);
    let mut s = env.server.qp(new);
    env.server.accept(new, param, &[]).unwrap();
    let there = s.pd.register(vec![3; 8], BOTH).unwrap();
    s.qp.post_send(SendWr::send(2, there.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND);
    ended(&mut c.recv_cq, &[]);
    env.client.next(env.cc).is(id, CmEvent::Established, 0);
    ended(&mut c.recv_cq, &[(1, WcStatus::SUCCESS, WcOpcode::RECV, 8)]);
    env.fabric.advance_by(SECOND);
    ended(&mut s.send_cq, &[(2, WcStatus::SUCCESS, WcOpcode::SEND, 0)]);
}

#[test]
fn the_error_state_flushes() {
    let (mut env, mut pair) = connected(Config::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let here = c.pd.register(vec![0; 8], BOTH).unwrap();
    c.qp.post_recv(1, here.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, here.sge(0..8))).unwrap();
    env.client.disconnect(pair.client).unwrap();
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
    assert!(!c.recv_cq.is_idle() && !c.send_cq.is_idle());
    ended(&mut c.recv_cq, &[(1, WcStatus::WR_FLUSH_ERR, WcOpcode::RECV, 0)]);
    assert!(c.recv_cq.is_idle() && !c.send_cq.is_idle());
    ended(&mut c.send_cq, &[(2, WcStatus::WR_FLUSH_ERR, WcOpcode::SEND, 0)]);
    assert!(c.send_cq.is_idle());
    c.qp.post_recv(3, here.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(4, here.sge(0..8))).unwrap();
    ended(&mut c.recv_cq, &[(3, WcStatus::WR_FLUSH_ERR, WcOpcode::RECV, 0)]);
    ended(&mut c.send_cq, &[(4, WcStatus::WR_FLUSH_ERR, WcOpcode::SEND, 0)]);
    // The server has not read the event yet, and its peer does not answer.
    env.server.next(env.cs).is(pair.new, CmEvent::Disconnected, 0);
    let there = s.pd.register(vec![0; 8], BOTH).unwrap();
    s.qp.post_send(SendWr::send(5, there.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND * 10);
    ended(&mut s.send_cq, &[(5, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0)]);
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
}

#[test]
fn what_waited_for_a_receive_is_given_up_with_its_qp() {
    let (mut env, mut pair) = connected(Config::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let here = c.pd.register(vec![0; 8], BOTH).unwrap();
    c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND * 100);
    env.server.disconnect(pair.new).unwrap();
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
    env.fabric.advance_by(SECOND * 10);
    ended(&mut c.send_cq, &[(1, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0)]);
}

#[test]
fn what_follows_a_request_that_is_never_sent_again_is_out_of_sequence() {
    let (mut env, mut pair) = connected(Config::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let here = c.pd.register(vec![5; 8], BOTH).unwrap();
    let there = s.pd.register(vec![0; 8], BOTH).unwrap();
    c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND);
    // The write is under way when the QP of the send, which waits for a receive, goes to its error state.
    c.qp.post_send(SendWr::write(2, here.sge(0..8), there.remote(0))).unwrap();
    env.client.disconnect(pair.client).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(s.qp.state(), Ok(QpState::RTS));
    assert_eq!(bytes_at(&there, 0), [0; 8]);
    let flushed = WcStatus::WR_FLUSH_ERR;
    ended(&mut c.send_cq, &[(1, flushed, WcOpcode::SEND, 0), (2, flushed, WcOpcode::RDMA_WRITE, 0)]);
}

#[test]
fn posts_are_checked() {
    let mut env = Env::new();
    env.server.listener(env.cs, "10.0.0.2:7");
    let id = env.client.resolved(env.cc, "10.0.0.2:7");
    let mut c = env.client.qp(id);
    assert_eq!(c.qp.state(), Ok(QpState::INIT));
    let mut mr = c.pd.register(vec![0; 8], BOTH).unwrap();
    assert_eq!(why(c.qp.post_send(SendWr::send(1, mr.sge(0..8)))), Err(PostReason::TooEarly(QpState::INIT)));
    assert_eq!(why(c.qp.post_recv(1, mr.sge(0..9))), Err(PostReason::OutOfRange { len: Length::new(8) }));
    for n in 0..16 {
        assert_eq!(c.qp.post_recv(n, mr.sge(0..8)), Ok(()));
    }
    assert_eq!(why(c.qp.post_recv(16, mr.sge(0..8))), Err(PostReason::QueueFull { max: 16 }));
    assert_eq!(mr.read(1, &mut [0; 8]), Err(Errno::EINVAL));
    assert_eq!(mr.write(usize::MAX, &[0; 8]), Err(Errno::EINVAL));
    let again =
        env.client.device.create_qp(Attaching::bare(id), &c.pd, &c.send_cq, &c.recv_cq, cmid_sim::Caps::default());
    assert_eq!(again.map(|_| ()).map_err(Errno::from), Err(Errno::EINVAL));
    env.client.device.destroy_qp(id).unwrap();
    assert_eq!(env.client.device.destroy_qp(id), Err(Errno::EINVAL));
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
}

/// Where a domain has the same number.
#[test]
fn memory_of_another_fabric_is_refused() {
    let (_env, mut pair) = connected(Config::default());
    let (_far, other) = connected(Config::default());
    let foreign = other.client_qp.pd.register([0; 8], BOTH).unwrap();
    assert_eq!(why(pair.client_qp.qp.post_recv(1, foreign.sge(0..8))), Err(PostReason::OtherPd(OfPd::Mr)));
    assert_eq!(pair.client_qp.qp.state(), Ok(QpState::RTS));
}

/// `rxe_receiver` handles a message packet by packet.
#[test]
fn a_long_message_that_fails_has_left_the_packets_before() {
    let mtu = Config::default().mtu as usize;
    let (env, mut c, mut s) = ends();
    let here = c.pd.register(vec![7; 4 * mtu], BOTH).unwrap();
    let there = s.pd.register(vec![0; 4 * mtu], BOTH).unwrap();
    let written = || {
        let mut bytes = vec![0; 4 * mtu];
        there.read(0, &mut bytes).unwrap();
        bytes.iter().take_while(|byte| **byte == 7).count()
    };
    // The last packet of a write takes the receive.
    c.qp.post_send(SendWr::write_imm(1, here.sge(0..mtu + 1), there.remote(0), 5)).unwrap();
    env.fabric.advance_by(SECOND / 10);
    assert_eq!(written(), mtu);
    s.qp.post_recv(2, there.sge(0..0)).unwrap();
    env.fabric.advance_by(SECOND);
    ended(&mut s.recv_cq, &[(2, WcStatus::SUCCESS, WcOpcode::RECV_RDMA_WITH_IMM, mtu as u32 + 1)]);
    ended(&mut c.send_cq, &[(1, WcStatus::SUCCESS, WcOpcode::RDMA_WRITE, 0)]);
    // What fits of a send is there.
    s.qp.post_recv(3, there.sge(0..3 * mtu - 1)).unwrap();
    c.qp.post_send(SendWr::send(4, here.sge(0..4 * mtu))).unwrap();
    env.fabric.advance_by(SECOND);
    ended(&mut s.recv_cq, &[(3, WcStatus::LOC_QP_OP_ERR, WcOpcode::RECV, 0)]);
    assert_eq!(written(), 2 * mtu);
}

/// The first packet has the key, and the last one the receive.
#[test]
fn a_write_with_a_wrong_key_costs_its_receive_if_it_is_one_packet() {
    let mtu = Config::default().mtu as usize;
    for (len, status) in [(mtu, WcStatus::REM_ACCESS_ERR), (mtu + 1, WcStatus::WR_FLUSH_ERR)] {
        let (env, mut c, mut s) = ends();
        let here = c.pd.register(vec![7; 2 * mtu], BOTH).unwrap();
        let there = s.pd.register(vec![0; 2 * mtu], Access::LOCAL_WRITE).unwrap();
        s.qp.post_recv(1, there.sge(0..8)).unwrap();
        c.qp.post_send(SendWr::write_imm(2, here.sge(0..len), there.remote(0), 5)).unwrap();
        env.fabric.advance_by(SECOND);
        ended(&mut s.recv_cq, &[(1, status, WcOpcode::RECV, 0)]);
    }
}
