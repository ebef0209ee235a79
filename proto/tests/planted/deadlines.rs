//! Deadlines: what the kernel is told of them, and when they end.

use std::time::Duration;

use cmid_proto::{Acks, Call, Errno, PortSpace, Request, Time};

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
