//! Losses.

use cmid_proto::CmEvent;

use crate::common::{Env, SECOND};

#[test]
fn a_lossless_run_sends_nothing_twice_but_unanswered_disconnects() {
    let mut env = Env::new();
    env.established();
    let counters = env.fabric.counters();
    assert_eq!((counters.sent, counters.lost, counters.retransmitted), (3, 0, 0));
}

#[test]
fn lost_messages_are_sent_again() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.fabric.set_loss(1.0);
    env.client.connect(c, env.cp(), &[]).unwrap();
    env.server.quiet(env.cs, SECOND * 10);
    env.fabric.set_loss(0.0);
    let s = env.server.requested(env.cs, listener);
    // The answer is lost once, and then the confirmation.
    env.fabric.set_loss(1.0);
    env.server.accept(s, env.cp(), &[]).unwrap();
    env.fabric.set_loss(0.0);
    let (response, waited) = env.client.next_timed(env.cc);
    response.is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(waited.as_millis(), 4096);
    env.fabric.set_loss(1.0);
    env.client.establish(c).unwrap();
    env.fabric.set_loss(0.0);
    env.server.next(env.cs).is(s, CmEvent::Established, 0);
    let counters = env.fabric.counters();
    assert_eq!((counters.lost, counters.retransmitted), (5, 5));
}
