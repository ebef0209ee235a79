//! Two programs that call each other by [`Redial`](cmid_proto::redial::Redial): after each fault there is one connection
//! again, within the limits, and nothing is left behind.

use std::rc::Rc;
use std::time::Duration;

use cmid_proto::redial::{GivenUp, RedialLimits};
use cmid_sim::{Config, Fault, Flavour, Rule, World, check, check_with};

use crate::caller::{Caller, NAMES, Seen, Wants};

const SECOND: Duration = Duration::from_secs(1);

const LIMITS: RedialLimits = RedialLimits {
    handshake: Duration::from_secs(3),
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(2),
    attempts: u32::MAX,
    within: Duration::from_secs(120),
};

/// Adds both programs. They start at once, and their calls cross.
fn callers(world: &mut World, limits: RedialLimits) -> [Rc<Seen>; 2] {
    [0, 1].map(|number| {
        let seen = Rc::new(Seen::default());
        let of_program = Rc::clone(&seen);
        world.host(NAMES[number], move |node| Caller::new(node, number, limits, &of_program));
        seen
    })
}

/// Runs until both have received from the other one for a second, over the same connection.
#[track_caller]
fn heals(world: &mut World, both: &[Rc<Seen>; 2], within: Duration) {
    let begun = world.now();
    loop {
        let before = [0, 1].map(|at| (both[at].received.get(), both[at].connections.get()));
        world.run_for(SECOND);
        let is_connected = both.iter().zip(before).all(|(seen, (received, connections))| {
            seen.is_connected.get() && seen.received.get() >= received + 2 && seen.connections.get() == connections
        });
        if is_connected {
            return;
        }
        assert!(world.now().since(begun) < within, "not connected within {within:?}");
    }
}

/// Both programs stop: nothing is left, in the programs and in the fabric.
#[track_caller]
fn end(world: &mut World, both: &[Rc<Seen>; 2]) {
    for (seen, name) in both.iter().zip(NAMES) {
        seen.wants.set(Wants::Stops);
        world.node(name).wake();
    }
    world.run_until("both are done", SECOND * 200, |world| NAMES.iter().all(|name| world.is_done(name)));
    world.run_for(SECOND * 200);
    let counters = world.fabric().counters();
    assert_eq!((counters.freed_in_use, counters.copied_to_freed, counters.overruns), (0, 0, 0));
    assert_eq!(world.fabric().next_due(), None, "the fabric does not come to rest");
}

/// A world in which both are connected.
fn connected(limits: RedialLimits) -> (World, [Rc<Seen>; 2]) {
    let mut world = World::new(&Config::default());
    let both = callers(&mut world, limits);
    heals(&mut world, &both, SECOND * 3);
    (world, both)
}

#[test]
fn calls_that_cross_end_with_one_connection() {
    check(0..20, |world| {
        let both = callers(world, LIMITS);
        heals(world, &both, SECOND * 3);
        assert_eq!(both.each_ref().map(|seen| seen.connections.get()), [1, 1]);
        end(world, &both);
    });
}

/// A peer learns nothing of a loss of power until it sends: its connection is replaced by the call of the new program.
#[test]
fn a_program_that_starts_again_is_connected_again() {
    let ends: [fn(&mut World, &str); 2] = [World::crash, World::lose_power];
    for (end_of, name) in ends.into_iter().flat_map(|end_of| NAMES.map(|name| (end_of, name))) {
        for away in [Duration::ZERO, SECOND, SECOND * 20] {
            let (mut world, both) = connected(LIMITS);
            end_of(&mut world, name);
            world.run_for(away);
            world.restart(name);
            heals(&mut world, &both, SECOND * 20);
            end(&mut world, &both);
        }
    }
}

#[test]
fn a_partition_is_healed_whatever_it_takes() {
    for away in [1, 5, 20, 60] {
        let (mut world, both) = connected(LIMITS);
        let separated = world.rule(Rule::cut());
        world.run_for(SECOND * away);
        drop(separated);
        heals(&mut world, &both, SECOND * 20);
        end(&mut world, &both);
    }
}

#[test]
fn a_partition_that_lasts_too_long_is_given_up_on_both_sides() {
    let (mut world, both) = connected(RedialLimits { within: SECOND * 30, ..LIMITS });
    let separated = world.rule(Rule::cut());
    world.run_for(SECOND * 60);
    assert_eq!(both.each_ref().map(|seen| seen.given_up.get()), [Some(GivenUp::Deadline); 2]);
    drop(separated);
    end(&mut world, &both);
}

#[test]
fn a_device_that_comes_back_is_connected_again() {
    for name in NAMES {
        let (mut world, both) = connected(LIMITS);
        let host = world.node(name).host().clone();
        host.remove_device();
        world.run_for(SECOND * 4);
        host.add_device();
        heals(&mut world, &both, SECOND * 20);
        end(&mut world, &both);
    }
}

#[test]
fn a_refusal_of_the_application_is_the_end() {
    let (mut world, both) = connected(LIMITS);
    both[1].wants.set(Wants::Refuses);
    world.restart(NAMES[1]);
    world.run_for(SECOND * 20);
    assert_eq!(both[0].given_up.get(), Some(GivenUp::Refused));
    end(&mut world, &both);
}

/// Also while others last and while handshakes are under way. A program starts only where there is a device.
#[test]
fn after_any_faults_there_is_one_connection_again_and_nothing_is_left() {
    for (flavour, micros) in [(Flavour::Linux6_12, 12), (Flavour::Linux6_1, 1000), (Flavour::Linux6_12, 50_000)] {
        let latency = Duration::from_micros(micros);
        check_with(&Config { flavour, latency, ..Config::default() }, 0..50, |world| {
            let both = callers(world, LIMITS);
            for span in [SECOND / 10, SECOND, SECOND * 5, SECOND * 10] {
                let faults = 1 + world.random(5) as usize;
                let others = [&[Fault::DeviceRemoval][..], &[Fault::Crash, Fault::PowerLoss]][faults % 2];
                let kinds: Vec<_> = Fault::ALL.into_iter().filter(|kind| !others.contains(kind)).collect();
                world.chaos(faults, span, &kinds);
                world.run_for(span);
                heals(world, &both, SECOND * 30);
            }
            end(world, &both);
        });
    }
}
