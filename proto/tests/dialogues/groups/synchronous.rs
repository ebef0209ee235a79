//! Joining in synchronous mode.

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, Request, State, Time, Verb, Why};

use super::{JOINED, LOST, SOON, begins, bound, join, leave, says};
use crate::fixture::{OK, Stage, TO_SYNC, cm, to};

#[test]
fn in_synchronous_mode_a_join_waits_for_its_answer() {
    let cases = [
        (Some((JOINED, 0)), Ok(())),
        (Some((LOST, -1)), Err(Errno::EPERM)),
        (Some((CmEvent::DeviceRemoval, 0)), Err(Errno::ENODEV)),
        (None, Err(Errno::ETIMEDOUT)),
    ];
    for (end, result) in cases {
        let mut stage = Stage::new();
        let id = bound(&mut stage, None);
        let private = stage.core.home(id).unwrap();
        let soon = stage.within(SOON);
        let group = begins(&mut stage, id, 1, soon);
        assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
        stage.refuses(id, join(2), Why::Busy(Verb::Join));
        stage.refuses(id, leave(group), Why::Busy(Verb::Join));
        assert_eq!(stage.says(id, CmEvent::AddrChange), Admission::Known);
        assert_eq!(stage.core.sync_result(id), None);
        match end {
            Some((kind, status)) => assert_eq!(says(&mut stage, id, group, kind, status), Admission::Known),
            None => stage.passes(SOON),
        }
        assert_eq!(stage.core.sync_result(id), Some(result));
        for _ in 0..2 {
            let event = stage.core.sync_event(id).map(|event| event.kind);
            assert_eq!(event, end.map(|(kind, _)| cm(kind)));
        }
        assert_eq!(stage.core.poll_timeout(), None);
        stage.sees(private, id, cm(CmEvent::AddrChange));
        stage.no_event(private);
        if stage.state(id) != State::Removed {
            stage.does(id, leave(group));
            assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None), "the next request");
        }
        stage.ends(&[id], &[]);
    }
}

#[test]
fn in_synchronous_mode_a_join_does_not_end_by_what_befalls_another() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = bound(&mut stage, Some(channel));
    let (soon, later) = (stage.within(SOON), stage.within(SOON * 2));
    let [joined, pending] = [begins(&mut stage, id, 1, Time::NEVER), begins(&mut stage, id, 2, Time::NEVER)];
    let slow = begins(&mut stage, id, 3, soon);
    says(&mut stage, id, joined, JOINED, 0);
    stage.sees(channel, id, cm(JOINED));
    stage.does(id, TO_SYNC);
    let private = stage.core.home(id).unwrap();
    let own = begins(&mut stage, id, 4, later);
    says(&mut stage, id, pending, JOINED, 0);
    says(&mut stage, id, joined, LOST, -1);
    stage.passes(SOON);
    assert_eq!(stage.core.sync_result(id), None);
    for (kind, group) in [(cm(JOINED), pending), (cm(LOST), joined), (EventKind::DeadlinePassed(Verb::Join), slow)] {
        assert_eq!(stage.sees(private, id, kind).group, Some(group));
    }
    says(&mut stage, id, own, JOINED, 0);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    assert_eq!(stage.core.sync_event(id).unwrap().group, Some(own));
    stage.ends(&[id], &[channel]);
}

#[test]
fn in_synchronous_mode_a_join_that_fails_at_once_is_no_wait() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    stage.asks(id, join(1)).unwrap();
    assert!(stage.expect_call("join_multicast", Err(Errno::EINVAL)).unwrap().result.is_err());
    assert_eq!(stage.core.sync_result(id), None);
    begins(&mut stage, id, 1, Time::NEVER);
    stage.ends(&[id], &[]);
}

#[test]
fn a_synchronous_join_that_leaves_that_mode_ends_by_event() {
    for end in [Some(JOINED), Some(LOST), None] {
        for during in [false, true] {
            let (mut stage, channel) = Stage::on(Acks::Explicit);
            let id = bound(&mut stage, None);
            let soon = stage.within(SOON);
            let group = begins(&mut stage, id, 1, soon);
            let tell = |stage: &mut Stage| match end {
                Some(kind) => assert_eq!(says(stage, id, group, kind, 0), Admission::Known),
                None => stage.passes(SOON),
            };
            stage.asks(id, to(channel)).unwrap();
            let (token, _) = stage.takes_call("migrate_id");
            if during {
                tell(&mut stage);
            }
            stage.answers(token, OK);
            if !during {
                tell(&mut stage);
            }
            let kind = end.map_or(EventKind::DeadlinePassed(Verb::Join), cm);
            assert_eq!(stage.sees(channel, id, kind).group, Some(group));
            assert_eq!(stage.core.sync_result(id), None);
            stage.ends(&[id], &[channel]);
        }
    }
}

#[test]
fn a_destroy_ends_a_synchronous_join() {
    let mut stage = Stage::new();
    let id = bound(&mut stage, None);
    let soon = stage.within(SOON);
    begins(&mut stage, id, 1, soon);
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, None));
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    stage.ends(&[], &[]);
}
