//! Synchronous mode.

use std::time::Duration;

use cmid_proto::{Acks, Admission, CmEvent, Errno, EventKind, IdKey, PortSpace, Request, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, OK, RESOLVE, accept, cm, connect, group_addr, to};

/// A synchronous id with a route.
fn routed(fixture: &mut CoreFixture) -> IdKey {
    let id = fixture.id(None);
    fixture.does(id, RESOLVE);
    fixture.report(id, CmEvent::AddrResolved);
    fixture.does(id, Request::ResolveRoute);
    fixture.report(id, CmEvent::RouteResolved);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    id
}

fn connected(fixture: &mut CoreFixture) -> IdKey {
    let id = routed(fixture);
    fixture.does(id, connect());
    fixture.report(id, CmEvent::Established);
    id
}

#[test]
fn the_event_that_ends_a_request_is_readable_until_the_next_request() {
    let mut fixture = CoreFixture::new();
    let id = fixture.id(None);
    let private = fixture.core.channel(id).unwrap();
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.does(id, RESOLVE);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None), "it is open");
    assert!(fixture.submit(id, Request::ResolveRoute).is_err());
    fixture.report(id, CmEvent::AddrResolved);
    fixture.no_event(private);
    for _ in 0..2 {
        assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
        assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(CmEvent::AddrResolved));
    }
    fixture.does(id, Request::ResolveRoute);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
}

#[test]
fn every_end_has_the_errno_of_the_library() {
    let cases = [
        (CmEvent::Established, 0, Ok(())),
        (CmEvent::ConnectResponse, 0, Ok(())),
        (CmEvent::Rejected, 28, Err(Errno::ECONNREFUSED)),
        (CmEvent::Unreachable, -110, Err(Errno::ETIMEDOUT)),
        (CmEvent::Unreachable, 2, Err(Errno::ENOENT)),
        (CmEvent::Unreachable, i32::MIN, Err(Errno::EINVAL)),
        (CmEvent::ConnectError, -1, Err(Errno::EPERM)),
        (CmEvent::Disconnected, 0, Err(Errno::ECONNRESET)),
        (CmEvent::DeviceRemoval, 0, Err(Errno::ENODEV)),
    ];
    for (kind, status, result) in cases {
        let mut fixture = CoreFixture::new();
        let id = routed(&mut fixture);
        fixture.does(id, connect());
        fixture.report_status(id, kind, status);
        assert_eq!(fixture.core.sync_result(id), Some(result), "{kind} {status}");
        assert_eq!(fixture.core.sync_event(id).unwrap().status, status);
    }
}

#[test]
fn an_event_that_is_not_the_requests_own_does_not_end_it() {
    let mut fixture = CoreFixture::new();
    let id = routed(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    fixture.does(id, connect());
    fixture.report(id, CmEvent::AddrChange);
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.sees(private, id, cm(CmEvent::AddrChange));
}

#[test]
fn a_disconnect_waits_for_its_event_unless_there_is_nothing_to_wait_for() {
    let mut fixture = CoreFixture::new();
    let id = connected(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    fixture.does(id, Request::Disconnect);
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.report(id, CmEvent::Disconnected);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    fixture.does(id, Request::Disconnect);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (Some(Ok(())), None), "at once");

    let lost = connected(&mut fixture);
    let home = fixture.core.channel(lost).unwrap();
    fixture.report(lost, CmEvent::Disconnected);
    fixture.does(lost, Request::Disconnect);
    assert_eq!(fixture.core.sync_result(lost), Some(Ok(())));
    assert_eq!(fixture.core.sync_event(lost).unwrap().kind, cm(CmEvent::Disconnected), "the peer's, not taken yet");
    fixture.no_event(home);
    fixture.no_event(private);
}

#[test]
fn a_deadline_ends_the_wait() {
    let mut fixture = CoreFixture::new();
    let id = routed(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    let soon = fixture.within(Duration::from_secs(1));
    fixture.does_until(id, connect(), soon);
    fixture.passes(Duration::from_secs(1));
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (Some(Err(Errno::ETIMEDOUT)), None));
    fixture.no_event(private);
    assert_eq!(fixture.state(id), State::Failed);
}

#[test]
fn a_call_that_fails_is_no_wait() {
    let mut fixture = CoreFixture::new();
    let id = routed(&mut fixture);
    fixture.fails(id, connect(), "connect", Errno::EINVAL);
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.does(id, connect());
}

#[test]
fn the_private_channel_closes_with_its_id() {
    let mut fixture = CoreFixture::new();
    let id = connected(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    assert!(fixture.makes(id, Request::Destroy, "destroy_id").unwrap().result.is_ok());
    assert!(fixture.core.channel_info(private).is_some());
    assert_eq!(fixture.expect_call("destroy_event_channel", OK), None);
    assert!(fixture.core.channel_info(private).is_none());
}

#[test]
fn a_synchronous_id_that_cannot_be_created_leaves_nothing() {
    let mut fixture = CoreFixture::new();
    fixture.creates(PortSpace::Tcp, None).unwrap();
    let ended = fixture.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap();
    assert_eq!(ended.result.unwrap_err().call, "create_event_channel");
    assert_eq!((fixture.core.ids().count(), fixture.core.channels().count()), (0, 0));
    fixture.creates(PortSpace::Tcp, None).unwrap();
    fixture.expect_call("create_event_channel", OK);
    let ended = fixture.expect_call("create_id", Err(Errno::ENOMEM)).unwrap();
    assert_eq!(ended.result.unwrap_err().call, "create_id");
    assert_eq!((fixture.core.ids().count(), fixture.core.channels().count()), (0, 1));
    assert_eq!(fixture.expect_call("destroy_event_channel", OK), None);
}

#[test]
fn an_open_request_that_leaves_synchronous_mode_ends_by_event() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = routed(&mut fixture);
    fixture.does(id, connect());
    fixture.does(id, to(channel));
    fixture.report_and_take(id, CmEvent::Established);
    assert_eq!(fixture.core.sync_result(id), None);
}

#[test]
fn events_that_no_request_waited_for_move_with_the_id_and_the_one_that_ended_a_request_is_read_before() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
        let id = routed(&mut fixture);
        let private = fixture.core.channel(id).unwrap();
        fixture.does(id, connect());
        for kind in [CmEvent::AddrChange, CmEvent::Established, CmEvent::Disconnected] {
            fixture.report(id, kind);
        }
        assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(CmEvent::Established));
        fixture.submit(id, to(channel)).unwrap();
        fixture.expect_call("migrate_id", outcome);
        // As every request, the migration gives up the event that ended the one before.
        assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
        let home = if outcome.is_ok() { channel } else { private };
        for kind in [CmEvent::AddrChange, CmEvent::Disconnected] {
            fixture.sees(home, id, cm(kind));
        }
        fixture.no_event(home);
    }
}

#[test]
fn a_destroy_ends_a_wait() {
    for request in [connect(), Request::GetRequest, Request::Join { addr: group_addr(1), send_only: false }] {
        let mut fixture = CoreFixture::new();
        let id = match request {
            Request::GetRequest => fixture.id(None),
            Request::Join { .. } => fixture.id_for(PortSpace::Udp, None),
            _ => routed(&mut fixture),
        };
        match request {
            Request::GetRequest => fixture.does(id, LISTEN),
            Request::Join { .. } => fixture.does(id, BIND),
            _ => {}
        }
        let soon = fixture.does_soon(id, request);
        assert_eq!(fixture.core.poll_timeout(), Some((soon, id)));
        let ended = fixture.makes(id, Request::Destroy, "destroy_id").unwrap();
        assert!(ended.result.is_ok(), "no channel is left for the event");
        assert_eq!((fixture.core.sync_result(id), fixture.core.poll_timeout()), (None, None));
    }
}

/// On iWARP a destroy waits for the answer to a connect.
#[test]
fn a_destroy_that_outlives_its_deadline_is_reported_on_the_private_channel() {
    let mut fixture = CoreFixture::new();
    let id = routed(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    fixture.core.note_iwarp(id);
    fixture.does(id, connect());
    let soon = fixture.within(Duration::from_secs(1));
    fixture.submit_until(id, Request::Destroy, soon).unwrap();
    assert_eq!(
        (fixture.core.id_info(id).and_then(|it| it.sync_open), fixture.core.sync_result(id)),
        (None, None),
        "it ends the connect"
    );
    fixture.no_call();
    fixture.passes(Duration::from_secs(1));
    assert_eq!(fixture.sees(private, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    assert_eq!(fixture.report(id, CmEvent::Rejected), Admission::Late);
}

/// The channel goes with the id, and nobody takes events from it.
#[test]
fn a_destroy_that_has_waited_in_synchronous_mode_ends_without_an_event() {
    let mut fixture = CoreFixture::new();
    let id = routed(&mut fixture);
    let private = fixture.core.channel(id).unwrap();
    fixture.core.note_iwarp(id);
    fixture.does(id, connect());
    fixture.submit(id, Request::Destroy).unwrap();
    fixture.no_call();
    assert_eq!(fixture.report(id, CmEvent::Rejected), Admission::Late);
    let activity = fixture.core.activity();
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
    fixture.no_event(private);
    assert_ne!(fixture.core.activity(), activity, "a loop that waits for the end is told");
}

#[test]
fn the_requests_of_a_synchronous_listener_live_on_its_channel_until_they_leave() {
    let mut fixture = CoreFixture::new();
    let listener = fixture.id(None);
    fixture.does(listener, Request::Listen { backlog: 2 });
    let private = fixture.core.channel(listener).unwrap();
    let (first, second) = (fixture.report_request(listener), fixture.report_request(listener));
    fixture.sees(private, first, cm(CmEvent::ConnectRequest));
    fixture.sees(private, second, cm(CmEvent::ConnectRequest));
    fixture.does(first, crate::fixture::TO_SYNC);
    fixture.does(first, accept());
    fixture.report(first, CmEvent::Established);
    assert_eq!(fixture.core.sync_result(first), Some(Ok(())));
    // The listener is destroyed. Its channel stays for the id that is still on it.
    fixture.does(listener, Request::Destroy);
    assert!(fixture.core.channel_info(private).is_some());
    fixture.does(second, accept());
    fixture.report_and_take(second, CmEvent::Established);
    fixture.does(second, Request::Destroy);
    assert!(fixture.core.channel_info(private).is_none());
}
