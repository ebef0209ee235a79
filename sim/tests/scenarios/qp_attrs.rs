//! The attributes of a connected QP, and the time that they cost.

use std::time::Duration;

use cmid_proto::datapath::{AckTimeout, ModifyReason, QpAttr, QpAttrs, RnrTimer, SendWr, WcOpcode, prelude::*};
use cmid_proto::{CmEvent, ConnParam, Errno, PortSpace, Transport};
use cmid_sim::{Access, Config, QpState, WcStatus};

use crate::common::{Env, Equipment, SECOND, connected};
use crate::data_path::ended;
use crate::iwarp;

const MILLISECOND: Duration = Duration::from_millis(1);

const fn timer(min_rnr_timer: RnrTimer) -> QpAttrs {
    QpAttrs { min_rnr_timer: Some(min_rnr_timer), timeout: None, retry_count: None, rnr_retry: None }
}

/// A connection whose client has these attributes, without a limit on repetitions for a receive.
pub(crate) fn connected_with(config: Config, retry_count: u8, attrs: QpAttrs) -> (Env, Equipment, Equipment) {
    let mut env = Env::with(config);
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let id = env.client.resolved(env.cc, "10.0.0.2:7");
    let mut client = env.client.qp(id);
    client.qp.modify(attrs).unwrap();
    let param = ConnParam { rnr_retry_count: 7, retry_count, ..env.cp() };
    env.client.connect(id, param, &[]).unwrap();
    let new = env.server.requested(env.cs, listener);
    let server = env.server.qp(new);
    env.server.accept(new, param, &[]).unwrap();
    env.client.next(env.cc).is(id, CmEvent::Established, 0);
    env.server.next(env.cs).is(new, CmEvent::Established, 0);
    (env, client, server)
}

#[test]
fn the_retries_of_the_sender_are_as_long_as_the_timer_of_the_receiver() {
    let (env, mut c, mut s) =
        connected_with(Config::default(), 7, QpAttrs { rnr_retry: Some(2), ..QpAttrs::default() });
    s.qp.modify(timer(RnrTimer::at_least(MILLISECOND * 10))).unwrap();
    let here = c.pd.register(vec![5; 8], Access::empty()).unwrap();
    c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
    env.fabric.advance_by(Duration::from_micros(2 * 10_240));
    ended(&mut c.send_cq, &[]);
    env.fabric.advance_by(MILLISECOND);
    ended(&mut c.send_cq, &[(1, WcStatus::RNR_RETRY_EXC_ERR, WcOpcode::SEND, 0)]);
    assert_eq!(s.qp.state(), Ok(QpState::RTS));
}

#[test]
fn a_lost_packet_costs_the_time_out_and_the_retries_of_the_sender() {
    let attrs =
        QpAttrs { timeout: Some(AckTimeout::at_least(MILLISECOND * 60)), retry_count: Some(1), ..QpAttrs::default() };
    for (attrs, ends) in [(attrs, true), (QpAttrs { timeout: Some(AckTimeout::NEVER), ..attrs }, false)] {
        let (env, mut c, _s) = connected_with(Config::default(), 7, attrs);
        let here = c.pd.register(vec![5; 8], Access::empty()).unwrap();
        env.host.set_link(false);
        c.qp.post_send(SendWr::send(1, here.sge(0..8))).unwrap();
        env.fabric.advance_by(MILLISECOND * 134);
        ended(&mut c.send_cq, &[]);
        env.fabric.advance_by(if ends { MILLISECOND } else { SECOND * 1000 });
        let failed = (1, WcStatus::RETRY_EXC_ERR, WcOpcode::SEND, 0);
        ended(&mut c.send_cq, if ends { std::slice::from_ref(&failed) } else { &[] });
    }
}

#[test]
fn what_a_qp_has_is_what_was_chosen_and_what_the_parameters_say() {
    let chosen = QpAttrs { rnr_retry: Some(3), ..timer(RnrTimer::at_least(MILLISECOND)) };
    let (_env, mut c, s) = connected_with(Config::default(), 7, chosen);
    let of_client = c.qp.attrs().unwrap();
    assert_eq!((of_client.min_rnr_timer, of_client.rnr_retry), (chosen.min_rnr_timer, Some(3)));
    assert_eq!(of_client.retry_count, Some(7));
    let of_server = s.qp.attrs().unwrap();
    assert_eq!((of_server.min_rnr_timer, of_server.rnr_retry), (Some(RnrTimer::LONGEST), Some(7)));
    let late = c.qp.modify(QpAttrs { retry_count: Some(1), ..timer(RnrTimer::LONGEST) }).unwrap_err();
    assert_eq!(late.reason, ModifyReason::TooLate(QpAttr::RetryCount, QpState::RTS));
    let text =
        format!("modify of QP {}: retry_count is set before the connect or accept, and the QP is in RTS", c.qp.num());
    assert_eq!((late.to_string(), Errno::from(late)), (text, Errno::EINVAL));
    assert_eq!(c.qp.attrs(), Ok(of_client), "nothing of it is changed");
}

#[test]
fn datagrams_and_iwarp_have_no_such_attributes_nor_has_a_qp_that_has_ended() {
    let mut env = Env::new();
    let id = env.client.resolved_in(PortSpace::Udp, env.cc, "10.0.0.2:7");
    let mut datagrams = env.client.qp(id);
    let reason = |qp: &mut cmid_sim::Qp| qp.modify(timer(RnrTimer::LONGEST)).map_err(|error| error.reason);
    assert_eq!(reason(&mut datagrams.qp), Err(ModifyReason::IsDatagram));

    // siw has no values for them, and a QP in INIT has none yet.
    let none = QpAttrs {
        timeout: Some(AckTimeout::NEVER),
        retry_count: Some(0),
        rnr_retry: Some(0),
        ..timer(RnrTimer::LONGEST)
    };
    let id = env.client.resolved(env.cc, "10.0.0.2:7");
    assert_eq!(env.client.qp(id).qp.attrs(), Ok(none));
    let (_ids, [mut client, _server]) = iwarp::established(&mut iwarp::env());
    assert_eq!(client.qp.attrs(), Ok(none));
    assert_eq!(reason(&mut client.qp), Err(ModifyReason::NotOfTransport(Transport::Iwarp)));

    let (mut env, mut pair) = connected(Config::default());
    env.client.disconnect(pair.client).unwrap();
    assert_eq!(reason(&mut pair.client_qp.qp), Err(ModifyReason::Ended(QpState::ERR)));
}
