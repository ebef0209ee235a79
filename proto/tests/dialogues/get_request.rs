//! `rdma_get_request`: a listener in synchronous mode waits for the next request.

use std::time::Duration;

use cmid_proto::{Acks, Admission, ChannelKey, CmEvent, Errno, EventKind, IdKey, Refused, Request, State, Verb, Why};

use crate::fixture::{LISTEN, OK, RESOLVE, Stage, TO_SYNC, accept, cm, raw, to};

const SOON: Duration = Duration::from_millis(2);
const NEXT: Request<'static> = Request::GetRequest;

/// A listener in synchronous mode and its channel.
fn listener(stage: &mut Stage) -> (IdKey, ChannelKey) {
    let id = stage.id(None);
    stage.does(id, LISTEN);
    (id, stage.core.home(id).unwrap())
}

/// The request that the last wait ended with.
fn got(stage: &Stage, listener: IdKey) -> IdKey {
    assert_eq!(stage.core.sync_result(listener), Some(Ok(())));
    let event = stage.core.sync_event(listener).unwrap();
    assert_eq!((event.kind, event.listener), (cm(CmEvent::ConnectRequest), Some(listener)));
    assert_eq!((&*event.private_data, &event.receipt), (&[1; 56][..], &None));
    event.id
}

#[test]
fn a_request_that_comes_ends_the_wait_and_is_readable_until_the_next() {
    let mut stage = Stage::new();
    let (id, line) = listener(&mut stage);
    stage.asks(id, NEXT).unwrap();
    stage.no_call();
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
    let first = stage.says_request(id);
    for _ in 0..2 {
        assert_eq!(got(&stage, id), first);
    }
    stage.no_event(line);
    stage.asks(id, NEXT).unwrap();
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
    assert_eq!(stage.state(first), State::Requested, "it lives on");
    let second = stage.says_request(id);
    assert_eq!(got(&stage, id), second);
    stage.ends(&[first, second, id], &[]);
}

#[test]
fn a_request_that_is_there_already_ends_the_wait_at_once_and_in_order() {
    let mut stage = Stage::new();
    let (id, line) = listener(&mut stage);
    let first = stage.says_request(id);
    stage.says_on(line, raw(id, CmEvent::AddrChange, 0));
    let second = stage.says_request(id);
    for child in [first, second] {
        stage.asks(id, NEXT).unwrap();
        assert_eq!(got(&stage, id), child);
        assert_eq!(stage.core.poll_timeout(), None);
    }
    stage.sees(line, id, cm(CmEvent::AddrChange));
    stage.no_event(line);
    stage.ends(&[first, second, id], &[]);
}

#[test]
fn what_does_not_listen_or_is_not_synchronous_is_refused() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    for state in State::ALL.into_iter().filter(|&state| state != State::Listening) {
        let mut stage = stage.clone();
        let id = stage.in_state(channel, state);
        let why = if state == State::Removed { Why::DeviceGone } else { Why::WrongState };
        stage.refuses(id, NEXT, why);
    }
    let id = stage.in_state(channel, State::Listening);
    assert_eq!(stage.refuses(id, NEXT, Why::NotSync).errno(), Errno::EINVAL);
    stage.does(id, TO_SYNC);
    stage.does(id, NEXT);
    assert_eq!(stage.refuses(id, NEXT, Why::Busy(Verb::GetRequest)).errno(), Errno::EBUSY);
    stage.refuses(id, Request::SetOption { option: cmid_proto::CmOption::Tos(1) }, Why::Busy(Verb::GetRequest));
    stage.ends(&[id], &[channel]);
}

#[test]
fn a_wait_ends_at_its_deadline_and_the_listener_goes_on() {
    let mut stage = Stage::new();
    let (id, line) = listener(&mut stage);
    let soon = stage.within(SOON);
    stage.asks_until(id, NEXT, soon).unwrap();
    assert_eq!(stage.core.poll_timeout(), Some((soon, id)));
    stage.passes(SOON);
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (Some(Err(Errno::ETIMEDOUT)), None));
    assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Listening, None));
    stage.no_event(line);
    let child = stage.says_request(id);
    assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)), "it came too late for that one");
    let later = stage.within(SOON);
    stage.asks_until(id, NEXT, later).unwrap();
    assert_eq!(got(&stage, id), child);
    assert_eq!(stage.core.poll_timeout(), None, "a request was there");
    stage.asks_until(id, NEXT, later).unwrap();
    let other = stage.says_request(id);
    assert_eq!((got(&stage, id), stage.core.poll_timeout()), (other, None), "one came in time");
    stage.ends(&[child, other, id], &[]);
}

#[test]
fn only_a_request_or_the_removal_ends_a_wait() {
    let mut stage = Stage::new();
    let (id, line) = listener(&mut stage);
    let soon = stage.within(SOON);
    stage.asks_until(id, NEXT, soon).unwrap();
    stage.says_on(line, raw(id, CmEvent::AddrChange, 0));
    assert_eq!(stage.core.sync_result(id), None);
    stage.sees(line, id, cm(CmEvent::AddrChange));
    stage.says_on(line, raw(id, CmEvent::DeviceRemoval, 0));
    assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ENODEV)));
    assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(CmEvent::DeviceRemoval));
    assert_eq!(stage.core.poll_timeout(), None);
    stage.refuses(id, NEXT, Why::DeviceGone);
    stage.ends(&[id], &[]);
}

#[test]
fn a_listener_that_goes_leaves_the_request_that_was_waited_for() {
    let mut stage = Stage::new();
    let (id, line) = listener(&mut stage);
    stage.does(id, NEXT);
    let (child, unread) = (stage.says_request(id), stage.says_request(id));
    // Nobody has to have looked: it was told, as one that was taken off a channel.
    stage.does(id, Request::Destroy);
    assert_eq!((stage.core.state(unread), stage.state(child)), (None, State::Requested));
    assert!(stage.core.has_channel(line), "its events are reported there");
    stage.does(child, accept());
    stage.tells(child, CmEvent::Established);
    stage.does(child, Request::Destroy);
    assert!(!stage.core.has_channel(line));
    stage.ends(&[], &[]);
}

#[test]
fn a_destroy_ends_a_wait() {
    let mut stage = Stage::new();
    let (id, _) = listener(&mut stage);
    let soon = stage.within(SOON);
    stage.asks_until(id, NEXT, soon).unwrap();
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, None));
    assert!(stage.expect_call("destroy_id", OK).unwrap().result.is_ok());
    stage.ends(&[], &[]);
}

#[test]
fn a_wait_that_leaves_synchronous_mode_goes_on_as_requests_on_the_channel() {
    for ended in [false, true] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let (id, line) = listener(&mut stage);
        let soon = stage.within(SOON);
        stage.asks_until(id, NEXT, soon).unwrap();
        let taken = ended.then(|| stage.says_request(id));
        stage.asks(id, to(channel)).unwrap();
        stage.no_call();
        assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, None));
        stage.passes(SOON);
        let child = stage.says_request(id);
        stage.sees(channel, child, cm(CmEvent::ConnectRequest));
        stage.no_event(channel);
        if let Some(taken) = taken {
            assert_eq!(stage.core.home(taken), Some(line), "what was told stays");
            stage.does(taken, to(channel));
            stage.does(taken, Request::Destroy);
        }
        stage.ends(&[child, id], &[channel]);
    }
}

#[test]
fn an_undelivered_request_is_there_for_a_listener_that_becomes_synchronous() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Listening);
    let (first, second) = (stage.says_request(id), stage.says_request(id));
    let held = stage.expect_event(channel, first, cm(CmEvent::ConnectRequest));
    stage.asks(id, TO_SYNC).unwrap();
    stage.refuses(id, NEXT, Why::Busy(Verb::Migrate));
    stage.acks(held);
    stage.all_well();
    let line = stage.core.home(id).unwrap();
    stage.sees(line, id, EventKind::Migrated);
    stage.asks(id, NEXT).unwrap();
    assert_eq!(got(&stage, id), second);
    assert_eq!((stage.core.home(second), stage.core.line(second)), (Some(line), Some(line)));
    stage.ends(&[first, second, id], &[channel]);
}

#[test]
fn the_id_of_a_request_becomes_synchronous_itself_and_goes_elsewhere() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let (id, line) = listener(&mut one);
    one.does(id, NEXT);
    let child = one.says_request(id);
    assert!(!one.core.is_sync(child));
    assert!(matches!(one.core.release(id), Err(Refused::Request { why: Why::SharesChannel, .. })));
    one.does(child, TO_SYNC);
    assert_ne!(one.core.home(child), Some(line));
    let (released, _) = one.core.release(child).unwrap();
    let (child, _) = two.core.adopt(released).unwrap();
    two.does(child, accept());
    two.says(child, CmEvent::Established);
    assert_eq!(two.core.sync_result(child), Some(Ok(())));
    two.ends(&[child], &[]);
    one.ends(&[id], &[]);
}

#[test]
fn an_open_wait_goes_to_another_core() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let (id, _) = listener(&mut one);
    let soon = one.within(SOON);
    one.asks_until(id, NEXT, soon).unwrap();
    let (released, _) = one.core.release(id).unwrap();
    one.ends(&[], &[]);
    let (id, _) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!((two.core.sync_result(id), two.core.poll_timeout()), (None, Some((soon, id))));
    let child = two.says_request(id);
    assert_eq!((got(&two, id), two.core.poll_timeout()), (child, None));
    two.ends(&[child, id], &[]);
}

#[test]
fn a_listener_takes_no_event_of_another_id_to_another_core() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let channel = one.channel(Acks::OnDelivery);
    let (id, line) = listener(&mut one);
    one.does(id, NEXT);
    let child = one.says_request(id);
    one.does(child, to(channel));
    let (released, _) = one.core.release(id).unwrap();
    one.core.check();
    assert!(!one.core.has_channel(line));
    let (id, line) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!((two.core.sync_result(id), two.core.sync_event(id)), (None, None));
    // One that is undelivered keeps it here, whatever has become of the listener.
    let other = two.says_request(id);
    two.says_on(line, raw(id, CmEvent::DeviceRemoval, 0));
    let door = two.channel(Acks::OnDelivery);
    two.does(other, to(door));
    assert_eq!(two.state(id), State::Removed);
    assert!(matches!(two.core.release(id), Err(Refused::Request { why: Why::Busy(Verb::Listen), .. })));
    two.sees(line, other, cm(CmEvent::ConnectRequest));
    let (released, _) = two.core.release(id).unwrap();
    let (id, line) = one.core.adopt(released).unwrap();
    one.sees(line, id, cm(CmEvent::DeviceRemoval));
    one.ends(&[id, child], &[channel]);
    two.ends(&[other], &[door]);
}

#[test]
fn a_listen_gives_up_the_event_of_the_request_before() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    stage.does(id, RESOLVE);
    assert_eq!(stage.says_status(id, CmEvent::AddrError, -110), Admission::Known);
    assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
    stage.does(id, LISTEN);
    assert_eq!((stage.core.sync_result(id), stage.core.sync_event(id)), (None, None));
    stage.ends(&[id], &[]);
}
