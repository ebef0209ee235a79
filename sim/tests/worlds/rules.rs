//! Rules for messages and data: each does what it says, as long as its guard lives.

use std::cell::RefCell;
use std::time::Duration;

use cmid_proto::Time;
use cmid_sim::{Config, Counters, Fabric, Host, Kind, Latency, Rule, World, check};

use crate::client::{Client, Mistake};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// Runs a client that sends 200 numbers to a server under a rule. Returns the counters, when it was done, and how often the
/// rule had its effect.
fn under(seeds: u64, rule: impl Fn(&Host, &Host) -> Rule) -> Vec<(Counters, Time, u64)> {
    let ended = RefCell::new(Vec::new());
    check(0..seeds, |world| {
        let server = world.host("server", Server::new);
        let client = world.client("client", |node| Client::new(node, 200, Mistake::None));
        let guard = world.rule(rule(&server, &client));
        world.run(SECOND * 60);
        ended.borrow_mut().push((world.fabric().counters(), world.now(), guard.count()));
    });
    ended.into_inner()
}

#[test]
fn the_nth_message_of_a_kind_is_lost_and_no_other() {
    for kind in [Kind::Req, Kind::Rep] {
        for (counters, _, count) in under(5, |_, _| Rule::drop().of(&[kind]).nth(1)) {
            assert_eq!((counters.lost, count), (1, 1), "{kind:?}");
        }
    }
    // There is no second client, so no third request.
    assert!(
        under(1, |_, _| Rule::drop().of(&[Kind::Req]).nth(3))
            .iter()
            .all(|(counters, _, count)| (counters.lost, *count) == (0, 0))
    );
}

#[test]
fn a_lost_packet_is_repeated_and_those_after_it_keep_their_order() {
    for (counters, end, count) in under(20, |_, client| Rule::drop().of(&[Kind::Packet]).from(client).with_chance(0.05))
    {
        assert!(counters.packets_lost == count && (1..100).contains(&count), "{count} {counters:?}");
        // Each loss costs the ACK timeout.
        assert!(end > Time::ZERO.after(Duration::from_millis(8 * counters.packets_lost / 4)), "{end} {counters:?}");
    }
}

#[test]
fn a_delay_slows_a_connection_down_and_changes_nothing_else() {
    let quick = under(5, |_, _| Rule::drop().of(&[Kind::Mra]));
    let slow = under(5, |_, _| Rule::delay(Latency::Uniform(Duration::ZERO, Duration::from_millis(2))));
    for ((before, fast, _), (after, late, _)) in quick.into_iter().zip(slow) {
        assert!(late > fast.after(Duration::from_millis(40)), "{late} and {fast}");
        assert_eq!(before.sent, after.sent);
    }
}

#[test]
fn a_narrow_link_slows_the_messages_and_the_data_of_one_direction_down() {
    // 1,600 bytes of data, and messages of 256 bytes.
    for (counters, end, count) in under(5, |_, client| Rule::bandwidth(20_000).from(client)) {
        assert!(end > Time::ZERO.after(Duration::from_millis(80 + 12)), "{end} {counters:?}");
        assert!(count > 200 && counters.lost == 0, "{count} {counters:?}");
    }
}

#[test]
fn a_message_that_arrives_twice_is_taken_once() {
    let ended = under(20, |server, client| Rule::duplicate().between(server, client));
    // REQ, REP, RTU at least.
    assert!(ended.iter().all(|(_, _, count)| *count >= 3), "{ended:?}");
}

#[test]
fn a_link_that_flaps_is_outlived() {
    let [up, down] = [30, 20].map(Duration::from_millis);
    for (counters, ..) in under(20, |_, client| Rule::flap(up, down).from(client)) {
        assert_eq!(counters.lost, 0);
    }
}

#[test]
fn a_link_that_never_goes_down_and_a_delay_without_end_leave_nothing_due() {
    let fabric = Fabric::new(Config::default());
    let never = [Rule::flap(Duration::MAX, Duration::ZERO), Rule::delay(Latency::Fixed(Duration::MAX))];
    let guards = never.map(|rule| fabric.rule(rule));
    fabric.advance_to(Time::NEVER);
    assert_eq!((fabric.next_due(), guards.map(|guard| guard.count())), (None, [0, 0]));
}

#[test]
fn what_a_partition_stops_is_not_repeated_when_another_link_comes_back() {
    check(0..5, |world| {
        world.host("server", Server::new);
        world.client("client", |node| Client::new(node, 200, Mistake::None));
        let other = world.host("other", Server::new);
        let millis = Duration::from_millis(1);
        let _slow = world.rule(Rule::delay(Latency::Uniform(Duration::ZERO, 2 * millis)));
        let _flaps = world.rule(Rule::flap(millis, millis).from(&other));
        world.run_for(30 * millis);
        let partition = world.partition(&["client"], &["server"]);
        // Before the QPs give up. Each has at most four packets under way.
        world.run_for(40 * millis);
        assert!((1..=8).contains(&partition.count()), "{}", partition.count());
        drop(partition);
        world.run(SECOND * 60);
    });
}

#[test]
fn a_partition_lasts_as_long_as_its_guard() {
    let world = |world: &mut World| {
        world.host("server", Server::new);
        world.client("client", |node| Client::new(node, 10, Mistake::None));
        let partition = world.partition(&["client"], &["server"]);
        world.run_for(SECOND * 3);
        assert!(!world.is_done("client"));
        drop(partition);
        world.run(SECOND * 10);
    };
    check(0..10, world);
}

#[test]
fn a_world_stops_at_the_message_that_its_condition_waits_for() {
    let mut world = World::new(&Config::default());
    world.host("server", Server::new);
    world.client("client", |node| Client::new(node, 200, Mistake::None));
    // It travels longer than the client waits for anything before its next turn.
    let _slow = world.rule(Rule::delay(Latency::Fixed(Duration::from_millis(40))).of(&[Kind::Req]));
    let sent = world.rule(Rule::delay(Latency::Fixed(Duration::ZERO)).of(&[Kind::Req]));
    world.run_until("a request is sent", SECOND, |_| sent.count() > 0);
    let (at, cut) = (world.now(), world.partition(&["client"], &["server"]));
    world.run_until("it is stopped at its arrival", SECOND, |_| cut.count() > 0);
    assert_eq!(world.now().since(at).as_millis(), 40);
}
