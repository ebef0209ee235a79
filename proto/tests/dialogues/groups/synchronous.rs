//! Joining in synchronous mode.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, RefuseReason, RequestKind, State, Time};

use super::{JOINED, LOST, SOON, begins, bound, bound_on, join, leave, report};
use crate::fixture::{CoreFixture, TO_SYNC, cm, to};

#[test]
fn in_synchronous_mode_a_join_waits_for_its_answer() {
    let cases = [
        (Some((JOINED, 0)), Ok(())),
        (Some((LOST, -1)), Err(Errno::EPERM)),
        (Some((CmEvent::DeviceRemoval, 0)), Err(Errno::ENODEV)),
        (None, Err(Errno::ETIMEDOUT)),
    ];
    for (end, result) in cases {
        let mut fixture = CoreFixture::new();
        let id = bound(&mut fixture, None);
        let private = fixture.core.channel(id).unwrap();
        let soon = fixture.within(SOON);
        let group = begins(&mut fixture, id, 1, soon);
        assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
        fixture.refuses(id, join(2), RefuseReason::Busy(RequestKind::Join));
        fixture.refuses(id, leave(group), RefuseReason::Busy(RequestKind::Join));
        assert_eq!(fixture.report(id, CmEvent::AddrChange), Admission::Known);
        assert_eq!(fixture.core.sync_result(id), None);
        match end {
            Some((kind, status)) => assert_eq!(report(&mut fixture, id, group, kind, status), Admission::Known),
            None => fixture.passes(SOON),
        }
        assert_eq!(fixture.core.sync_result(id), Some(result));
        for _ in 0..2 {
            let event = fixture.core.sync_event(id).map(|event| event.kind);
            assert_eq!(event, end.map(|(kind, _)| cm(kind)));
        }
        assert_eq!(fixture.core.poll_timeout(), None);
        fixture.sees(private, id, cm(CmEvent::AddrChange));
        fixture.no_event(private);
        if fixture.state(id) != State::Removed {
            fixture.does(id, leave(group));
            assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None), "the next request");
        }
    }
}

#[test]
fn in_synchronous_mode_a_join_does_not_end_by_what_befalls_another() {
    let (mut fixture, channel, id) = bound_on(Acks::OnDelivery);
    let (soon, later) = (fixture.within(SOON), fixture.within(SOON * 2));
    let [joined, pending] = [begins(&mut fixture, id, 1, Time::NEVER), begins(&mut fixture, id, 2, Time::NEVER)];
    let slow = begins(&mut fixture, id, 3, soon);
    report(&mut fixture, id, joined, JOINED, 0);
    fixture.sees(channel, id, cm(JOINED));
    fixture.does(id, TO_SYNC);
    let private = fixture.core.channel(id).unwrap();
    let own = begins(&mut fixture, id, 4, later);
    report(&mut fixture, id, pending, JOINED, 0);
    report(&mut fixture, id, joined, LOST, -1);
    fixture.passes(SOON);
    assert_eq!(fixture.core.sync_result(id), None);
    for (kind, group) in
        [(cm(JOINED), pending), (cm(LOST), joined), (EventKind::DeadlinePassed(RequestKind::Join), slow)]
    {
        assert_eq!(fixture.sees(private, id, kind).group, Some(group));
    }
    report(&mut fixture, id, own, JOINED, 0);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    assert_eq!(fixture.core.sync_event(id).unwrap().group, Some(own));
}

#[test]
fn in_synchronous_mode_a_join_that_fails_at_once_is_no_wait() {
    let mut fixture = CoreFixture::new();
    let id = bound(&mut fixture, None);
    let group = begins(&mut fixture, id, 1, Time::NEVER);
    report(&mut fixture, id, group, JOINED, 0);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    fixture.fails(id, join(2), "join_multicast", Errno::EINVAL);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None), "that of the join before");
    begins(&mut fixture, id, 2, Time::NEVER);
}

#[test]
fn a_synchronous_join_that_leaves_that_mode_ends_by_event() {
    for end in [Some(JOINED), Some(LOST), None] {
        let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
        let id = bound(&mut fixture, None);
        let soon = fixture.within(SOON);
        let group = begins(&mut fixture, id, 1, soon);
        let tell = |fixture: &mut CoreFixture| match end {
            Some(kind) => assert_eq!(report(fixture, id, group, kind, 0), Admission::Known),
            None => fixture.passes(SOON),
        };
        fixture.does(id, to(channel));
        tell(&mut fixture);
        let kind = end.map_or(EventKind::DeadlinePassed(RequestKind::Join), cm);
        assert_eq!(fixture.sees(channel, id, kind).group, Some(group));
        assert_eq!(fixture.core.sync_result(id), None);
    }
}
