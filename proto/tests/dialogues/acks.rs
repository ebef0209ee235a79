//! How events are acked, and which requests wait for acks.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, RawEvent, Refused, Request, State};

use crate::fixture::{CoreFixture, OK, cm, raw, to};

#[test]
fn on_delivery_nothing_is_owed_and_nothing_waits() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!(fixture.expect_event(channel, id, cm(CmEvent::AddrChange)).ack_token, None);
    assert_eq!(fixture.owed(id), 0);
    assert!(fixture.makes(id, Request::Destroy, "destroy_id").unwrap().result.is_ok());
}

#[test]
fn a_destroy_waits_for_every_receipt_and_ends_by_event() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    fixture.report(id, CmEvent::Disconnected);
    let one = fixture.owes(channel, id);
    let two = fixture.expect_event(channel, id, cm(CmEvent::Disconnected));
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.no_call();
    fixture.no_event(channel);
    fixture.acks(two);
    fixture.no_call();
    fixture.acks(one);
    assert_eq!(fixture.expect_call("destroy_id", OK), None, "it ends by event");
    let event = fixture.sees(channel, id, EventKind::Destroyed);
    assert_eq!((event.result(), &event.ack_token), (Ok(()), &None));
    assert_eq!(fixture.core.state(id), None);
}

#[test]
fn a_migration_waits_for_every_ack_and_is_reported_ahead_of_the_events_that_move() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Connected);
    let held = fixture.owes(here, id);
    fixture.submit(id, to(there)).unwrap();
    fixture.no_call();
    assert_eq!(fixture.core.channel(id), Some(here), "it is as it was");
    fixture.report(id, CmEvent::Disconnected);
    assert!(fixture.submit(id, Request::Disconnect).unwrap_err().to_string().ends_with("migrate_id is under way"));
    fixture.acks(held);
    assert_eq!(fixture.expect_call("migrate_id", OK), None, "it ends by event");
    fixture.no_event(here);
    assert_eq!(fixture.sees(there, id, EventKind::Migrated).result(), Ok(()));
    fixture.sees(there, id, cm(CmEvent::Disconnected));
}

#[test]
fn a_migration_that_is_due_waits_for_the_ack_of_what_is_taken_before_its_call() {
    let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Connected);
    for _ in 0..2 {
        fixture.report(id, CmEvent::AddrChange);
    }
    let first = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, to(there)).unwrap();
    fixture.acks(first);
    let second = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.no_call();
    fixture.acks(second);
    assert_eq!(fixture.expect_call("migrate_id", OK), None);
    assert_eq!(fixture.sees(there, id, EventKind::Migrated).result(), Ok(()));
}

#[test]
fn a_channel_that_closes_while_acks_are_out_is_no_place_to_go() {
    for state in [State::Connected, State::Listening] {
        let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, state);
        let before = fixture.channels_of(id);
        fixture.report_on(before.1.unwrap(), raw(id, CmEvent::AddrChange, 0));
        let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
        fixture.submit(id, to(there)).unwrap();
        fixture.closes(there).unwrap();
        fixture.all_well();
        fixture.acks(held);
        fixture.no_call();
        assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::EBADF));
        assert_eq!(fixture.channels_of(id), before);
    }
}

#[test]
fn a_destroy_overtakes_a_migration_that_waits_or_is_due() {
    for acked in [false, true] {
        for sync in [false, true] {
            let (mut fixture, [here, there], id) = CoreFixture::with_id_on_two(Acks::Explicit, State::Connected);
            let held = fixture.owes(here, id);
            fixture.submit(id, if sync { crate::fixture::TO_SYNC } else { to(there) }).unwrap();
            if acked {
                fixture.acks(held);
                fixture.takes_call(if sync { "create_event_channel" } else { "migrate_id" });
                assert_eq!(
                    fixture.makes(id, Request::Destroy, "destroy_id").unwrap().result,
                    Ok(()),
                    "it waits for nothing"
                );
            } else {
                fixture.submit(id, Request::Destroy).unwrap();
                fixture.no_call();
                fixture.acks(held);
                assert_eq!(fixture.expect_call("destroy_id", OK), None);
                fixture.sees(here, id, EventKind::Destroyed);
            }
            fixture.no_call();
            fixture.no_event(here);
            fixture.no_event(there);
        }
    }
}

#[test]
fn a_receipt_of_what_owes_nothing_is_refused() {
    let (mut one, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let mut ack_token = one.owes(channel, id).ack_token.unwrap();
    // Another core with the same number, without the id and with it.
    let mut two = CoreFixture::new();
    for has_id in [false, true] {
        if has_id {
            let there = two.channel(Acks::Explicit);
            assert_eq!(two.id(Some(there)), id);
        }
        let before = two.core.clone();
        let refused = two.core.ack(ack_token).unwrap_err();
        assert_eq!((Refused::from(&refused), &two.core), (Refused::NothingOwed { owner: id }, &before));
        ack_token = refused.ack_token;
        assert_eq!(ack_token.owner(), id, "it is given back");
    }
    one.stops();
}

/// An errno of 0 or without a counterpart must not look like success.
#[test]
fn a_request_that_waited_and_fails_ends_with_a_negative_errno_where_its_id_is() {
    let errnos = [(12, -12), (22, -22), (0, -Errno::EIO.0), (i32::MIN, i32::MAX)];
    let cases = errnos
        .into_iter()
        .flat_map(|errno| [EventKind::Migrated, EventKind::Left, EventKind::Destroyed].map(|end| (errno, end)));
    for ((errno, status), end) in cases {
        let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
        let (id, group, event) = fixture.member_that_owes(here);
        let (request, call) = match end {
            EventKind::Migrated => (to(there), "migrate_id"),
            EventKind::Left => (Request::Leave { group }, "leave_multicast"),
            _ => (Request::Destroy, "destroy_id"),
        };
        fixture.submit(id, request).unwrap();
        let late = RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastError, -1) };
        let is_late = if end == EventKind::Migrated { Admission::Known } else { Admission::Late };
        assert_eq!(fixture.report_on(here, late), is_late, "it waits to be {end}");
        fixture.acks(event);
        assert_eq!(fixture.expect_call(call, Err(Errno(errno))), None, "it ends by event");
        if end == EventKind::Migrated {
            fixture.sees(here, id, cm(CmEvent::MulticastError));
        }
        let ended = fixture.sees(here, id, end);
        assert_eq!((ended.status, ended.result().is_err()), (status, true), "{call}, errno {errno}");
        assert_eq!(fixture.state(id), if end == EventKind::Destroyed { State::Failed } else { State::Bound });
    }
}
