//! Who says that an event has been dealt with, and what waits for it.

use cmid_proto::{Acks, CmEvent, Errno, EventKind, Request, State};

use crate::fixture::{OK, Stage, cm, to};

#[test]
fn on_delivery_nothing_is_owed_and_nothing_waits() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    assert_eq!(stage.expect_event(channel, id, cm(CmEvent::AddrChange)).receipt, None);
    assert_eq!(stage.core.owed(id), 0);
    stage.asks(id, Request::Destroy).unwrap();
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    stage.ends(&[], &[channel]);
}

#[test]
fn a_destroy_waits_for_every_receipt_and_ends_by_event() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    stage.says(id, CmEvent::Disconnected);
    stage.says(id, CmEvent::AddrChange);
    let one = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
    let two = stage.expect_event(channel, id, cm(CmEvent::Disconnected));
    stage.asks(id, Request::Destroy).unwrap();
    stage.no_call();
    stage.no_event(channel);
    stage.acks(two);
    stage.no_call();
    stage.acks(one);
    assert_eq!(stage.expect_call("destroy_id", OK), None, "it ends by event");
    let event = stage.sees(channel, id, EventKind::Destroyed);
    assert_eq!((event.result(), &event.receipt), (Ok(()), &None));
    assert_eq!(stage.core.state(id), None);
    stage.ends(&[], &[channel]);
}

#[test]
fn a_destroy_that_waited_and_failed_leaves_the_id_to_be_destroyed_again() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Bound);
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
    stage.asks(id, Request::Destroy).unwrap();
    stage.acks(event);
    // An errno of 0 or without a counterpart must not look like success.
    assert_eq!(stage.expect_call("destroy_id", Err(Errno(0))), None);
    assert_eq!(stage.sees(channel, id, EventKind::Destroyed).result(), Err(Errno::EIO));
    assert_eq!(stage.state(id), State::Failed);
    stage.asks(id, Request::Destroy).unwrap();
    let ended = stage.expect_call("destroy_id", Err(Errno(i32::MIN))).unwrap();
    assert!(ended.result.is_err());
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_migration_waits_for_every_receipt_and_is_told_ahead_of_what_moves() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.no_call();
    assert_eq!(stage.core.home(id), Some(here), "it is as it was");
    stage.says(id, CmEvent::Disconnected);
    assert!(stage.asks(id, Request::Disconnect).unwrap_err().to_string().ends_with("migrate_id is under way"));
    stage.acks(held);
    assert_eq!(stage.expect_call("migrate_id", OK), None, "it ends by event");
    stage.no_event(here);
    assert_eq!(stage.sees(there, id, EventKind::Migrated).result(), Ok(()));
    stage.sees(there, id, cm(CmEvent::Disconnected));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_migration_that_waited_and_failed_says_so_where_the_id_still_is() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.acks(held);
    stage.expect_call("migrate_id", Err(Errno::ENXIO));
    assert_eq!(stage.sees(here, id, EventKind::Migrated).result(), Err(Errno::ENXIO));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_channel_that_closes_while_acks_are_out_is_no_place_to_go() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.core.close_channel(there).unwrap();
    stage.all_well();
    stage.acks(held);
    stage.no_call();
    assert_eq!(stage.sees(here, id, EventKind::Migrated).result(), Err(Errno::EBADF));
    stage.ends(&[id], &[here]);
}

#[test]
fn a_destroy_overtakes_a_migration_at_every_point() {
    for acked in [false, true] {
        for outcome in [OK, Err(Errno::ENOMEM)] {
            for sync in [false, true] {
                let (mut stage, here) = Stage::on(Acks::Explicit);
                let there = stage.channel(Acks::Explicit);
                let id = stage.in_state(here, State::Connected);
                stage.says(id, CmEvent::AddrChange);
                let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
                stage.asks(id, if sync { crate::fixture::TO_SYNC } else { to(there) }).unwrap();
                if acked {
                    stage.acks(held);
                    let (token, _) = stage.takes_call(if sync { "create_event_channel" } else { "migrate_id" });
                    stage.asks(id, Request::Destroy).unwrap();
                    stage.answers(token, outcome);
                } else {
                    stage.asks(id, Request::Destroy).unwrap();
                    stage.no_call();
                    stage.acks(held);
                }
                let home = stage.core.home(id).unwrap();
                stage.all_well();
                stage.sees(home, id, EventKind::Destroyed);
                stage.ends(&[], &[here, there]);
            }
        }
    }
}

#[test]
fn nothing_can_be_taken_of_an_id_that_is_being_moved() {
    // Taken between the request and the call it would be owed when the kernel moves the id.
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    stage.asks(id, to(there)).unwrap();
    stage.no_event(here);
    stage.expect_call("migrate_id", OK);
    stage.sees(there, id, cm(CmEvent::AddrChange));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_receipt_of_what_owes_nothing_is_refused() {
    let (mut one, channel) = Stage::on(Acks::Explicit);
    let id = one.in_state(channel, State::Bound);
    one.says(id, CmEvent::AddrChange);
    let event = one.expect_event(channel, id, cm(CmEvent::AddrChange));
    let mut two = Stage::new();
    let refused = two.core.ack(event.receipt.unwrap()).unwrap_err();
    assert_eq!(refused.receipt.owner(), id, "it is given back");
    assert_eq!(cmid_proto::Refused::from(refused), cmid_proto::Refused::NothingOwed);
}
