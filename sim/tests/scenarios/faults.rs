//! Seeds and losses.

use std::fmt::Write;

use cmid_proto::CmEvent;
use cmid_sim::Config;

use crate::common::{Lab, SECOND};

/// Several connections made and ended, everything written down.
fn trace(seed: u64, loss: f64) -> String {
    let mut lab = Lab::with(Config { seed, loss, ..Config::default() });
    let mut trace = String::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let clients = [(); 5].map(|()| lab.client.resolved(lab.cc, "10.0.0.2:7"));
    for c in clients {
        let cp = lab.cp();
        lab.client.connect(c, cp, &[c.to_bits() as u8]).unwrap();
        writeln!(trace, "{c} from {}", lab.client.local(c)).unwrap();
    }
    let limit = lab.fabric.now().after(SECOND * 5000);
    while let Some(due) = lab.fabric.next_due().filter(|&due| due < limit) {
        lab.fabric.advance_to(due);
        while let Some(event) = lab.client.fetch(lab.cc) {
            writeln!(trace, "{} client {} {} {}", due.0, event.id, event.kind, event.status).unwrap();
            if event.kind == CmEvent::ConnectResponse {
                lab.client.establish(event.id).unwrap();
            }
        }
        while let Some(event) = lab.server.fetch(lab.cs) {
            writeln!(trace, "{} server {} {} {}", due.0, event.id, event.kind, event.status).unwrap();
            if event.listener == Some(listener) {
                let cp = lab.cp();
                // A lost REJ or a late duplicate may have left it without a peer.
                let _ = lab.server.accept(event.id, cp, &[]);
            } else if event.kind == CmEvent::Established {
                lab.server.disconnect(event.id).unwrap();
            }
        }
    }
    writeln!(trace, "{:?}", lab.fabric.counters()).unwrap();
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
    let mut lab = Lab::new();
    lab.established();
    let counters = lab.fabric.counters();
    assert_eq!((counters.sent, counters.lost, counters.retransmitted), (3, 0, 0));
}

#[test]
fn lost_messages_are_sent_again() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.fabric.set_loss(1.0);
    lab.client.connect(c, cp, &[]).unwrap();
    lab.server.quiet(lab.cs, SECOND * 10);
    lab.fabric.set_loss(0.0);
    let s = lab.server.requested(lab.cs, listener);
    let param = lab.cp();
    // The answer is lost once, and then the confirmation.
    lab.fabric.set_loss(1.0);
    lab.server.accept(s, param, &[]).unwrap();
    lab.fabric.set_loss(0.0);
    let (response, waited) = lab.client.next_timed(lab.cc);
    response.is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(waited.as_millis(), 4096);
    lab.fabric.set_loss(1.0);
    lab.client.establish(c).unwrap();
    lab.fabric.set_loss(0.0);
    lab.server.next(lab.cs).is(s, CmEvent::Established, 0);
    let counters = lab.fabric.counters();
    assert_eq!((counters.lost, counters.retransmitted), (5, 5));
}

#[test]
fn with_losses_every_connection_still_comes_to_an_end() {
    for seed in 0..20 {
        let trace = trace(seed, 0.2);
        let ended = ["ESTABLISHED", "UNREACHABLE", "REJECTED", "DISCONNECTED"];
        for n in 0..5 {
            let c = trace.lines().nth(n).unwrap().split(' ').next().unwrap().to_owned();
            let ends = trace.lines().any(|line| line.contains(&format!("client {c} ")));
            assert!(ends && ended.iter().any(|word| trace.contains(word)), "seed {seed}: {trace}");
        }
    }
}
