//! Synchronous mode.

use std::time::Duration;

use cmid_proto::{Acks, CmEvent, Errno, EventKind, IdKey, Request, State};

use crate::fixture::{OK, RESOLVE, Stage, accept, cm, connect, to};

/// A synchronous id that has a route.
fn routed(stage: &mut Stage) -> IdKey {
    let id = stage.id(None);
    stage.does(id, RESOLVE);
    stage.says(id, CmEvent::AddrResolved);
    stage.does(id, Request::ResolveRoute);
    stage.says(id, CmEvent::RouteResolved);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    id
}

fn connected(stage: &mut Stage) -> IdKey {
    let id = routed(stage);
    stage.does(id, connect());
    stage.says(id, CmEvent::Established);
    id
}

#[test]
fn the_event_that_ends_a_request_is_readable_until_the_next_request() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    let private = stage.core.home(id).unwrap();
    assert_eq!(stage.core.sync_result(id), None);
    stage.does(id, RESOLVE);
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None), "it is open");
    assert!(stage.asks(id, Request::ResolveRoute).is_err());
    stage.says(id, CmEvent::AddrResolved);
    stage.no_event(private);
    for _ in 0..2 {
        assert_eq!(stage.core.sync_result(id), Some(Ok(())));
        assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(CmEvent::AddrResolved));
    }
    stage.asks(id, Request::ResolveRoute).unwrap();
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
    stage.ends(&[id], &[]);
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
        let mut stage = Stage::new();
        let id = routed(&mut stage);
        stage.does(id, connect());
        stage.says_status(id, kind, status);
        assert_eq!(stage.core.sync_result(id), Some(result), "{kind} {status}");
        assert_eq!(stage.core.sync_event(id).unwrap().status, status);
        stage.ends(&[id], &[]);
    }
}

#[test]
fn an_event_that_is_not_the_requests_own_does_not_end_it() {
    let mut stage = Stage::new();
    let id = routed(&mut stage);
    let private = stage.core.home(id).unwrap();
    stage.does(id, connect());
    stage.says(id, CmEvent::AddrChange);
    assert_eq!(stage.core.sync_result(id), None);
    stage.sees(private, id, cm(CmEvent::AddrChange));
    stage.ends(&[id], &[]);
}

#[test]
fn a_disconnect_waits_for_its_event_unless_there_is_nothing_to_wait_for() {
    let mut stage = Stage::new();
    let id = connected(&mut stage);
    let private = stage.core.home(id).unwrap();
    stage.does(id, Request::Disconnect);
    assert_eq!(stage.core.sync_result(id), None);
    stage.says(id, CmEvent::Disconnected);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    stage.does(id, Request::Disconnect);
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (Some(Ok(())), None), "at once");

    let lost = connected(&mut stage);
    let home = stage.core.home(lost).unwrap();
    stage.says(lost, CmEvent::Disconnected);
    stage.does(lost, Request::Disconnect);
    assert_eq!(stage.core.sync_result(lost), Some(Ok(())));
    assert_eq!(stage.core.sync_event(lost).unwrap().kind, cm(CmEvent::Disconnected), "the peer's, not taken yet");
    stage.no_event(home);
    stage.no_event(private);
    stage.ends(&[id, lost], &[]);
}

#[test]
fn a_deadline_ends_the_wait() {
    let mut stage = Stage::new();
    let id = routed(&mut stage);
    let private = stage.core.home(id).unwrap();
    let soon = stage.within(Duration::from_secs(1));
    stage.does_until(id, connect(), soon);
    stage.passes(Duration::from_secs(1));
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (Some(Err(Errno::ETIMEDOUT)), None));
    stage.no_event(private);
    assert_eq!(stage.state(id), State::Failed);
    stage.ends(&[id], &[]);
}

#[test]
fn a_call_that_fails_is_no_wait() {
    let mut stage = Stage::new();
    let id = routed(&mut stage);
    stage.asks(id, connect()).unwrap();
    assert!(stage.expect_call("connect", Err(Errno::EINVAL)).unwrap().result.is_err());
    assert_eq!(stage.core.sync_result(id), None);
    stage.does(id, connect());
    stage.ends(&[id], &[]);
}

#[test]
fn the_private_channel_closes_with_its_id() {
    let mut stage = Stage::new();
    let id = connected(&mut stage);
    let private = stage.core.home(id).unwrap();
    stage.asks(id, Request::Destroy).unwrap();
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    assert!(stage.core.has_channel(private));
    let (token, _) = stage.takes_call("destroy_event_channel");
    stage.answers(token, OK);
    assert!(!stage.core.has_channel(private));
    stage.ends(&[], &[]);
}

#[test]
fn a_private_channel_that_cannot_be_closed_is_a_leak() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    stage.asks(id, Request::Destroy).unwrap();
    stage.expect_call("destroy_id", OK);
    let (token, _) = stage.takes_call("destroy_event_channel");
    assert!(stage.core.handle_outcome(token, Err(Errno::EIO)).is_err());
    assert_eq!((stage.core.channels(), stage.core.counters().faults), (0, 1));
}

#[test]
fn a_synchronous_id_that_cannot_be_created_leaves_nothing() {
    let mut stage = Stage::new();
    stage.core.create_id(None, cmid_proto::PortSpace::Tcp).unwrap();
    let ended = stage.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap();
    assert_eq!(ended.result.unwrap_err().call, "create_event_channel");
    assert_eq!((stage.core.ids(), stage.core.channels()), (0, 0));
    stage.core.create_id(None, cmid_proto::PortSpace::Tcp).unwrap();
    stage.expect_call("create_event_channel", OK);
    let ended = stage.expect_call("create_id", Err(Errno::ENOMEM)).unwrap();
    assert_eq!(ended.result.unwrap_err().call, "create_id");
    stage.expect_call("destroy_event_channel", OK);
    stage.ends(&[], &[]);
}

#[test]
fn an_open_request_that_leaves_synchronous_mode_ends_by_event() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = routed(&mut stage);
    stage.does(id, connect());
    stage.does(id, to(channel));
    stage.tells(id, CmEvent::Established);
    assert_eq!(stage.core.sync_result(id), None);
    stage.ends(&[id], &[channel]);
}

#[test]
fn an_event_that_ends_a_request_while_its_id_moves_is_neither_lost_nor_told_twice() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = routed(&mut stage);
        let private = stage.core.home(id).unwrap();
        stage.does(id, connect());
        stage.says(id, CmEvent::AddrChange);
        stage.asks(id, to(channel)).unwrap();
        let (token, _) = stage.takes_call("migrate_id");
        stage.says(id, CmEvent::Established);
        stage.says(id, CmEvent::Disconnected);
        stage.answers(token, outcome);
        if outcome.is_ok() {
            for kind in [CmEvent::AddrChange, CmEvent::Established, CmEvent::Disconnected] {
                stage.sees(channel, id, cm(kind));
            }
            assert_eq!(stage.core.sync_result(id), None);
        } else {
            assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(CmEvent::Established));
            stage.sees(private, id, cm(CmEvent::AddrChange));
            stage.sees(private, id, cm(CmEvent::Disconnected));
        }
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn a_destroy_ends_a_wait() {
    for returned in [false, true] {
        let mut stage = Stage::new();
        let id = routed(&mut stage);
        let soon = stage.within(Duration::from_secs(1));
        stage.asks_until(id, connect(), soon).unwrap();
        let (token, _) = stage.takes_call("connect");
        if returned {
            stage.answers(token, OK);
        }
        stage.asks(id, Request::Destroy).unwrap();
        assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, None));
        if !returned {
            assert_eq!(stage.answers(token, OK), None);
        }
        assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok(), "no channel is left to tell it on");
        stage.ends(&[], &[]);
    }
}

#[test]
fn a_destroy_that_outlives_its_deadline_is_told_on_the_private_channel() {
    let mut stage = Stage::new();
    let id = routed(&mut stage);
    let private = stage.core.home(id).unwrap();
    stage.asks(id, connect()).unwrap();
    let (token, _) = stage.takes_call("connect");
    let soon = stage.within(Duration::from_secs(1));
    stage.asks_until(id, Request::Destroy, soon).unwrap();
    stage.passes(Duration::from_secs(1));
    stage.sees(private, id, EventKind::Destroyed);
    stage.answers(token, OK);
    stage.ends(&[id], &[]);
}

#[test]
fn the_requests_of_a_synchronous_listener_live_on_its_channel_until_they_leave() {
    let mut stage = Stage::new();
    let listener = stage.id(None);
    stage.does(listener, Request::Listen { backlog: 2 });
    let private = stage.core.home(listener).unwrap();
    let (first, second) = (stage.says_request(listener), stage.says_request(listener));
    stage.sees(private, first, cm(CmEvent::ConnectRequest));
    stage.sees(private, second, cm(CmEvent::ConnectRequest));
    stage.does(first, crate::fixture::TO_SYNC);
    stage.does(first, accept());
    stage.says(first, CmEvent::Established);
    assert_eq!(stage.core.sync_result(first), Some(Ok(())));
    // The listener goes; its channel stays for the one that is still on it.
    stage.does(listener, Request::Destroy);
    assert!(stage.core.has_channel(private));
    stage.does(second, accept());
    stage.tells(second, CmEvent::Established);
    stage.does(second, Request::Destroy);
    assert!(!stage.core.has_channel(private));
    stage.ends(&[first], &[]);
}

#[test]
fn a_request_that_is_destroyed_last_closes_the_channel_of_its_listener() {
    let mut stage = Stage::new();
    let listener = stage.id(None);
    stage.does(listener, Request::Listen { backlog: 1 });
    let private = stage.core.home(listener).unwrap();
    let child = stage.says_request(listener);
    stage.sees(private, child, cm(CmEvent::ConnectRequest));
    stage.does(listener, Request::Destroy);
    stage.asks(child, accept()).unwrap();
    stage.asks(child, Request::Destroy).unwrap();
    stage.expect_call("accept", OK);
    assert!(stage.expect_call("destroy_id", OK).is_some());
    stage.ends(&[], &[]);
}
