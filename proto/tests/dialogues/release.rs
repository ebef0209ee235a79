//! Moving ids from one core to another.

use std::time::Duration;

use cmid_proto::{
    Acks, CmEvent, Errno, ErrorWith, Limits, RawEvent, RefuseReason, Refused, Request, RequestKind, State, Time,
};

use crate::fixture::{CoreFixture, LISTEN, RESOLVE, TO_SYNC, cm, connect, to};

#[test]
fn an_id_takes_its_events_its_open_request_and_its_deadline_along() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let id = one.id(None);
    let deadline = one.within(Duration::from_secs(5));
    one.does_until(id, RESOLVE, deadline);
    one.report_status(id, CmEvent::AddrChange, 1);
    one.report_status(id, CmEvent::AddrChange, 2);
    let (released, private) = one.core.release(id).unwrap();
    one.core.check();
    assert_eq!(released.state(), State::AddrResolving);
    assert_eq!((one.core.state(id), one.core.channel_info(private).is_some()), (None, false));

    two.id(None);
    let (key, home) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!(two.core.poll_readable(), Some(home), "it may have events in the kernel");
    assert_eq!(two.core.poll_timeout(), Some((deadline, key)));
    assert_eq!(two.core.sync_result(key), None);
    for status in [1, 2] {
        assert_eq!(two.sees(home, key, cm(CmEvent::AddrChange)).status, status);
    }
    two.passes(Duration::from_secs(5));
    assert_eq!(two.core.sync_result(key), Some(Err(Errno::ETIMEDOUT)));
    let channel = two.channel(Acks::Explicit);
    two.does(key, to(channel));
    assert!(two.core.channel_info(home).is_none());
}

#[test]
fn an_id_takes_the_event_that_ended_its_request_along_with_its_private_data() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let channel = one.channel(Acks::OnDelivery);
    let id = one.in_state(channel, State::Connecting);
    one.does(id, crate::fixture::TO_SYNC);
    let home = one.core.channel(id).unwrap();
    let response = RawEvent { private_data: &b"data"[..], ..crate::fixture::raw(id, CmEvent::Rejected, 28) };
    one.report_on(home, response);
    let (released, _) = one.core.release(id).unwrap();
    let (key, home) = two.core.adopt(released).unwrap();
    two.core.check();
    let event = two.sees(home, key, cm(CmEvent::Rejected));
    assert_eq!(&*event.private_data, b"data");
}

#[test]
fn the_end_of_a_request_is_readable_in_the_other_core() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let id = one.id(None);
    one.does(id, RESOLVE);
    one.report(id, CmEvent::AddrResolved);
    let (released, _) = one.core.release(id).unwrap();
    let activity = two.core.activity();
    let (key, _) = two.core.adopt(released).unwrap();
    assert_eq!((two.core.sync_result(key), two.core.activity()), (Some(Ok(())), activity + 1));
    assert_eq!(two.core.sync_event(key).unwrap().id, key);
    two.does(key, Request::ResolveRoute);
}

#[test]
fn what_cannot_be_released_is_refused_and_stays() {
    let (mut fixture, channel, shared) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let alone = fixture.id(None);
    let reason = |fixture: &mut CoreFixture, id| {
        let before = fixture.core.clone();
        let refused = fixture.core.release(id).map(drop).unwrap_err();
        assert_eq!(fixture.core, before);
        let Refused::Request { id: of, request: RequestKind::Release, reason, .. } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(of, id);
        reason
    };
    assert_eq!(reason(&mut fixture, shared), RefuseReason::NotSync);
    fixture.does(alone, LISTEN);
    let child = fixture.report_request(alone);
    assert_eq!(reason(&mut fixture, alone), RefuseReason::SharesChannel, "a request of it lives on its channel");
    fixture.does(child, to(channel));
    assert_eq!(reason(&mut fixture, alone), RefuseReason::Busy(RequestKind::Listen), "a request waits to be taken");
    let private = fixture.core.channel(alone).unwrap();
    fixture.sees(private, child, cm(CmEvent::ConnectRequest));
    let going = fixture.in_state(channel, State::RouteResolved);
    fixture.does(going, TO_SYNC);
    fixture.core.note_iwarp(going);
    fixture.does(going, connect());
    fixture.submit(going, Request::Destroy).unwrap();
    assert_eq!(reason(&mut fixture, going), RefuseReason::WrongState, "it waits for the answer to its connect");
    fixture.does(going, Request::DestroyNow);
    fixture.does(alone, Request::Destroy);
    assert!(matches!(fixture.core.release(alone), Err(Refused::NoSuchId { .. })));
}

#[test]
fn an_id_that_finds_no_room_is_given_back() {
    let mut one = CoreFixture::new();
    let mut two = CoreFixture::with(Limits { ids: 1, channels: 1, events: 1, groups: 8, ..Limits::SINGLE });
    let id = one.id(None);
    let other = two.id(None);
    one.report(id, CmEvent::AddrChange);
    let (released, _) = one.core.release(id).unwrap();
    let ErrorWith { given: released, error: refused } = two.core.adopt(released).unwrap_err();
    assert_eq!(refused, Refused::Full("ids"));
    two.core.check();
    two.does(other, Request::Destroy);
    let channel = two.channel(Acks::Explicit);
    let ErrorWith { given: released, error: refused } = two.core.adopt(released).unwrap_err();
    assert_eq!(refused, Refused::Full("channels"));
    two.core.check();
    two.closes(channel).unwrap();
    two.all_well();
    let (key, home) = two.core.adopt(released).unwrap();
    two.sees(home, key, cm(CmEvent::AddrChange));
}

#[test]
fn a_key_is_stale_after_the_release() {
    let mut fixture = CoreFixture::new();
    let id = fixture.id(None);
    fixture.does_until(id, RESOLVE, Time::NEVER);
    let (released, private) = fixture.core.release(id).unwrap();
    assert!(matches!(fixture.submit(id, Request::ResolveRoute), Err(Refused::NoSuchId { .. })));
    assert!(fixture.core.handle_event(private, crate::fixture::raw(id, CmEvent::AddrResolved, 0)).is_err());
    drop(released);
    fixture.stops();
}
