//! `rdma_get_request`: a listener in synchronous mode waits for the next request.

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, Errno, EventKind, GroupKey, IdKey, RefuseReason, Refused, Request,
    RequestKind, State,
};

use crate::fixture::{CoreFixture, LISTEN, RESOLVE, SOON, TO_SYNC, accept, cm, raw, to};

const NEXT: Request<'static> = Request::GetRequest;

/// A listener in synchronous mode and its channel.
fn listener(fixture: &mut CoreFixture) -> (IdKey, ChannelKey) {
    let id = fixture.id(None);
    fixture.does(id, LISTEN);
    (id, fixture.core.channel(id).unwrap())
}

/// The request that ended the last wait.
fn got(fixture: &CoreFixture, listener: IdKey) -> IdKey {
    assert_eq!(fixture.core.sync_result(listener), Some(Ok(())));
    let event = fixture.core.sync_event(listener).unwrap();
    assert_eq!((event.kind, event.listener), (cm(CmEvent::ConnectRequest), Some(listener)));
    assert_eq!((&*event.private_data, &event.ack_token), (&[1; 56][..], &None));
    event.id
}

#[test]
fn a_request_that_comes_ends_the_wait_and_is_readable_until_the_next() {
    let mut fixture = CoreFixture::new();
    let (id, device_channel) = listener(&mut fixture);
    fixture.submit(id, NEXT).unwrap();
    fixture.no_call();
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
    let first = fixture.report_request(id);
    for _ in 0..2 {
        assert_eq!(got(&fixture, id), first);
    }
    fixture.no_event(device_channel);
    fixture.submit(id, NEXT).unwrap();
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
    assert_eq!(fixture.state(first), State::Requested, "it lives on");
    let second = fixture.report_request(id);
    assert_eq!(got(&fixture, id), second);
}

#[test]
fn a_request_that_is_there_already_ends_the_wait_at_once_and_in_order() {
    let mut fixture = CoreFixture::new();
    let (id, device_channel) = listener(&mut fixture);
    let first = fixture.report_request(id);
    fixture.report_on(device_channel, raw(id, CmEvent::AddrChange, 0));
    let second = fixture.report_request(id);
    for child in [first, second] {
        fixture.submit(id, NEXT).unwrap();
        assert_eq!(got(&fixture, id), child);
        assert_eq!(fixture.core.poll_timeout(), None);
    }
    fixture.sees(device_channel, id, cm(CmEvent::AddrChange));
    fixture.no_event(device_channel);
}

#[test]
fn a_listener_that_is_not_synchronous_or_waits_already_is_refused() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Listening);
    assert_eq!(fixture.refuses(id, NEXT, RefuseReason::NotSync).errno(), Errno::EINVAL);
    fixture.does(id, TO_SYNC);
    fixture.does(id, NEXT);
    assert_eq!(fixture.refuses(id, NEXT, RefuseReason::Busy(RequestKind::GetRequest)).errno(), Errno::EBUSY);
    let group = GroupKey::from_parts(0, 0, 1).unwrap();
    fixture.refuses(id, Request::Leave { group }, RefuseReason::Busy(RequestKind::GetRequest));
}

#[test]
fn a_wait_ends_at_its_deadline_and_the_listener_goes_on() {
    let mut fixture = CoreFixture::new();
    let (id, device_channel) = listener(&mut fixture);
    let soon = fixture.within(SOON);
    fixture.submit_until(id, NEXT, soon).unwrap();
    assert_eq!(fixture.core.poll_timeout(), Some((soon, id)));
    fixture.passes(SOON);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (Some(Err(Errno::ETIMEDOUT)), None));
    assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Listening, None));
    fixture.no_event(device_channel);
    let child = fixture.report_request(id);
    assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)), "it came too late for that one");
    let later = fixture.within(SOON);
    fixture.submit_until(id, NEXT, later).unwrap();
    assert_eq!(got(&fixture, id), child);
    assert_eq!(fixture.core.poll_timeout(), None, "a request was there");
    fixture.submit_until(id, NEXT, later).unwrap();
    let other = fixture.report_request(id);
    assert_eq!((got(&fixture, id), fixture.core.poll_timeout()), (other, None), "one came in time");
}

#[test]
fn only_a_request_or_the_removal_ends_a_wait() {
    let mut fixture = CoreFixture::new();
    let (id, device_channel) = listener(&mut fixture);
    let soon = fixture.within(SOON);
    fixture.submit_until(id, NEXT, soon).unwrap();
    fixture.report_on(device_channel, raw(id, CmEvent::AddrChange, 0));
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.sees(device_channel, id, cm(CmEvent::AddrChange));
    fixture.report_on(device_channel, raw(id, CmEvent::DeviceRemoval, 0));
    assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ENODEV)));
    assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(CmEvent::DeviceRemoval));
    assert_eq!(fixture.core.poll_timeout(), None);
    fixture.refuses(id, NEXT, RefuseReason::DeviceGone);
}

#[test]
fn a_listener_that_goes_leaves_the_request_that_was_waited_for() {
    let mut fixture = CoreFixture::new();
    let (id, device_channel) = listener(&mut fixture);
    fixture.does(id, NEXT);
    let (child, unread) = (fixture.report_request(id), fixture.report_request(id));
    // The request that ended the wait counts as delivered, whether or not the application has read it.
    fixture.does(id, Request::Destroy);
    assert_eq!((fixture.core.state(unread), fixture.state(child)), (None, State::Requested));
    assert!(fixture.core.channel_info(device_channel).is_some(), "its events are reported there");
    fixture.does(child, accept());
    fixture.report_and_take(child, CmEvent::Established);
    fixture.does(child, Request::Destroy);
    assert!(fixture.core.channel_info(device_channel).is_none());
}

#[test]
fn a_wait_that_leaves_synchronous_mode_goes_on_as_requests_on_the_channel() {
    for ended in [false, true] {
        let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
        let (id, device_channel) = listener(&mut fixture);
        let soon = fixture.within(SOON);
        fixture.submit_until(id, NEXT, soon).unwrap();
        let taken = ended.then(|| fixture.report_request(id));
        fixture.submit(id, to(channel)).unwrap();
        fixture.no_call();
        assert_eq!((fixture.core.sync_result(id), fixture.core.poll_timeout()), (None, None));
        fixture.passes(SOON);
        let child = fixture.report_request(id);
        fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
        fixture.no_event(channel);
        if let Some(taken) = taken {
            assert_eq!(
                fixture.core.channel(taken),
                Some(device_channel),
                "the channel of a delivered request does not change"
            );
            fixture.does(taken, to(channel));
            fixture.does(taken, Request::Destroy);
        }
    }
}

#[test]
fn an_undelivered_request_is_there_for_a_listener_that_becomes_synchronous() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Listening);
    let (first, second) = (fixture.report_request(id), fixture.report_request(id));
    let held = fixture.expect_event(channel, first, cm(CmEvent::ConnectRequest));
    fixture.submit(id, TO_SYNC).unwrap();
    fixture.refuses(id, NEXT, RefuseReason::Busy(RequestKind::Migrate));
    fixture.acks(held);
    fixture.all_well();
    let device_channel = fixture.core.channel(id).unwrap();
    fixture.sees(device_channel, id, EventKind::Migrated);
    fixture.submit(id, NEXT).unwrap();
    assert_eq!(got(&fixture, id), second);
    assert_eq!(fixture.channels_of(second), (Some(device_channel), Some(device_channel)));
}

#[test]
fn the_id_of_a_request_becomes_synchronous_itself_and_goes_elsewhere() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let (id, device_channel) = listener(&mut one);
    one.does(id, NEXT);
    let child = one.report_request(id);
    assert!(!one.is_sync(child));
    assert!(matches!(one.core.release(id), Err(Refused::Request { reason: RefuseReason::SharesChannel, .. })));
    one.does(child, TO_SYNC);
    assert_ne!(one.core.channel(child), Some(device_channel));
    let (released, _) = one.core.release(child).unwrap();
    let (child, _) = two.core.adopt(released).unwrap();
    two.does(child, accept());
    two.report(child, CmEvent::Established);
    assert_eq!(two.core.sync_result(child), Some(Ok(())));
}

#[test]
fn an_open_wait_goes_to_another_core() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let (id, _) = listener(&mut one);
    let soon = one.within(SOON);
    one.submit_until(id, NEXT, soon).unwrap();
    let (released, _) = one.core.release(id).unwrap();
    let (id, _) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!((two.core.sync_result(id), two.core.poll_timeout()), (None, Some((soon, id))));
    let child = two.report_request(id);
    assert_eq!((got(&two, id), two.core.poll_timeout()), (child, None));
}

#[test]
fn a_listener_takes_no_event_of_another_id_to_another_core() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let channel = one.channel(Acks::OnDelivery);
    let (id, device_channel) = listener(&mut one);
    one.does(id, NEXT);
    let child = one.report_request(id);
    one.does(child, to(channel));
    let (released, _) = one.core.release(id).unwrap();
    one.core.check();
    assert!(one.core.channel_info(device_channel).is_none());
    let (id, device_channel) = two.core.adopt(released).unwrap();
    two.core.check();
    assert_eq!((two.core.sync_result(id), two.core.sync_event(id)), (None, None));
    // An undelivered request keeps the listener in this core, even without its device.
    let other = two.report_request(id);
    two.report_on(device_channel, raw(id, CmEvent::DeviceRemoval, 0));
    let door = two.channel(Acks::OnDelivery);
    two.does(other, to(door));
    assert_eq!(two.state(id), State::Removed);
    assert!(matches!(
        two.core.release(id),
        Err(Refused::Request { reason: RefuseReason::Busy(RequestKind::Listen), .. })
    ));
    two.sees(device_channel, other, cm(CmEvent::ConnectRequest));
    let (released, _) = two.core.release(id).unwrap();
    let (id, device_channel) = one.core.adopt(released).unwrap();
    one.sees(device_channel, id, cm(CmEvent::DeviceRemoval));
}

#[test]
fn a_listen_gives_up_the_event_of_the_request_before() {
    let mut fixture = CoreFixture::new();
    let id = fixture.id(None);
    fixture.does(id, RESOLVE);
    assert_eq!(fixture.report_status(id, CmEvent::AddrError, -110), Admission::Known);
    assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
    fixture.does(id, LISTEN);
    assert_eq!((fixture.core.sync_result(id), fixture.core.sync_event(id)), (None, None));
}
