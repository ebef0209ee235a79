//! Requests that are several calls, and calls that follow from acks and events, with a failure of each call.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use cmid_proto::{Acks, CmEvent, ConnParam, Drive, Event, IdKey, Limits, PortSpace, Time};
use cmid_trace::{Memory, Recording, Trace, replay};
use common::Given;

type Traced = Drive<Given, (), Trace>;

const PARAM: ConnParam = ConnParam {
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: false,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: false,
    qp_num: 17,
};

/// Lets the device report an event on the channel of `of` at the device. Returns it, if the application takes it there.
fn report(drive: &mut Traced, of: IdKey, kind: CmEvent) -> Option<Event> {
    let channel = drive.core().device_channel(of)?;
    drive.device_mut().events.push_back((channel, Ok((of, kind))));
    drive.readable(channel);
    let _rest = drive.run(8);
    let taken = if drive.core().channel_info(channel).is_some_and(|it| it.is_private) {
        None
    } else {
        drive.next_event(channel)
    };
    // The channel takes no event after a failure.
    drive.device_mut().events.clear();
    taken
}

/// A listener with eight requests: two are accepted on another channel, of which one is torn down and one becomes
/// synchronous; six are not delivered. A migration and a destruction wait for acks. A request that fails is left out.
fn program(drive: &mut Traced) {
    let here: SocketAddr = "10.0.0.1:7471".parse().unwrap();
    let Ok(channel) = drive.open_channel(Acks::Explicit) else { return };
    let other = drive.open_channel(Acks::Explicit).unwrap_or(channel);
    let sync = drive.create_id(None, PortSpace::Tcp);
    let Ok(listener) = drive.create_id(Some(channel), PortSpace::Tcp) else { return };
    let _ = drive.bind(listener, here);
    let _ = drive.listen(listener, 8);
    for _ in 0..8 {
        report(drive, listener, CmEvent::ConnectRequest);
    }
    let mut taken = Vec::new();
    if let Some(event) = drive.next_event(channel) {
        let _ = event.ack_token.map(|ack_token| drive.ack(ack_token));
        let _ = drive.migrate(event.id, Some(other), Time::NEVER);
        let _ = drive.accept(event.id, PARAM, &[7; 3], Time::NEVER);
        taken.extend(report(drive, event.id, CmEvent::Established));
        let _ = drive.teardown(event.id, Time::NEVER);
        taken.extend(report(drive, event.id, CmEvent::Disconnected));
    }
    if let Some(event) = drive.next_event(channel) {
        let _ = event.ack_token.map(|ack_token| drive.ack(ack_token));
        let _ = drive.migrate(event.id, Some(other), Time::NEVER);
        let _ = drive.accept(event.id, PARAM, &[], Time::NEVER);
        let ack_token = report(drive, event.id, CmEvent::Established).and_then(|event| event.ack_token);
        let _ = drive.migrate(event.id, None, Time::NEVER);
        let _ = ack_token.map(|ack_token| drive.ack(ack_token));
    }
    let _ = drive.destroy(listener, Time::NEVER);
    for _ in 0..8 {
        let _rest = drive.run(1);
    }
    taken.extend(std::iter::from_fn(|| drive.next_event(channel)));
    for event in taken {
        let _ = drive.destroy(event.id, Time::NEVER);
        let _ = event.ack_token.map(|ack_token| drive.ack(ack_token));
    }
    if let Ok(sync) = sync {
        let _ = drive.migrate(sync, Some(channel), Time::NEVER);
        let _ = drive.destroy(sync, Time::NEVER);
    }
    let _ = drive.close_channel(channel);
}

/// Records the program with a failure of one call. Returns the trace and the number of calls.
fn recorded(fails: usize) -> (String, usize) {
    let memory = Memory::default();
    let limits = Limits { ids: 16, channels: 8, ..Limits::SINGLE };
    let device = Given { fails, ..Given::default() };
    let mut drive = Drive::with(device, (), Trace::new(Arc::new(memory.clone())).unwrap(), limits);
    program(&mut drive);
    let (live, calls) = (drive.core().clone(), drive.device().calls);
    drop(drive);
    let text = memory.texts().swap_remove(0);
    let recordings = [Recording::read(&text[..]).unwrap()];
    let text = String::from_utf8(text).unwrap();
    let cores = replay(&recordings, |_, _| {}).unwrap_or_else(|wrong| panic!("call {fails}: {wrong}\n{text}"));
    assert!(recordings[0].is_whole());
    assert!(cores[0] == live, "call {fails}");
    (text, calls)
}

fn steps(text: &str) -> Vec<String> {
    let mut steps = Vec::new();
    replay(&[Recording::read(text.as_bytes()).unwrap()], |_, step| steps.push(step.to_string())).unwrap();
    steps
}

#[test]
fn each_call_can_fail() {
    let (text, calls) = recorded(0);
    assert!(calls > 25, "{text}");
    for part in ["{\"in\":\"child\"", "\"Disconnect {", "to: ch4 }", "MIGRATED", "\"CloseChannel { channel: ch3"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let mut faults = 0;
    for fails in 1..=calls {
        let (text, _) = recorded(fails);
        assert_eq!(text.matches("\"errno\":\"EIO\"").count(), 1, "call {fails}\n{text}");
        faults += text.matches("fault: ").count();
    }
    assert!(faults > 1, "{faults} faults");
}

/// The id keeps its state until the last outcome.
#[test]
fn a_listen_is_three_calls() {
    let steps = steps(&recorded(0).0);
    let at = steps.iter().position(|step| step.contains("listen on id1 ")).unwrap();
    let shown: Vec<_> = steps[at..at + 7].iter().map(|step| step.split_once("  ").unwrap().1.trim()).collect();
    assert_eq!(
        shown,
        [
            "> core           listen on id1   [id1 stays bound]",
            "core >  device OpenChannel { channel: ch3 }",
            "core  < device done: create_event_channel ch3",
            "core >  device Migrate { id: id1, from: ch0, to: ch3 }",
            "core  < device done: migrate_id on id1: from ch0 to ch3   [id1 stays bound]",
            "core >  device Listen { id: id1, backlog: 8 }",
            "core  < device done: listen on id1   [id1: bound -> listening]",
        ]
    );
}

/// The program ended in the middle of a request: each part of the trace can be replayed.
#[test]
fn a_trace_can_end_within_a_request() {
    let text = recorded(0).0;
    for (end, _) in text.match_indices('\n').skip(1) {
        let lines = steps(&text[..=end]).len();
        assert_eq!(lines + 1, text[..=end].lines().count());
    }
}

#[test]
fn the_private_data_of_a_call_is_compared() {
    let text = recorded(0).0;
    let (before, call) = text.split_once("\"out\":\"Accept ").unwrap();
    let other = format!("{before}\"out\":\"Accept {}", call.replacen(", data 07", ", data 08", 1));
    assert_ne!(other, text);
    let wrong = replay(&[Recording::read(other.as_bytes()).unwrap()], |_, _| {}).unwrap_err();
    assert_eq!(
        (wrong.line, wrong.what.starts_with("the core answers: Accept ")),
        (before.lines().count(), true),
        "{wrong}"
    );
}
