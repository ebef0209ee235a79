//! The same seed is the same world, byte by byte, whatever faults there are. Chaos and other processes: worlds of io-tokio.

use std::time::Duration;

use cmid_proto::Time;
use cmid_sim::{Config, Fault, Kind, Rule, World};

use crate::client::{Client, Mistake};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// The trace and the chart of a world with a server and a client that sends numbers.
fn record(seed: u64, test: impl FnOnce(&mut World)) -> [String; 2] {
    let mut world = World::logged(&Config { seed, ..Config::default() });
    world.host("server", Server::new);
    world.client("client", |node| Client::new(node, 100, Mistake::None));
    test(&mut world);
    world.run(SECOND * 60);
    [world.trace(), world.chart()]
}

#[test]
fn a_rule_that_never_has_its_effect_changes_nothing_and_a_certain_one_needs_no_chance() {
    let with = |rule: Option<Rule>| {
        record(7, |world| {
            let guard = rule.map(|rule| world.rule(rule));
            world.chaos(3, SECOND / 10, &[Fault::Loss, Fault::Delay]);
            world.run_for(SECOND / 20);
            drop(guard);
        })
    };
    let without = with(None);
    for never in [Rule::drop().with_chance(0.0), Rule::duplicate().with_chance(0.0), Rule::drop().nth(1_000_000)] {
        assert!(with(Some(never.clone())) == without, "{never:?}");
    }
    for rule in [Rule::drop().of(&[Kind::Rep]), Rule::duplicate()] {
        let always = with(Some(rule.clone().with_chance(1.0)));
        assert!(with(Some(rule.clone())) == always && always != without, "{rule:?}");
    }
}

#[test]
fn hosts_are_separated_until_the_last_of_several_partitions_ends() {
    let separated = |seed| {
        record(seed, |world| {
            let [first, second, all] = [(&["client"][..], &["server"][..]), (&["server"], &["client"]), (&[], &[])]
                .map(|(some, others)| world.partition(some, others));
            for guard in [second, all, first] {
                world.run_for(SECOND);
                assert!(!world.is_done("client") && world.fabric().counters().sent == 0);
                drop(guard);
            }
        })
    };
    (0..5).for_each(|seed| assert!(separated(seed) == separated(seed), "seed {seed}"));
}

/// The times of all steps of a world without faults.
fn steps(trace: &str) -> Vec<Time> {
    let seconds = trace.lines().map(|line| line.split(' ').next().unwrap().replace('.', ""));
    let mut times: Vec<_> = seconds.map(|nanos| Time(nanos.parse().unwrap())).collect();
    times.dedup();
    times
}

#[test]
fn a_program_that_ends_at_any_step_begins_anew_and_the_same_way_each_time() {
    let [trace, _] = record(1, |_| {});
    let steps = steps(&trace);
    assert!(steps.len() > 40, "{trace}");
    for (name, fault) in [("server", Fault::Crash), ("client", Fault::Crash), ("server", Fault::PowerLoss)] {
        for at in &steps {
            let world = || record(1, |world| world.fault(fault, name, name, *at, SECOND / 100));
            let [one, two] = [(); 2].map(|()| world());
            assert!(one == two, "{fault:?} of {name} at {at}");
        }
    }
}
