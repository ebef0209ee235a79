//! The summary of a core, and the reasons why its ids wait.

use std::time::Duration;

use cmid_proto::info::{Summary, WaitsFor};
use cmid_proto::{Acks, CmEvent, IdKey, Request, RequestKind, State};

use crate::fixture::{CoreFixture, LISTEN, RESOLVE, cm, of, raw, to};

fn waits(fixture: &CoreFixture, id: IdKey) -> Option<WaitsFor> {
    fixture.core.waiting().find(|&(key, _)| key == id).map(|(_, waiting)| waiting)
}

fn text(fixture: &CoreFixture) -> String {
    fixture.core.summary().to_string()
}

#[test]
fn ids_by_state_events_calls_and_deadlines() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    assert_eq!(text(&fixture), "ids 0, channels 1");

    let [idle, resolving] = [(); 2].map(|()| fixture.id(Some(here)));
    assert_eq!(fixture.core.summary().deadlines, 0);
    let deadline = fixture.within(Duration::from_secs(5));
    fixture.submit_until(resolving, RESOLVE, deadline).unwrap();
    assert_eq!((waits(&fixture, resolving), fixture.core.summary().calls), (None, 0), "before the outcome");
    fixture.all_well();
    let Summary { calls, for_events, next_deadline, ids, .. } = fixture.core.summary();
    assert_eq!((calls, for_events.iter().sum::<usize>(), next_deadline), (0, 1, Some((deadline, resolving))));
    assert_eq!((ids[State::Idle.index()], ids[State::AddrResolving.index()]), (1, 1));

    assert_eq!(waits(&fixture, resolving), Some(WaitsFor::Event(RequestKind::ResolveAddr)));
    assert_eq!(waits(&fixture, idle), None);
    for id in [idle, idle, resolving] {
        fixture.report(id, CmEvent::AddrChange);
    }
    assert_eq!(
        text(&fixture),
        format!(
            "ids 2 (1 idle, 1 resolving address), channels 1, events 3, waiting for events: 1 resolve_addr, \
             deadlines 1 (next {deadline}, {resolving})"
        )
    );
    let gone = IdKey::from_parts(0, 9, 1).unwrap();
    fixture.report_on(here, raw(gone, CmEvent::AddrChange, 0));
    fixture.does(resolving, Request::Destroy);
    // The closing of a private channel is due.
    let alone = fixture.id(None);
    fixture.submit(alone, Request::Destroy).unwrap();
    fixture.expect_call("destroy_id", Ok(()));
    assert_eq!(text(&fixture), "ids 1 (1 idle), channels 2, events 2, calls 1, stray 1, discarded 1");
}

#[test]
fn what_waits_for_acks() {
    let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
    let [moving, ending] = [(); 2].map(|()| fixture.id(Some(here)));
    let events = [moving, ending].map(|id| fixture.owes(here, id));
    fixture.submit(moving, to(there)).unwrap();
    fixture.submit(ending, Request::Destroy).unwrap();
    fixture.no_call();
    assert_eq!(waits(&fixture, moving), Some(WaitsFor::Acks(RequestKind::Migrate)));
    assert_eq!(waits(&fixture, ending), Some(WaitsFor::Acks(RequestKind::Destroy)));
    assert_eq!(
        text(&fixture),
        "ids 2 (1 idle, 1 destroying), channels 2, acks owed 2, waiting for acks: 1 migrate_id, 1 destroy_id"
    );
    for event in events {
        fixture.acks(event);
    }
    assert_eq!((waits(&fixture, moving), waits(&fixture, ending)), (Some(WaitsFor::Call), Some(WaitsFor::Call)));
}

#[test]
fn memberships_that_are_joined_and_left() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let (id, group) = fixture.joining(here);
    assert_eq!(waits(&fixture, id), Some(WaitsFor::Event(RequestKind::Join)));
    fixture.report_on(here, of(group, id, CmEvent::MulticastJoin, 0));
    let owed = fixture.expect_event(here, id, cm(CmEvent::MulticastJoin));
    assert_eq!(waits(&fixture, id), None);
    fixture.submit(id, Request::Leave { group }).unwrap();
    assert_eq!(waits(&fixture, id), Some(WaitsFor::Acks(RequestKind::Leave)));
    assert_eq!(
        text(&fixture),
        "ids 1 (1 bound), channels 1, groups 1, acks owed 1, waiting for acks: 1 leave_multicast"
    );
    fixture.acks(owed);
    assert_eq!(waits(&fixture, id), Some(WaitsFor::Call));
    assert_eq!(text(&fixture), "ids 1 (1 bound), channels 1, groups 1, calls 1");
}

#[test]
fn a_listener_in_synchronous_mode_waits_for_a_request() {
    let mut fixture = CoreFixture::new();
    let id = fixture.id(None);
    fixture.does(id, LISTEN);
    assert_eq!(waits(&fixture, id), None);
    fixture.submit(id, Request::GetRequest).unwrap();
    assert_eq!(waits(&fixture, id), Some(WaitsFor::Event(RequestKind::GetRequest)));
}
