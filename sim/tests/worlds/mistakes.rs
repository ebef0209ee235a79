//! Programs with a mistake, each found within 1,000 seeds by a short test; without the mistake the test passes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cmid_sim::{Config, Failure, Fault, Node, World, check, check_with, find, find_with};

use crate::client::{Client, Mistake};
use crate::rebalanced::Rebalanced;
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// The test finds the mistake within 1,000 seeds, and finds nothing in 100 worlds without it.
fn is_found(mistake: Mistake, test: fn(&mut World, Mistake)) -> Failure {
    // A slow network, so that there is time for faults.
    let config = Config { latency: Duration::from_millis(2), ..Config::default() };
    check_with(&config, 0..100, |world| test(world, Mistake::None));
    find_with(&config, 0..1000, |world| test(world, mistake)).expect("the mistake is found")
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
    assert!(failure.faults.len() == 1 && failure.faults[0].contains("loss of"), "{failure}");
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

#[test]
fn a_wait_for_completions_only() {
    let failure = is_found(Mistake::IgnoresEvents, |world, mistake| {
        world.host("server", Server::new);
        world.client("client", client(mistake));
        world.chaos(4, SECOND / 10, &[Fault::Crash, Fault::PowerLoss]);
        world.run(SECOND * 30);
    });
    assert!(failure.message.contains("not done within 30s: client"), "{failure}");
    assert!(failure.faults.iter().any(|fault| fault.contains("of server")), "{failure}");
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
