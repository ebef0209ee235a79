//! Memberships of an id that is migrated, is destroyed, or loses its device.

use cmid_proto::{
    Acks, Admission, CmEvent, Errno, EventKind, RefuseReason, Refused, Request, RequestKind, State, Time,
};

use super::{JOINED, LOST, SOON, begins, bound, bound_on, leave, report};
use crate::fixture::{CoreFixture, OK, TO_SYNC, addr, cm, to};

#[test]
fn a_migration_takes_memberships_and_their_events_along() {
    let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
    let id = bound(&mut fixture, Some(here));
    let soon = fixture.within(SOON);
    let groups = [1, 2, 3].map(|last| begins(&mut fixture, id, last, if last == 3 { soon } else { Time::NEVER }));
    report(&mut fixture, id, groups[0], JOINED, 0);
    report(&mut fixture, id, groups[1], JOINED, 0);
    let held = fixture.expect_event(here, id, cm(JOINED));
    fixture.submit(id, to(there)).unwrap();
    fixture.no_call();
    fixture.acks(held);
    fixture.expect_call("migrate_id", OK);
    fixture.sees(there, id, EventKind::Migrated);
    let second = fixture.expect_event(there, id, cm(JOINED));
    assert_eq!(second.group, Some(groups[1]));
    fixture.submit(id, leave(groups[1])).unwrap();
    fixture.acks(second);
    fixture.expect_call("leave_multicast", OK);
    fixture.sees(there, id, EventKind::Left);
    fixture.passes(SOON);
    assert_eq!(fixture.sees(there, id, EventKind::DeadlinePassed(RequestKind::Join)).group, Some(groups[2]));
    report(&mut fixture, id, groups[0], LOST, -1);
    fixture.sees(there, id, cm(LOST));
}

#[test]
fn a_destroy_waits_for_the_acks_of_groups_too_and_takes_them_along() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let soon = fixture.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut fixture, id, last, soon));
    for group in [one, two] {
        report(&mut fixture, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| fixture.expect_event(channel, id, cm(JOINED)));
    // The end of a waiting leave is not reported after a destroy.
    fixture.submit(id, leave(one)).unwrap();
    fixture.submit(id, Request::Destroy).unwrap();
    assert_eq!(fixture.core.poll_timeout(), None, "no join will be answered");
    assert_eq!(report(&mut fixture, id, three, JOINED, 0), Admission::Late);
    fixture.acks(first);
    fixture.no_call();
    fixture.acks(second);
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
    fixture.sees(channel, id, EventKind::Destroyed);
    assert_eq!(fixture.core.summary().groups, 0);
}

#[test]
fn a_removed_device_ends_every_join_and_only_a_destroy_helps() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let soon = fixture.within(SOON);
    let [one, two, three] = [1, 2, 3].map(|last| begins(&mut fixture, id, last, soon));
    for group in [one, two] {
        report(&mut fixture, id, group, JOINED, 0);
    }
    let [first, second] = [(); 2].map(|()| fixture.expect_event(channel, id, cm(JOINED)));
    fixture.submit(id, leave(one)).unwrap();
    fixture.report(id, CmEvent::DeviceRemoval);
    assert_eq!(fixture.core.poll_timeout(), None);
    for group in [two, three] {
        assert_eq!(report(&mut fixture, id, group, JOINED, 0), Admission::Late);
        fixture.refuses(id, leave(group), RefuseReason::DeviceGone);
    }
    // The waiting leave continues, and ends with the result of the device.
    fixture.acks(first);
    fixture.expect_call("leave_multicast", Err(Errno::ENXIO));
    fixture.sees(channel, id, cm(CmEvent::DeviceRemoval));
    assert_eq!(fixture.sees(channel, id, EventKind::Left).result(), Err(Errno::ENXIO));
    fixture.passes(SOON);
    fixture.no_event(channel);
    fixture.acks(second);
}

#[test]
fn memberships_stay_with_their_core() {
    let mut fixture = CoreFixture::new();
    let id = bound(&mut fixture, None);
    let group = begins(&mut fixture, id, 1, Time::NEVER);
    report(&mut fixture, id, group, JOINED, 0);
    let before = fixture.core.clone();
    let refused = fixture.core.release(id).map(drop).unwrap_err();
    let reason = RefuseReason::HasGroups;
    assert_eq!(refused, Refused::Request { id, request: RequestKind::Release, state: State::Bound, reason });
    assert_eq!((refused.errno(), &fixture.core), (Errno::EBUSY, &before));
    fixture.does(id, leave(group));
    let (released, _) = fixture.core.release(id).unwrap();
    let mut other = CoreFixture::new();
    let (id, _) = other.core.adopt(released).unwrap();
    begins(&mut other, id, 1, Time::NEVER);
}

#[test]
fn a_listener_and_an_id_that_has_failed_are_members_still() {
    let (mut fixture, channel, id) = bound_on(Acks::Explicit);
    let group = begins(&mut fixture, id, 1, Time::NEVER);
    fixture.does(id, crate::fixture::LISTEN);
    assert_eq!(report(&mut fixture, id, group, JOINED, 0), Admission::Known);
    let held = fixture.expect_event(channel, id, cm(JOINED));
    fixture.submit(id, leave(group)).unwrap();
    fixture.submit(id, TO_SYNC).unwrap();
    fixture.no_call();
    fixture.acks(held);
    // The listener migrates without a call to the device, so its migration does not delay the leave.
    fixture.expect_call("leave_multicast", OK);
    fixture.no_call();
    let device_channel = fixture.core.channel(id).unwrap();
    fixture.sees(device_channel, id, EventKind::Migrated);
    fixture.sees(device_channel, id, EventKind::Left);

    let other = bound(&mut fixture, Some(channel));
    let group = begins(&mut fixture, other, 1, Time::NEVER);
    let _soon = fixture.does_soon(other, Request::ResolveAddr { src: None, dst: addr(9) });
    fixture.passes(SOON);
    fixture.sees(channel, other, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    assert_eq!(fixture.state(other), State::Failed);
    assert_eq!(report(&mut fixture, other, group, JOINED, 0), Admission::Known);
    fixture.sees(channel, other, cm(JOINED));
    fixture.does(other, leave(group));
}
