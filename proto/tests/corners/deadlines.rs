//! Deadlines: what the kernel is told of them, and when they end.

use std::time::Duration;

use cmid_proto::{Acks, Call, ChannelKey, CmEvent, Errno, EventKind, IdKey, Limits, PortSpace, Request, State, Time};

use crate::fixture::{RESOLVE, Stage};

#[test]
fn the_kernel_gives_up_before_the_deadline() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let mut told = |deadline: Time| {
        let id = stage.id(Some(here));
        stage.asks_until(id, RESOLVE, deadline).unwrap();
        let (_, call) = stage.takes_call("resolve_addr");
        let Call::ResolveAddr { timeout_ms, .. } = call else { unreachable!("{call:?}") };
        timeout_ms
    };
    let now = Time(1_000);
    assert_eq!(told(now.after(Duration::from_secs(8))), 7000);
    assert_eq!(told(now.after(Duration::from_nanos(1))), 1);
    assert_eq!(told(Time::NEVER), i32::MAX);
}

#[test]
fn milliseconds_are_rounded_up_and_never_none() {
    let now = Time(1_000);
    for (nanoseconds, milliseconds) in [(0, 1), (1, 1), (1_000_000, 1), (1_000_001, 2), (u64::MAX, i32::MAX)] {
        assert_eq!(now.after(Duration::from_nanos(nanoseconds)).millis_from(now), milliseconds, "{nanoseconds} ns");
    }
    assert_eq!(Time::ZERO.millis_from(now), 1);
}

#[test]
fn an_id_that_was_never_created_leaves_no_deadline() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.core.create_id(Some(here), PortSpace::Tcp).unwrap();
    let (token, _) = stage.takes_call("create_id");
    let deadline = stage.within(Duration::from_secs(1));
    stage.asks_until(id, Request::Destroy, deadline).unwrap();
    assert!(stage.core.poll_timeout().is_some());
    stage.answers(token, Err(Errno::ENOMEM));
    assert_eq!((stage.core.state(id), stage.core.poll_timeout()), (None, None));
    stage.ends(&[], &[here]);
}

/// A stage with room for many, and an id whose deadline is nearer than all others: what is behind it is not looked at.
fn behind_a_near_deadline() -> (Stage, ChannelKey, IdKey) {
    let mut stage = Stage::with(Limits { ids: 256, channels: 4, events: 256, groups: 4, core: None });
    let here = stage.channel(Acks::OnDelivery);
    let near = stage.id(Some(here));
    let deadline = stage.within(Duration::from_millis(1));
    stage.does_until(near, RESOLVE, deadline);
    (stage, here, near)
}

/// Ids come and go, and each leaves a deadline behind.
fn leaves_deadlines_behind(stage: &mut Stage, here: ChannelKey, ids: usize) {
    let deadline = stage.within(Duration::from_secs(1));
    for _ in 0..ids {
        let id = stage.id(Some(here));
        stage.does_until(id, RESOLVE, deadline);
        stage.does(id, Request::Destroy);
    }
}

#[test]
fn deadlines_that_are_left_behind_do_not_pile_up() {
    let (mut stage, here, near) = behind_a_near_deadline();
    // All that a core holds is in there.
    let held = |stage: &Stage| format!("{:?}", stage.core).len();
    let mut most = 0;
    for _ in 0..150 {
        leaves_deadlines_behind(&mut stage, here, 1);
        most = most.max(held(&stage));
    }
    leaves_deadlines_behind(&mut stage, here, 400);
    assert!(held(&stage) < most + most / 2, "{} bytes after 550 ids, at most {most} after 150", held(&stage));
    stage.ends(&[near], &[here]);
}

#[test]
fn deadlines_that_count_outlive_those_that_are_left_behind() {
    let (mut stage, here, near) = behind_a_near_deadline();
    // Each had an earlier deadline, which no longer counts.
    let put_off: Vec<_> = (0..100)
        .map(|ms| {
            let id = stage.id(Some(here));
            let [first, then] = [2, 200 - ms].map(|ms| stage.within(Duration::from_millis(ms)));
            stage.does_until(id, RESOLVE, first);
            stage.tells(id, CmEvent::AddrResolved);
            stage.does_until(id, Request::ResolveRoute, then);
            (then, id)
        })
        .collect();
    leaves_deadlines_behind(&mut stage, here, 150);
    stage.does(near, Request::Destroy);
    for &(due, id) in put_off.iter().rev() {
        assert_eq!(stage.core.poll_timeout(), Some((due, id)));
        stage.now = due;
        stage.core.handle_timeout(due);
        assert_eq!(stage.state(id), State::Failed);
    }
    stage.core.check();
    assert_eq!(stage.core.poll_timeout(), None);
    let ids: Vec<_> = put_off.into_iter().map(|(_, id)| id).collect();
    stage.ends(&ids, &[here]);
}

#[test]
fn a_nearer_deadline_counts_where_a_later_one_was_left_behind() {
    let (mut stage, here, near) = behind_a_near_deadline();
    let id = stage.id(Some(here));
    let [later, nearer] = [9, 5].map(|ms| stage.within(Duration::from_millis(ms)));
    stage.does_until(id, RESOLVE, later);
    stage.tells(id, CmEvent::AddrResolved);
    stage.does_until(id, Request::ResolveRoute, nearer);
    stage.does(near, Request::Destroy);
    assert_eq!(stage.core.poll_timeout(), Some((nearer, id)));
    stage.passes(Duration::from_millis(5));
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Failed, None));
    stage.ends(&[id], &[here]);
}

#[test]
fn an_id_is_armed_in_the_core_that_adopts_it_whatever_it_leaves_behind_in_the_other() {
    let (mut one, here, near) = behind_a_near_deadline();
    let id = one.id(None);
    let deadline = one.within(Duration::from_secs(1));
    one.does_until(id, RESOLVE, deadline);
    let (released, _) = one.core.release(id).unwrap();
    one.ends(&[near], &[here]);
    let mut two = Stage::new();
    let (key, _) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!(two.core.poll_timeout(), Some((deadline, key)));
    two.ends(&[key], &[]);
}

#[test]
fn a_destruction_that_gives_up_tells_a_negative_errno() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, EventKind::Cm(CmEvent::AddrChange));
    let deadline = stage.within(Duration::from_secs(1));
    stage.asks_until(id, Request::Destroy, deadline).unwrap();
    stage.passes(Duration::from_secs(1));
    let told = stage.sees(here, id, EventKind::Destroyed);
    assert_eq!((told.status, told.result()), (-Errno::ETIMEDOUT.0, Err(Errno::ETIMEDOUT)));
    stage.acks(event);
    stage.ends(&[id], &[here]);
}
