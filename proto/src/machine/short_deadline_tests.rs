//! Compares the short paths with the long ones where they change deadlines and channels.

use super::short_tests::{DUE, LATER, NOW, ShortFixture, peer};
use crate::cm_event::CmEvent;
use crate::event::RawEvent;
use crate::request::{Acks, PortSpace, Request};
use crate::state::State;
use crate::time::Time;

/// An event resets the count of failed reads of its channel, on the short path of a read too.
#[test]
fn an_event_after_a_read_that_failed() {
    let mut fixture = ShortFixture::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
    assert!(fixture.core.handle_unreadable(fixture.on));
    while fixture.core.poll_readable().is_some() {}
    let raw = RawEvent::new(fixture.id, CmEvent::Disconnected);
    assert!(fixture.core.compare_event(fixture.on, &raw) && fixture.core.compare_read(fixture.on, Ok(Some(raw))));
    fixture.core.handle_event(fixture.on, raw).unwrap();
    assert_eq!(fixture.core.channels.get(fixture.on).unwrap().failures, 0);
}

/// Deadlines that come in order and end in any order: the nearest one is that of the id with the nearest deadline, and
/// both paths leave the same.
#[test]
fn the_nearest_deadline_on_both_paths() {
    let resolve = Request::ResolveAddr { src: None, dst: peer() };
    for ends in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut fixture = ShortFixture::new(Acks::OnDelivery);
        let ids = [LATER.0 + 1, LATER.0 + 2, LATER.0 + 3].map(|due| {
            let id = fixture.core.perform_create(fixture.on, PortSpace::Tcp, |_| Ok(())).unwrap().unwrap();
            assert!(fixture.core.compare_request(NOW, id, &resolve, Time(due)));
            fixture.core.perform(NOW, id, &resolve, Time(due), |_, _| Ok(())).unwrap().unwrap();
            id
        });
        for end in ends {
            let raw = RawEvent::new(ids[end], CmEvent::AddrResolved);
            assert!(fixture.core.compare_event(fixture.on, &raw), "{ends:?}");
            assert!(fixture.core.admit_short(fixture.on, &raw) && fixture.core.poll_event(fixture.on).is_some());
            fixture.core.check();
            // A deadline before all others, which ends with its request.
            assert!(fixture.core.compare_request(NOW, ids[end], &Request::ResolveRoute, DUE), "{ends:?}");
            fixture.core.perform(NOW, ids[end], &Request::ResolveRoute, DUE, |_, _| Ok(())).unwrap().unwrap();
            assert_eq!(fixture.core.poll_timeout(), Some((DUE, ids[end])));
            let raw = RawEvent::new(ids[end], CmEvent::RouteResolved);
            assert!(fixture.core.compare_event(fixture.on, &raw), "{ends:?}");
            assert!(fixture.core.admit_short(fixture.on, &raw) && fixture.core.poll_event(fixture.on).is_some());
            fixture.core.check();
        }
    }
}

#[test]
fn deadlines_that_the_short_path_leaves_behind_are_swept_out() {
    let mut fixture = ShortFixture::new(Acks::OnDelivery);
    let resolve = Request::ResolveAddr { src: None, dst: peer() };
    for step in 0..1000 {
        let id = fixture.core.perform_create(fixture.on, PortSpace::Tcp, |_| Ok(())).unwrap().unwrap();
        let due = Time(LATER.0 + step);
        fixture.core.perform(NOW, id, &resolve, due, |_, _| Ok(())).unwrap().unwrap();
        assert!(fixture.core.admit_short(fixture.on, &RawEvent::new(id, CmEvent::AddrResolved)));
        assert!(fixture.core.poll_event(fixture.on).is_some());
        fixture.core.perform(NOW, id, &Request::Destroy, Time::NEVER, |_, _| Ok(())).unwrap().unwrap();
        assert!(!fixture.core.deadlines.needs_compaction(), "after {step} ids");
    }
    assert_eq!(fixture.core.ids(), 2);
    fixture.core.check();
}
