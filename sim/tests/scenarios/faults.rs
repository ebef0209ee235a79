//! Seeds and losses.

use std::fmt::Write;

use cmid_proto::CmEvent;
use cmid_sim::Config;

use crate::common::{Env, SECOND};

/// Makes and ends several connections; returns a record of everything.
fn trace(seed: u64, loss: f64) -> String {
    let mut env = Env::with(Config { seed, loss, ..Config::default() });
    let mut trace = String::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let clients = [(); 5].map(|()| env.client.resolved(env.cc, "10.0.0.2:7"));
    for c in clients {
        env.connect(c, &[c.to_bits() as u8]);
        writeln!(trace, "{c} from {}", env.client.local(c)).unwrap();
    }
    let limit = env.fabric.now().after(SECOND * 5000);
    while let Some(due) = env.fabric.next_due().filter(|&due| due < limit) {
        env.fabric.advance_to(due);
        while let Some(event) = env.client.fetch(env.cc) {
            writeln!(trace, "{} client {} {} {}", due.0, event.id, event.kind, event.status).unwrap();
            if event.kind == CmEvent::ConnectResponse {
                env.client.establish(event.id).unwrap();
            }
        }
        while let Some(event) = env.server.fetch(env.cs) {
            writeln!(trace, "{} server {} {} {}", due.0, event.id, event.kind, event.status).unwrap();
            if event.listener == Some(listener) {
                let cp = env.cp();
                // A lost REJ or a late duplicate may have left the id without a peer.
                let _ = env.server.accept(event.id, cp, &[]);
            } else if event.kind == CmEvent::Established {
                env.server.disconnect(event.id).unwrap();
            }
        }
    }
    writeln!(trace, "{:?}", env.fabric.counters()).unwrap();
    trace
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let first = trace(42, 0.3);
    assert_eq!(first, trace(42, 0.3));
    assert_ne!(first, trace(43, 0.3));
    assert!(first.contains("ESTABLISHED"));
}

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
    let cp = env.cp();
    env.fabric.set_loss(1.0);
    env.client.connect(c, cp, &[]).unwrap();
    env.server.quiet(env.cs, SECOND * 10);
    env.fabric.set_loss(0.0);
    let s = env.server.requested(env.cs, listener);
    let param = env.cp();
    // The answer is lost once, and then the confirmation.
    env.fabric.set_loss(1.0);
    env.server.accept(s, param, &[]).unwrap();
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

#[test]
fn with_losses_every_connection_still_comes_to_an_end() {
    for seed in 0..20 {
        let trace = trace(seed, 0.2);
        let ended = ["ESTABLISHED", "UNREACHABLE", "REJECTED", "DISCONNECTED"];
        for n in 0..5 {
            let c = trace.lines().nth(n).unwrap().split(' ').next().unwrap().to_owned();
            let ends = trace.lines().any(|device_channel| device_channel.contains(&format!("client {c} ")));
            assert!(ends && ended.iter().any(|word| trace.contains(word)), "seed {seed}: {trace}");
        }
    }
}
