//! How events are acked, and which requests wait for acks.

use cmid_proto::{Acks, CmEvent, Errno, EventKind, Request, State};

use crate::fixture::{CoreFixture, OK, cm, to};

#[test]
fn on_delivery_nothing_is_owed_and_nothing_waits() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.in_state(channel, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!(fixture.expect_event(channel, id, cm(CmEvent::AddrChange)).ack_token, None);
    assert_eq!(fixture.core.id_info(id).map_or(0, |it| it.owed), 0);
    fixture.submit(id, Request::Destroy).unwrap();
    assert!(fixture.expect_call("destroy_id", OK).unwrap().result.is_ok());
    fixture.ends(&[], &[channel]);
}

#[test]
fn a_destroy_waits_for_every_receipt_and_ends_by_event() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = fixture.in_state(channel, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    fixture.report(id, CmEvent::Disconnected);
    fixture.report(id, CmEvent::AddrChange);
    let one = fixture.expect_event(channel, id, cm(CmEvent::AddrChange));
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
    fixture.ends(&[], &[channel]);
}

#[test]
fn a_destroy_that_waited_and_failed_leaves_the_id_to_be_destroyed_again() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = fixture.in_state(channel, State::Bound);
    fixture.report(id, CmEvent::AddrChange);
    let event = fixture.expect_event(channel, id, cm(CmEvent::AddrChange));
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.acks(event);
    // An errno of 0 or without a counterpart must not look like success.
    assert_eq!(fixture.expect_call("destroy_id", Err(Errno(0))), None);
    assert_eq!(fixture.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::EIO));
    assert_eq!(fixture.state(id), State::Failed);
    fixture.submit(id, Request::Destroy).unwrap();
    let ended = fixture.expect_call("destroy_id", Err(Errno(i32::MIN))).unwrap();
    assert!(ended.result.is_err());
    fixture.ends(&[id], &[channel]);
}

#[test]
fn a_migration_waits_for_every_ack_and_is_reported_ahead_of_the_events_that_move() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
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
    fixture.ends(&[id], &[here, there]);
}

#[test]
fn a_migration_that_waited_and_failed_is_reported_on_the_old_channel() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, to(there)).unwrap();
    fixture.acks(held);
    fixture.expect_call("migrate_id", Err(Errno::ENXIO));
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::ENXIO));
    fixture.ends(&[id], &[here, there]);
}

#[test]
fn a_migration_that_is_due_waits_for_the_ack_of_what_is_taken_before_its_call() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
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
    fixture.ends(&[id], &[here, there]);
}

#[test]
fn a_channel_that_closes_while_acks_are_out_is_no_place_to_go() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, to(there)).unwrap();
    fixture.closes(there).unwrap();
    fixture.all_well();
    fixture.acks(held);
    fixture.no_call();
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::EBADF));
    fixture.ends(&[id], &[here]);
}

#[test]
fn a_destroy_overtakes_a_migration_that_waits_or_is_due() {
    for acked in [false, true] {
        for sync in [false, true] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let there = fixture.channel(Acks::Explicit);
            let id = fixture.in_state(here, State::Connected);
            fixture.report(id, CmEvent::AddrChange);
            let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
            fixture.submit(id, if sync { crate::fixture::TO_SYNC } else { to(there) }).unwrap();
            if acked {
                fixture.acks(held);
                fixture.takes_call(if sync { "create_event_channel" } else { "migrate_id" });
                fixture.submit(id, Request::Destroy).unwrap();
                assert_eq!(fixture.expect_call("destroy_id", OK).unwrap().result, Ok(()), "it waits for nothing");
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
            fixture.ends(&[], &[here, there]);
        }
    }
}

#[test]
fn a_receipt_of_what_owes_nothing_is_refused() {
    let (mut one, channel) = CoreFixture::on(Acks::Explicit);
    let id = one.in_state(channel, State::Bound);
    one.report(id, CmEvent::AddrChange);
    let event = one.expect_event(channel, id, cm(CmEvent::AddrChange));
    let mut two = CoreFixture::new();
    let refused = two.core.ack(event.ack_token.unwrap()).unwrap_err();
    assert_eq!(refused.ack_token.owner(), id, "it is given back");
    assert_eq!(cmid_proto::Refused::from(refused), cmid_proto::Refused::NothingOwed);
}
