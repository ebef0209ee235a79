//! The steps of a driver as events of `tracing`: their targets, levels and fields.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmid_epoll::{Config, Epoll};
use cmid_proto::{Acks, CmEvent, Errno, Limits, PortSpace, Time};
use cmid_sim::{Clock, Fabric, Host};
use cmid_trace::Tracing;
use tracing::Level;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// An event: its level, its target, its fields.
type Emitted = (Level, &'static str, BTreeMap<&'static str, String>);

/// Stores the events.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<Emitted>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Store {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push((*event.metadata().level(), event.metadata().target(), fields.0));
    }
}

/// Runs `program` and returns what it emits.
fn emitted(program: impl FnOnce()) -> Vec<Emitted> {
    let store = Store::default();
    let subscriber = tracing_subscriber::registry().with(store.clone());
    tracing::subscriber::with_default(subscriber, program);
    let events = store.0.lock().unwrap();
    events.clone()
}

/// Returns the only event with this message.
fn with<'a>(events: &'a [Emitted], message: &str) -> &'a Emitted {
    let mut found = events.iter().filter(|(_, _, fields)| fields["message"] == message);
    let event = found.next().unwrap_or_else(|| panic!("no {message:?} in {events:#?}"));
    assert!(found.next().is_none(), "{message:?} twice");
    event
}

#[track_caller]
fn is((level, target, fields): &Emitted, expected: (Level, &str, &[(&str, &str)])) {
    let mut fields = fields.clone();
    assert!(fields.remove("now").unwrap().ends_with(" s"));
    fields.remove("message");
    let wanted: BTreeMap<_, _> = expected.2.iter().map(|&(name, value)| (name, value.to_owned())).collect();
    assert_eq!((*level, *target, fields), (expected.0, expected.1, wanted));
}

fn host() -> Host {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()])
}

#[test]
fn requests_calls_events_and_failures_have_their_targets_levels_and_fields() {
    let host = host();
    let events = emitted(|| {
        let limits = Limits { core: Some(0), ..Limits::SINGLE };
        let mut epoll = Epoll::observed(host.device(), Config { limits, ..Config::default() }, Tracing).unwrap();
        let drive = epoll.drive();
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        drive.establish(id).unwrap_err();
        let elsewhere = "10.9.9.9:1".parse().unwrap();
        assert_eq!(drive.bind(id, elsewhere).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
        let deadline = drive.within(Duration::from_secs(20));
        drive.resolve_addr(id, None, "10.0.0.2:7471".parse().unwrap(), deadline).unwrap();
        let event = loop {
            epoll.wait(Some(Duration::from_secs(20))).unwrap();
            if let Some(event) = epoll.drive().next_event(channel) {
                break event;
            }
        };
        assert_eq!(event.cm(), Some(CmEvent::AddrResolved));
        epoll.drive().destroy(id, Time::NEVER).unwrap();
    });

    let created = with(&events, "create id, TCP on ch0: id0");
    is(created, (Level::DEBUG, "cmid::request", &[("id", "id0"), ("channel", "ch0")]));
    let refused = "establish on id0 while idle: not in this state";
    is(
        with(&events, &format!("refused: {refused}")),
        (
            Level::WARN,
            "cmid::request",
            &[("id", "id0"), ("state", "idle"), ("request", "establish"), ("error", refused)],
        ),
    );
    let failed = with(&events, "failed: bind_addr on id0: 10.9.9.9:1: EADDRNOTAVAIL");
    is(failed, (Level::WARN, "cmid::call", &[("id", "id0"), ("state", "idle"), ("error", "EADDRNOTAVAIL")]));
    // The id has a state after the call.
    is(with(&events, "call create_id on id0"), (Level::TRACE, "cmid::call", &[("id", "id0")]));
    let done = with(&events, "done: create_id on id0");
    is(done, (Level::DEBUG, "cmid::call", &[("id", "id0"), ("state", "idle")]));
    let event = &[("id", "id0"), ("state", "address resolved"), ("channel", "ch0"), ("event", "ADDR_RESOLVED")];
    is(with(&events, "event id0: ADDR_RESOLVED"), (Level::TRACE, "cmid::read", event));
    is(with(&events, "deliver on ch0: id0: ADDR_RESOLVED"), (Level::DEBUG, "cmid::event", event));
    // The id is gone after the call: it has no state.
    is(with(&events, "done: destroy_id on id0"), (Level::DEBUG, "cmid::call", &[("id", "id0")]));
    is(events.last().unwrap(), (Level::DEBUG, "cmid::drive", &[]));
    assert!(events.iter().all(|(_, _, fields)| fields["message"] != "end of turn"), "{events:#?}");
}

#[test]
fn an_event_that_reports_a_failure_is_a_warning() {
    let host = host();
    let events = emitted(|| {
        let limits = Limits { core: Some(0), ..Limits::SINGLE };
        let mut epoll = Epoll::observed(host.device(), Config { limits, ..Config::default() }, Tracing).unwrap();
        let channel = epoll.drive().open_channel(Acks::OnDelivery).unwrap();
        let id = epoll.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
        let deadline = epoll.drive().within(Duration::from_nanos(1));
        // No host has this address, and the deadline passes at once.
        epoll.drive().resolve_addr(id, None, "10.0.0.9:7471".parse().unwrap(), deadline).unwrap();
        while epoll.drive().next_event(channel).is_none() {
            epoll.wait(Some(Duration::from_secs(20))).unwrap();
        }
    });
    let message = "deliver on ch0: id0: DEADLINE_PASSED(resolve_addr)";
    is(
        with(&events, message),
        (
            Level::WARN,
            "cmid::event",
            &[
                ("id", "id0"),
                ("state", "failed"),
                ("channel", "ch0"),
                ("event", "DEADLINE_PASSED(resolve_addr)"),
                ("error", "ETIMEDOUT"),
            ],
        ),
    );
    is(with(&events, "timeout"), (Level::TRACE, "cmid::drive", &[]));
}
