//! What the worlds of a test have met.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::table::EventColumn;
use cmid_proto::{Acks, CmEvent, ConnParam, Drive, Limits, PortSpace, RequestKind, State, Time};
use cmid_sim::{Config, Fault, Kind, Latency, Node, Rule, RuleKind, Turn, World, check, turn};

use crate::client::{Client, Mistake};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// Connects to a server that does not answer, until its deadline.
fn connects(node: &Node) -> impl FnMut(Time) -> Turn + use<> {
    let mut drive = Drive::with(node.device(), (), node.coverage(), Limits::default());
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.establish(id).unwrap_err();
    drive.resolve_addr(id, None, node.addr_of("server", 7), Time::NEVER).unwrap();
    let param = ConnParam { qp_num: 77, ..ConnParam::default() };
    move |now| {
        turn(&mut drive, now);
        while let Some(event) = drive.next_event(channel) {
            if event.cm() == Some(CmEvent::AddrResolved) {
                drive.resolve_route(id, Time::NEVER).unwrap();
            } else if event.cm() == Some(CmEvent::RouteResolved) {
                drive.connect(id, param, &[], now.after(SECOND)).unwrap();
            } else {
                return Turn::Done;
            }
        }
        drive.next_action().into()
    }
}

#[test]
fn a_check_reports_the_cells_and_the_rules_that_its_worlds_have_met() {
    let report = check(0..3, |world| {
        world.host("server", |_: &Node| |_: Time| Turn::Wait(None));
        world.client("client", connects);
        let _lost = world.rule(Rule::drop().of(&[Kind::Req]).nth(1));
        world.fault(Fault::Pause, "server", "client", Time::ZERO.after(SECOND / 2), SECOND);
        world.fault(Fault::Pause, "server", "client", Time::ZERO.after(2 * SECOND), SECOND); // after the client's end
        world.run(10 * SECOND);
    });
    let text = "4 of 598 cells of requests, 3 of 414 of events\n\
                idle: resolve_addr, establish\n\
                resolving address: ADDR_RESOLVED\n\
                address resolved: resolve_route\n\
                resolving route: ROUTE_RESOLVED\n\
                route resolved: connect\n\
                connecting: deadline\n\
                rules: 3 Drop Req\n\
                faults: 3";
    let coverage = report.coverage;
    assert_eq!((report.worlds, coverage.faults(), &*coverage.to_string()), (3, 3, text));
    assert!(
        coverage.has_request(State::Idle, RequestKind::Establish) && coverage.rules(RuleKind::Drop, Kind::Req) == 3
    );
    assert!(
        coverage.has_event(State::Connecting, EventColumn::Deadline) && coverage.rules(RuleKind::Drop, Kind::Rep) == 0
    );
    assert!(!coverage.has_event(State::Connecting, EventColumn::Established));
}

#[test]
fn a_drive_that_is_not_observed_meets_nothing() {
    let report = check(0..1, |world| {
        world.client("client", |node| {
            let mut drive = node.drive();
            drive.create_id(None, PortSpace::Tcp).unwrap();
            |_: Time| Turn::Done
        });
        world.run(SECOND);
    });
    assert_eq!(report.coverage.to_string(), "0 of 598 cells of requests, 0 of 414 of events");
}

/// Runs a client that sends numbers to a server under a rule, and returns what has met it, as told by its guard and by the
/// report.
fn met(kind: RuleKind, rule: Rule) -> (u64, u64) {
    let mut world = World::new(&Config::default());
    world.host("server", Server::new);
    world.client("client", |node| Client::new(node, 100, Mistake::None));
    let guard = world.rule(rule);
    world.run_for(SECOND);
    (guard.count(), world.coverage().rules(kind, None))
}

#[test]
fn each_kind_of_rule_is_in_the_report_as_often_as_its_guard_says() {
    for kind in RuleKind::ALL {
        let rule = match kind {
            RuleKind::Drop => Rule::drop().with_chance(0.3),
            RuleKind::Delay => Rule::delay(Latency::Fixed(Duration::from_micros(9))),
            RuleKind::Duplicate => Rule::duplicate().of(&[Kind::Req, Kind::Rep]),
            RuleKind::Cut => Rule::cut(),
            RuleKind::Flap => Rule::flap(Duration::from_micros(500), Duration::from_micros(500)),
            RuleKind::Bandwidth => Rule::bandwidth(1_000_000),
        };
        let (count, reported) = met(kind, rule);
        assert!(count > 0 && count == reported, "{kind:?}: {count} and {reported}");
    }
}

#[test]
fn a_cut_is_met_by_look_ups_messages_and_packets() {
    let mut world = World::new(&Config::default());
    let open = Rc::new(Cell::new(0));
    let counted = Rc::clone(&open);
    world.host("server", move |node| Server::counted(node, Rc::clone(&counted)));
    for name in ["late", "client"] {
        world.host(name, |node| Client::new(node, u64::MAX, Mistake::None));
    }
    let first = world.partition(&["late"], &["server"]);
    world.run_until("one is connected", SECOND, |_| open.get() == 1);
    let second = world.partition(&["client"], &["server"]);
    world.run_for(SECOND);
    drop([first, second]);
    let text = world.coverage().to_string();
    let rules = text.lines().last().unwrap();
    for met in ["Cut look-up", "Cut Packet", "Cut Dreq"] {
        assert!(rules.contains(met), "{met} is not in {rules}");
    }
}
