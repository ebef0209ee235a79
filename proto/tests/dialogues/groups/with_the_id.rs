//! What becomes of memberships when their id moves, is destroyed, or loses its device.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Refused, Request, State, Time, Verb, Why};

use super::{JOINED, LOST, SOON, begins, bound, leave, says};
use crate::fixture::{OK, Stage, TO_SYNC, addr, cm, to};

#[test]
fn a_migration_takes_memberships_and_their_events_along() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = bound(&mut stage, Some(here));
    let soon = stage.within(SOON);
    let groups = [1, 2, 3].map(|last| begins(&mut stage, id, last, if last == 3 { soon } else { Time::NEVER }));
    says(&mut stage, id, groups[0], JOINED, 0);
    says(&mut stage, id, groups[1], JOINED, 0);
    let held = stage.expect_event(here, id, cm(JOINED));
    stage.asks(id, to(there)).unwrap();
    stage.no_call();
    stage.acks(held);
    stage.expect_call("migrate_id", OK);
    stage.sees(there, id, EventKind::Migrated);
    let second = stage.expect_event(there, id, cm(JOINED));
    assert_eq!(second.group, Some(groups[1]));
    stage.asks(id, leave(groups[1])).unwrap();
    stage.acks(second);
    stage.expect_call("leave_multicast", OK);
    stage.sees(there, id, EventKind::Left);
    stage.passes(SOON);
    assert_eq!(stage.sees(there, id, EventKind::DeadlinePassed(Verb::Join)).group, Some(groups[2]));
    says(&mut stage, id, groups[0], LOST, -1);
    stage.sees(there, id, cm(LOST));
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_destroy_waits_for_the_acks_of_groups_too_and_takes_them_along() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let soon = stage.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut stage, id, last, soon));
    for group in [one, two] {
        says(&mut stage, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| stage.expect_event(channel, id, cm(JOINED)));
    // A leave that waits has no end of its own any more.
    stage.asks(id, leave(one)).unwrap();
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!(stage.core.poll_timeout(), None, "no join will be answered");
    assert_eq!(says(&mut stage, id, three, JOINED, 0), Admission::Late);
    stage.acks(first);
    stage.no_call();
    stage.acks(second);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    stage.sees(channel, id, EventKind::Destroyed);
    assert_eq!(stage.core.groups(), 0);
    stage.ends(&[], &[channel]);
}

#[test]
fn a_removed_device_ends_every_join_and_only_a_destroy_helps() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let soon = stage.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut stage, id, last, soon));
    for group in [one, two] {
        says(&mut stage, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| stage.expect_event(channel, id, cm(JOINED)));
    stage.asks(id, leave(one)).unwrap();
    stage.says(id, CmEvent::DeviceRemoval);
    assert_eq!(stage.core.poll_timeout(), None);
    for group in [two, three] {
        assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Late);
        stage.refuses(id, leave(group), Why::DeviceGone);
    }
    // The leave that waited goes on, and says what the device says.
    stage.acks(first);
    stage.expect_call("leave_multicast", Err(Errno::ENXIO));
    stage.sees(channel, id, cm(CmEvent::DeviceRemoval));
    assert_eq!(stage.sees(channel, id, EventKind::Left).result(), Err(Errno::ENXIO));
    stage.passes(SOON);
    stage.no_event(channel);
    stage.acks(second);
    stage.ends(&[id], &[channel]);
}

#[test]
fn memberships_stay_with_their_core() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    let group = begins(&mut stage, id, 1, Time::NEVER);
    says(&mut stage, id, group, JOINED, 0);
    let before = stage.core.clone();
    let refused = stage.core.release(id).map(drop).unwrap_err();
    let why = Why::HasGroups;
    assert_eq!(refused, Refused::Request { id, request: Verb::Release, state: State::Bound, why });
    assert_eq!((refused.errno(), &stage.core), (Errno::EBUSY, &before));
    stage.does(id, leave(group));
    let (released, _) = stage.core.release(id).unwrap();
    let mut other = Stage::new();
    let (id, _) = other.core.adopt(released).unwrap();
    begins(&mut other, id, 1, Time::NEVER);
    other.ends(&[id], &[]);
}

#[test]
fn a_listener_and_an_id_that_has_failed_are_members_still() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = bound(&mut stage, Some(channel));
    let group = begins(&mut stage, id, 1, Time::NEVER);
    stage.does(id, crate::fixture::LISTEN);
    assert_eq!(says(&mut stage, id, group, JOINED, 0), Admission::Known);
    let held = stage.expect_event(channel, id, cm(JOINED));
    stage.asks(id, leave(group)).unwrap();
    stage.asks(id, TO_SYNC).unwrap();
    stage.no_call();
    stage.acks(held);
    // The listener moves without the device; the leave is not held up by it.
    stage.expect_call("leave_multicast", OK);
    let line = stage.core.home(id).unwrap();
    stage.sees(line, id, EventKind::Migrated);
    stage.sees(line, id, EventKind::Left);

    let other = bound(&mut stage, Some(channel));
    let group = begins(&mut stage, other, 1, Time::NEVER);
    let soon = stage.within(SOON);
    stage.does_until(other, Request::ResolveAddr { src: None, dst: addr(9) }, soon);
    stage.passes(SOON);
    stage.sees(channel, other, EventKind::DeadlinePassed(Verb::ResolveAddr));
    assert_eq!(stage.state(other), State::Failed);
    assert_eq!(says(&mut stage, other, group, JOINED, 0), Admission::Known);
    stage.sees(channel, other, cm(JOINED));
    stage.does(other, leave(group));
    stage.ends(&[id, other], &[channel]);
}
