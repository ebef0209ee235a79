//! Tests that the example of `docs/trace.md` is a valid trace, and that the document lists every kind of line.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use cmid_proto::{Acks, Drive, Limits, PortSpace, State, Time};
use cmid_trace::{Memory, Recording, Trace, replay};

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/trace.md")).unwrap()
}

fn block(document: &str, language: &str) -> String {
    let (_, rest) = document.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_example_of_the_documentation_is_one() {
    let document = document();
    let recordings = [Recording::read(block(&document, "jsonl").as_bytes()).unwrap()];
    assert!(recordings[0].is_whole());
    let mut shown = String::new();
    let cores = replay(&recordings, |_, step| shown += &format!("{:>5}  {step}\n", step.line)).unwrap();
    assert_eq!(cores[0].ids().count(), 1);
    assert_eq!(cores[0].ids().map(|id| cores[0].state(id)).next(), Some(Some(State::Failed)));
    assert!(shown == block(&document, "text"), "it is shown as\n{shown}");
}

/// Repeats the steps of the example. The simulator's time is virtual, so the trace is reproducible.
#[test]
fn the_example_is_what_is_recorded() {
    let memory = Memory::default();
    let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
    let host = fabric.host(&["10.0.0.1".parse().unwrap()]);
    let trace = Trace::new(std::sync::Arc::new(memory.clone())).unwrap();
    let mut drive = Drive::with(host.device(), (), trace, Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(id, "10.0.0.1:7471".parse().unwrap()).unwrap();
    let deadline = drive.within(Duration::from_secs(1));
    drive.resolve_addr(id, None, "10.0.0.9:7471".parse().unwrap(), deadline).unwrap();
    drive.establish(id).unwrap_err();
    drive.set_now(Time(1_000_000_000));
    let _look = drive.run(8);
    let _ = drive.next_event(channel).unwrap();
    drop(drive);
    let text = String::from_utf8(memory.texts().swap_remove(0)).unwrap();
    assert!(text == block(&document(), "jsonl"), "the recording is now\n{text}");
}

/// The error message of the reader lists every kind of line; the document must list the same.
#[test]
fn every_line_is_documented() {
    let text = format!("{}\n{{\"in\":\"nonsense\"}}\n", block(&document(), "jsonl").lines().next().unwrap());
    let wrong = Recording::read(text.as_bytes()).unwrap_err().to_string();
    let (_, known) = wrong.split_once("expected one of ").unwrap();
    let names: Vec<_> = known.split(", ").map(|name| name.trim_matches('`')).collect();
    assert!(names.len() > 15, "{wrong}");
    let document = document();
    for name in names {
        assert!(document.contains(&format!("`{name}`")), "docs/trace.md does not mention {name}");
    }
}
