//! What is told of a failure.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cmid_proto::{Acks, PortSpace, Time};
use cmid_sim::{Failure, Fault, Node, Turn, World, check, find};

use crate::client::{Client, Mistake};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

fn idle(_: &Node) -> impl FnMut(Time) -> Turn + use<> {
    |_| Turn::Wait(None)
}

/// Fails if `b` does not run at some time.
fn b_runs(world: &mut World) {
    for name in ["a", "b", "c"] {
        world.host(name, idle);
    }
    world.chaos(12, SECOND, &[Fault::Crash, Fault::Pause, Fault::Partition, Fault::ClockJump]);
    for _ in 0..1000 {
        world.run_for(Duration::from_millis(1));
        assert!(world.runs("b"), "b does not run");
    }
}

#[test]
fn a_failure_is_shrunk_to_the_fault_that_it_needs() {
    let failure = find(0..100, b_runs).unwrap();
    assert_eq!(failure.message, "b does not run");
    assert!(failure.faults.len() == 1 && failure.faults[0].starts_with("crash of b"), "{failure}");
    assert!(failure.trace.contains("fault: crash of b") && !failure.trace.contains("crash of a"), "{}", failure.trace);
}

#[test]
fn a_check_that_fails_says_how_to_repeat_it_and_writes_a_trace_and_a_chart() {
    let panic = catch_unwind(|| check(0..100, b_runs)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    let line = |start: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(start)).unwrap();
    let seed: u64 = line("seed ").split(':').next().unwrap().parse().unwrap();
    let name = std::thread::current().name().unwrap().to_owned();
    let command = format!("CMID_SEED={seed} cargo test -p cmid-sim {name}");
    let rest = " -- --exact\n         with the same --features\n  trace: ";
    assert!(text.contains(&format!("\n  again: {command}{rest}")), "{text}");
    assert!(include_str!("../../README.md").contains(rest), "{text}");
    let [trace, chart] = ["trace: ", "chart: "].map(|what| std::fs::read_to_string(Path::new(line(what))).unwrap());
    assert!(trace.ends_with("failed: b does not run\n"), "{trace}");
    assert!(trace.contains("b: crashes") && chart.starts_with("<svg"), "{chart}");
    assert!(chart.ends_with(">failed: b does not run</text></g>\n</svg>\n"), "{chart}");
    assert_eq!(chart.matches("<g>").count(), trace.lines().count());
}

#[test]
fn a_variable_without_a_seed_is_an_error_and_runs_no_other_world() {
    const VARIABLE: &str = "CMID_SEED";
    if std::env::var_os(VARIABLE).is_some() {
        assert_eq!(check(0..3, |world| world.run_for(SECOND)).worlds, 1);
        return;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    for (text, passes) in [("7", true), ("7..8", true), ("", false), ("seven", false), ("8..7", false)] {
        let mut test = Command::new(std::env::current_exe().unwrap());
        let output = test.args(["--exact", &name]).env(VARIABLE, text).output().unwrap();
        assert_eq!(output.status.success(), passes, "{text}: {output:?}");
        assert!(passes || String::from_utf8_lossy(&output.stdout).contains(&format!("CMID_SEED={text:?}: neither")));
    }
}

#[test]
fn a_program_that_is_not_deterministic_is_named_as_such() {
    let fails = Cell::new(true);
    let failure = find(0..1, |_| assert!(!fails.replace(false), "only once")).unwrap();
    assert!(failure.message.contains("only once") && failure.message.contains("not deterministic"), "{failure}");
}

#[test]
fn a_trace_has_the_messages_calls_and_events_of_all_hosts() {
    let failure = find(0..1, |world| {
        world.host("server", Server::new);
        world.client("client", |node| {
            node.note("hello");
            Client::new(node, 3, Mistake::None)
        });
        world.run(SECOND);
        world.run_for(Duration::from_millis(1));
        panic!("the end");
    });
    let Failure { trace, chart, .. } = failure.unwrap();
    // The chart has each line, as a whole.
    for text in trace.lines().filter_map(|line| line.split_once(": ")).map(|(_, text)| text) {
        assert!(chart.contains(&text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")), "{text}");
    }
    for part in [
        "client: hello",
        "server: Listen {",
        "client -> server: Req",
        "server: id1 CONNECT_REQUEST, status 0",
        "server -> client: Rep",
        "client -> server: send, 8 bytes (QP 1048576, request 8)",
        "client: is done",
        "client -> server: Dreq",
    ] {
        assert!(trace.contains(part), "{part} is not in\n{trace}");
    }
}

#[test]
fn a_trace_shows_which_device_of_a_process_has_a_key() {
    let mut world = World::logged(&cmid_sim::Config::default());
    world.host("a", |node| {
        for _ in 0..2 {
            let mut drive = node.drive();
            let channel = drive.open_channel(Acks::OnDelivery).unwrap();
            drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        }
        idle(node)
    });
    world.run_for(Duration::from_millis(1));
    world.crash("a");
    world.restart("a");
    world.run_for(Duration::from_millis(1));
    let trace = world.trace();
    for of in ["a: CreateId { id: id0,", "a: device 2: CreateId { id: id0,"] {
        assert_eq!(trace.matches(of).count(), 2, "{of} in\n{trace}");
    }
}

#[test]
fn a_fault_that_is_told_strikes_at_its_time_and_the_chart_has_a_row_for_each_line_of_the_trace() {
    let mut world = World::logged(&cmid_sim::Config::default());
    world.host("server", Server::new);
    world.host("client", idle);
    world.fault(Fault::LinkDown, "server", "client", Time(40_000_000), SECOND);
    world.fault(Fault::Crash, "client", "server", Time(2_000_000_000), SECOND);
    world.run_for(Duration::from_millis(2500));
    assert!(!world.runs("client"));
    world.run_for(SECOND);
    assert!(world.runs("client"));
    let (trace, chart) = (world.trace(), world.chart());
    for line in [
        "0.040000000 s  server: fault: link down of server",
        "1.040000000 s  server: over: link down of server",
        "2.000000000 s  client: crashes",
    ] {
        assert!(trace.contains(line), "{line} is not in\n{trace}");
    }
    // The last text is within the picture.
    let width: usize = chart.split("width=\"").nth(1).and_then(|it| it.split('"').next()?.parse().ok()).unwrap();
    assert!(width > 640, "{width}");
    assert_eq!(chart.matches("<g>").count(), trace.lines().count());
    assert_eq!(chart.matches("</g>").count(), trace.lines().count());
    let mut silent = World::new(&cmid_sim::Config::default());
    silent.host("server", Server::new);
    silent.run_for(SECOND);
    assert!(silent.trace().is_empty() && !silent.chart().contains("<g>"));
}

#[test]
fn a_program_that_waits_for_a_time_that_has_passed_again_and_again_is_named() {
    let failure = find(0..1, |world| {
        world.client("spinner", |_| |now: Time| Turn::Wait(Some(now)));
        world.run(SECOND);
    });
    let message = failure.unwrap().message;
    assert_eq!(message, "spinner: 100000 turns, each waits for a time that has passed");
}

#[test]
fn a_client_that_is_not_done_is_named() {
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(&cmid_sim::Config::default());
        world.client("a", |_: &Node| |_: Time| Turn::Done);
        world.client("b", idle);
        world.run(SECOND);
    }));
    let panic = failed.unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "not done within 1s: b");
}
