//! Deadlines: which timeout the kernel gets, and when they end.

use std::time::Duration;

use cmid_proto::{Acks, Call, ChannelKey, CmEvent, IdKey, Limits, Request, State, Time};

use crate::fixture::{CoreFixture, OK, RESOLVE};

#[test]
fn the_kernel_gives_up_before_the_deadline() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let mut timeout_ms = |deadline: Time| {
        let id = fixture.id(Some(here));
        fixture.submit_until(id, RESOLVE, deadline).unwrap();
        let call = fixture.takes_call("resolve_addr");
        fixture.answers(OK);
        let Call::ResolveAddr { timeout_ms, .. } = call else { unreachable!("{call:?}") };
        timeout_ms
    };
    let now = Time(1_000);
    assert_eq!(timeout_ms(now.after(Duration::from_secs(8))), 7000);
    assert_eq!(timeout_ms(now.after(Duration::from_nanos(1))), 1);
    assert_eq!(timeout_ms(Time::NEVER), i32::MAX);
}

#[test]
fn milliseconds_are_rounded_up_and_never_none() {
    let now = Time(1_000);
    for (nanoseconds, milliseconds) in [(0, 1), (1, 1), (1_000_000, 1), (1_000_001, 2), (u64::MAX, i32::MAX)] {
        assert_eq!(now.after(Duration::from_nanos(nanoseconds)).millis_from(now), milliseconds, "{nanoseconds} ns");
    }
    assert_eq!(Time::ZERO.millis_from(now), 1);
}

/// A core with high limits, and an id with the nearest deadline. The core does not look at later deadlines meanwhile.
fn behind_a_near_deadline() -> (CoreFixture, ChannelKey, IdKey) {
    let mut fixture = CoreFixture::with(Limits { ids: 256, channels: 4, events: 256, groups: 4, ..Limits::SINGLE });
    let here = fixture.channel(Acks::OnDelivery);
    let near = fixture.id(Some(here));
    let deadline = fixture.within(Duration::from_millis(1));
    fixture.does_until(near, RESOLVE, deadline);
    (fixture, here, near)
}

/// Creates and destroys ids. Each leaves a deadline behind.
fn leaves_deadlines_behind(fixture: &mut CoreFixture, here: ChannelKey, ids: usize) {
    let deadline = fixture.within(Duration::from_secs(1));
    for _ in 0..ids {
        let id = fixture.id(Some(here));
        fixture.does_until(id, RESOLVE, deadline);
        fixture.does(id, Request::Destroy);
    }
}

#[test]
fn deadlines_that_are_left_behind_do_not_pile_up() {
    let (mut fixture, here, _) = behind_a_near_deadline();
    // The debug text contains everything that a core holds.
    let held = |fixture: &CoreFixture| format!("{:?}", fixture.core).len();
    let mut most = 0;
    for _ in 0..150 {
        leaves_deadlines_behind(&mut fixture, here, 1);
        most = most.max(held(&fixture));
    }
    leaves_deadlines_behind(&mut fixture, here, 400);
    assert!(held(&fixture) < most + most / 2, "{} bytes after 550 ids, at most {most} after 150", held(&fixture));
}

#[test]
fn deadlines_that_count_outlive_those_that_are_left_behind() {
    let (mut fixture, here, near) = behind_a_near_deadline();
    // Each id had an earlier deadline that no longer counts.
    let put_off: Vec<_> = (0..100)
        .map(|ms| {
            let id = fixture.id(Some(here));
            let [first, then] = [2, 200 - ms].map(|ms| fixture.within(Duration::from_millis(ms)));
            fixture.does_until(id, RESOLVE, first);
            fixture.report_and_take(id, CmEvent::AddrResolved);
            fixture.does_until(id, Request::ResolveRoute, then);
            (then, id)
        })
        .collect();
    leaves_deadlines_behind(&mut fixture, here, 150);
    fixture.does(near, Request::Destroy);
    for &(due, id) in put_off.iter().rev() {
        assert_eq!(fixture.core.poll_timeout(), Some((due, id)));
        fixture.now = due;
        fixture.core.handle_timeout(due);
        assert_eq!(fixture.state(id), State::Failed);
    }
    fixture.core.check();
    assert_eq!(fixture.core.poll_timeout(), None);
}

#[test]
fn a_nearer_deadline_counts_where_a_later_one_was_left_behind() {
    let (mut fixture, here, near) = behind_a_near_deadline();
    let id = fixture.id(Some(here));
    let [later, nearer] = [9, 5].map(|ms| fixture.within(Duration::from_millis(ms)));
    fixture.does_until(id, RESOLVE, later);
    fixture.report_and_take(id, CmEvent::AddrResolved);
    fixture.does_until(id, Request::ResolveRoute, nearer);
    fixture.does(near, Request::Destroy);
    assert_eq!(fixture.core.poll_timeout(), Some((nearer, id)));
    fixture.passes(Duration::from_millis(5));
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Failed, None));
}

#[test]
fn an_id_is_armed_in_the_core_that_adopts_it_whatever_it_leaves_behind_in_the_other() {
    let (mut one, _, _) = behind_a_near_deadline();
    let id = one.id(None);
    let deadline = one.within(Duration::from_secs(1));
    one.does_until(id, RESOLVE, deadline);
    let (released, _) = one.core.release(id).unwrap();
    let mut two = CoreFixture::new();
    let (key, _) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!(two.core.poll_timeout(), Some((deadline, key)));
}
