//! Programs with a mistake, each found within 1,000 seeds by a short test; without the mistake the test passes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cmid_sim::{Config, Failure, Fault, Node, World, check, check_with, find, find_with};

use crate::client::{Client, Mistake};
use crate::rebalanced::Rebalanced;
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A slow network, so that there is time for faults.
fn slow() -> Config {
    Config { latency: Duration::from_millis(2), ..Config::default() }
}

/// The test finds the mistake within 1,000 seeds, and finds nothing in 100 worlds without it.
fn is_found(mistake: Mistake, test: fn(&mut World, Mistake)) -> Failure {
    check_with(&slow(), 0..100, |world| test(world, Mistake::None));
    find_with(&slow(), 0..1000, |world| test(world, mistake)).expect("the mistake is found")
}

fn client(mistake: Mistake) -> impl FnMut(&Node) -> Client {
    move |node| Client::new(node, 40, mistake)
}

#[test]
fn a_buffer_that_is_reused_before_its_completion() {
    let failure = is_found(Mistake::ReusesBuffer, |world, mistake| {
        world.host("server", Server::new);
        world.client("client", client(mistake));
        world.chaos(4, SECOND / 10, &[Fault::Loss, Fault::Pause]);
        world.run(SECOND * 30);
    });
    assert!(failure.message.contains("another number than the one that was sent"), "{failure}");
    let late = "devices read memory until the completion (Config::reads_late)";
    assert!(failure.seed < 10 && failure.faults == [late], "{failure}");
    // Without a device that reads late, a fault has to come in between.
    let mut world = World::new(&slow());
    world.host("server", Server::new);
    world.client("client", client(Mistake::ReusesBuffer));
    world.run(SECOND * 30);
}

#[test]
fn a_connection_that_is_not_disconnected() {
    let failure = is_found(Mistake::ForgetsConnection, |world, mistake| {
        let open = Rc::new(Cell::new(0));
        let counted = Rc::clone(&open);
        world.host("server", move |node| Server::counted(node, Rc::clone(&counted)));
        world.client("client", client(mistake));
        world.chaos(4, SECOND / 4, &[Fault::Pause]);
        world.run_until("the client is done", SECOND * 30, |world| {
            assert!(open.get() <= 1, "a connection is left at the server");
            world.is_done("client")
        });
    });
    assert!(failure.message.contains("a connection is left"), "{failure}");
    assert!(failure.faults.iter().any(|fault| fault.contains("pause of server")), "{failure}");
}

fn numbers_come_back(world: &mut World, client: fn(&Node) -> Client) {
    world.host("server", Server::new);
    world.client("client", client);
    world.chaos(4, Duration::from_millis(100), &[Fault::Crash, Fault::PowerLoss]);
    world.run(Duration::from_secs(30));
}

#[test]
fn a_wait_for_completions_only() {
    check_with(&slow(), 0..100, |world| numbers_come_back(world, |node| Client::new(node, 40, Mistake::None)));
    let waits: fn(&Node) -> Client = |node| Client::new(node, 40, Mistake::IgnoresEvents);
    let failure = find_with(&slow(), 0..1000, |world| numbers_come_back(world, waits)).unwrap();
    assert!(failure.message.contains("not done within 30s: client"), "{failure}");
    assert!(failure.faults.iter().any(|fault| fault.contains("of server")), "{failure}");
    // The README files show this test, and that of this crate what it finds.
    let top = include_str!("../../../README.md");
    assert_eq!(function(top, "numbers_come_back"), function(include_str!("mistakes.rs"), "numbers_come_back"));
    let (readme, here) = (include_str!("../../README.md"), include_str!("mistakes.rs"));
    assert_eq!(function(readme, "numbers_come_back"), function(here, "numbers_come_back"));
    assert!(readme.contains(&failure.to_string()), "{failure}");
    let lines: Vec<&str> = failure.trace.lines().collect();
    let fault = lines.iter().position(|line| line.contains("fault:")).unwrap();
    let shown = lines[fault - 2..=fault].join("\n");
    assert!(readme.contains(&shown), "{shown}");
}

/// The text of a function at the start of a line, up to its end.
fn function<'a>(text: &'a str, name: &str) -> &'a str {
    let from = text.find(&format!("\nfn {name}(")).unwrap_or_else(|| panic!("no {name}"));
    let rest = &text[from..];
    &rest[..rest.find("\n}\n").unwrap_or_else(|| panic!("no end of {name}"))]
}

#[test]
fn a_storm_of_reconnects() {
    let failure = is_found(Mistake::Storms, |world, mistake| {
        world.host("server", Server::new);
        for name in ["a", "b", "c"] {
            world.client(name, client(mistake));
        }
        world.chaos(3, SECOND / 2, &[Fault::Crash]);
        world.run(SECOND * 30);
        let sent = world.fabric().counters().sent;
        assert!(sent < 400, "{sent} messages for three connections");
    });
    assert!(failure.message.contains("messages for three connections"), "{failure}");
    assert!(failure.faults.iter().any(|fault| fault.contains("crash of server")), "{failure}");
}

#[test]
fn a_listener_that_moves_without_its_requests() {
    let test = |leaves_requests| {
        move |world: &mut World| {
            world.host("server", move |node| Rebalanced::new(node, leaves_requests));
            for name in ["a", "b", "c"] {
                world.client(name, |node| Client::new(node, 0, Mistake::None));
            }
            world.run(SECOND * 5);
        }
    };
    check(0..100, test(false));
    let failure = find(0..1000, test(true)).expect("the mistake is found");
    assert!(failure.message.contains("not done within 5s"), "{failure}");
}
