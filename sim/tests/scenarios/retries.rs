//! Sends while the peer cannot be reached.

use std::time::Duration;

use cmid_proto::datapath::{AckTimeout, QpAttrs, SendWr, WcOpcode, prelude::*};
use cmid_sim::{Access, Config, Flavour, Kind, Mr, QpState, Rule, WcStatus};

use crate::common::{Env, Equipment, Pair, SECOND, bytes_at, connected};
use crate::data_path::ended;
use crate::qp_attrs::connected_with;

const SENT: (WcStatus, WcOpcode, u32) = (WcStatus::SUCCESS, WcOpcode::SEND, 0);

/// A connection with two receives of the server, and two sends of the client after the server's link has gone.
fn sends_into_nothing(retry_count: u8) -> (Env, Pair, Mr, Mr) {
    let mut env = Env::new();
    env.retry_count = retry_count;
    let mut pair = env.established_with_qps();
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let here = c.pd.register((0..16).collect::<Vec<_>>(), Access::LOCAL_WRITE).unwrap();
    let there = s.pd.register(vec![0; 16], Access::LOCAL_WRITE).unwrap();
    for number in 0..2 {
        s.qp.post_recv(number, there.sge(number as usize * 8..number as usize * 8 + 8)).unwrap();
    }
    env.host.set_link(false);
    for number in 0..2 {
        c.qp.post_send(SendWr::send(number, here.sge(number as usize * 8..number as usize * 8 + 8))).unwrap();
    }
    (env, pair, here, there)
}

/// The link is up again: both messages arrive in order.
#[track_caller]
fn arrives(env: &mut Env, pair: &mut Pair, there: &Mr) {
    env.host.set_link(true);
    env.fabric.advance_by(SECOND);
    let sent = |number| (number, SENT.0, SENT.1, SENT.2);
    ended(&mut pair.client_qp.send_cq, &[sent(0), sent(1)]);
    let received = |number| (number, WcStatus::SUCCESS, WcOpcode::RECV, 8);
    ended(&mut pair.server_qp.recv_cq, &[received(0), received(1)]);
    let mut bytes = [0; 16];
    there.read(0, &mut bytes).unwrap();
    assert!(bytes.into_iter().eq(0..16), "{bytes:?}");
}

#[test]
fn a_short_interruption_is_bridged() {
    let (mut env, mut pair, _here, there) = sends_into_nothing(5);
    env.fabric.advance_by(SECOND * 2);
    ended(&mut pair.client_qp.send_cq, &[]);
    arrives(&mut env, &mut pair, &there);
    // What ended the retries of the first attempt does not end a later request.
    env.fabric.advance_by(SECOND * 100);
    assert_eq!(pair.client_qp.qp.state(), Ok(QpState::RTS));
}

#[test]
fn a_long_one_ends_the_connection() {
    let (env, mut pair, _here, there) = sends_into_nothing(5);
    env.fabric.advance_by(SECOND * 4);
    ended(
        &mut pair.client_qp.send_cq,
        &[(0, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0), (1, WcStatus::WR_FLUSH_ERR, WcOpcode::SEND, 0)],
    );
    env.host.set_link(true);
    env.fabric.advance_by(SECOND);
    ended(&mut pair.server_qp.recv_cq, &[]);
    assert_eq!(bytes_at(&there, 0), [0; 16]);
}

/// Hazard P48.
#[test]
fn seven_retries_have_no_limit_on_soft_roce() {
    let (mut env, mut pair, _here, there) = sends_into_nothing(7);
    env.fabric.advance_by(SECOND * 10_000);
    ended(&mut pair.client_qp.send_cq, &[]);
    assert_eq!(pair.client_qp.qp.state(), Ok(QpState::RTS));
    arrives(&mut env, &mut pair, &there);
}

#[test]
fn a_peer_that_is_gone_is_found_only_with_a_limit() {
    for (retry_count, ends) in [(6, true), (7, false)] {
        let mut env = Env::new();
        env.retry_count = retry_count;
        let mut pair = env.established_with_qps();
        let c = &mut pair.client_qp;
        let here = c.pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap();
        // No DREQ leaves a host without a link.
        env.host.set_link(false);
        env.server.destroy(pair.new).unwrap();
        drop(pair.server_qp);
        env.host.set_link(true);
        c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
        env.fabric.advance_by(SECOND * 100);
        let failed = [(1, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0)];
        ended(&mut c.send_cq, if ends { &failed } else { &[] });
    }
}

#[test]
fn a_device_that_reads_late_sends_memory_as_it_is_when_it_arrives() {
    // A request that is flushed is over: its memory may be used again.
    for (reads_late, is_flushed, sent) in [(false, false, b"first"), (true, false, b"later"), (true, true, b"first")] {
        let (mut env, mut pair) = connected(Config { reads_late, ..Config::default() });
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let mut here = c.pd.register(b"first".to_vec(), Access::LOCAL_WRITE).unwrap();
        let there = s.pd.register(vec![0; 5], Access::LOCAL_WRITE).unwrap();
        s.qp.post_recv(1, there.sge(0..5)).unwrap();
        c.qp.post_send(SendWr::send(2, here.sge(0..5))).unwrap();
        if is_flushed {
            env.client.disconnect(pair.client).unwrap();
        }
        here.write(0, b"later").unwrap();
        env.fabric.advance_by(SECOND);
        assert_eq!(bytes_at(&there, 0), *sent);
    }
}

#[test]
fn a_qp_that_has_failed_repeats_nothing_for_a_later_receive() {
    let (mut env, mut pair) = connected(Config::default());
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap());
    c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
    // While the message is on its way.
    env.client.disconnect(pair.client).unwrap();
    env.fabric.advance_by(SECOND);
    s.qp.post_recv(2, there.sge(0..8)).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(s.qp.state(), Ok(QpState::RTS));
    ended(&mut s.recv_cq, &[]);
}

/// A connection without a limit on repetitions for a receive, whose client has this ACK timeout, or the kernel's.
fn without_receives(flavour: Flavour, retry_count: u8, timeout: Option<AckTimeout>) -> (Env, Equipment, Equipment) {
    connected_with(Config { flavour, ..Config::default() }, retry_count, QpAttrs { timeout, ..QpAttrs::default() })
}

/// Hazard P108: the ACK timeout passes while the sender waits to repeat a message, and counts as a retry.
#[test]
fn a_wait_for_a_receive_uses_up_the_retries_of_a_packet() {
    use Flavour::{Linux6_1, Linux6_12};
    let ms = |ms| Some(AckTimeout::at_least(Duration::from_millis(ms)));
    // Of the receiver: 655 ms. The kernel's timeouts are 2147 and 537 ms.
    for (flavour, retry_count, timeout, ends) in [
        (Linux6_12, 0, None, Some(537)),
        (Linux6_12, 5, None, Some(5 * 655 + 537)),
        (Linux6_12, 6, None, Some(6 * 655 + 537)),
        (Linux6_12, 7, None, None),
        (Linux6_12, 0, ms(1000), None),
        (Linux6_12, 2, ms(60), Some(2 * 655 + 67)),
        // It does not begin anew with a repetition.
        (Linux6_1, 1, None, Some(4 * 655 + 2147)),
        (Linux6_1, 1, ms(1000), Some(2 * 655 + 1074)),
        (Linux6_1, 7, None, None),
        (Linux6_1, 5, Some(AckTimeout::NEVER), None),
    ] {
        let (env, mut c, s) = without_receives(flavour, retry_count, timeout);
        let here = c.pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap();
        c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
        let begun = env.fabric.now();
        let failed = [(1, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0)];
        if let Some(ms) = ends {
            env.fabric.advance_to(begun.after(Duration::from_millis(ms - 5)));
            ended(&mut c.send_cq, &[]);
            env.fabric.advance_by(Duration::from_millis(10));
            ended(&mut c.send_cq, &failed);
            assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::ERR), Ok(QpState::RTS)));
        } else {
            env.fabric.advance_by(SECOND * 1000);
            ended(&mut c.send_cq, &[]);
        }
    }
}

/// The answer to the second one counts as a retry (`RESPST_ERR_PSN_OUT_OF_SEQ`, `rxe_completer`).
#[test]
fn without_a_retry_a_message_behind_one_that_waits_for_a_receive_fails_it() {
    for retry_count in [0, 1] {
        let (env, mut c, mut s) = without_receives(Flavour::Linux6_12, retry_count, Some(AckTimeout::NEVER));
        let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap());
        for number in 0..2 {
            c.qp.post_send(SendWr::send(number, here.sge(0..8))).unwrap();
        }
        env.fabric.advance_by(SECOND / 10);
        for number in 0..2 {
            s.qp.post_recv(number, there.sge(0..8)).unwrap();
        }
        env.fabric.advance_by(SECOND);
        let of = |number, status| (number, status, WcOpcode::SEND, 0);
        let expected = match retry_count {
            0 => [of(0, WcStatus::RETRY_EXC_ERR), of(1, WcStatus::WR_FLUSH_ERR)],
            _ => [of(0, WcStatus::SUCCESS), of(1, WcStatus::SUCCESS)],
        };
        ended(&mut c.send_cq, &expected);
    }
}

#[test]
fn without_a_retry_the_first_lost_packet_fails() {
    for (retry_count, status) in [(0, WcStatus::RETRY_EXC_ERR), (1, WcStatus::SUCCESS)] {
        let (env, mut c, mut s) = without_receives(Flavour::Linux6_12, retry_count, None);
        let [here, there] = [&c.pd, &s.pd].map(|pd| pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap());
        s.qp.post_recv(1, there.sge(0..8)).unwrap();
        let _lost = env.fabric.rule(Rule::drop().of(&[Kind::Packet]).nth(1));
        c.qp.post_send(SendWr::send(2, here.sge(0..8))).unwrap();
        env.fabric.advance_by(SECOND);
        ended(&mut c.send_cq, &[(2, status, WcOpcode::SEND, 0)]);
    }
}
