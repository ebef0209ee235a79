//! More requests or events than the application takes: which are read, and which stay in the kernel.

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Errno, EventKind, Fault, IdKey, Limits, PortSpace, RawEvent, RefuseReason, Refused,
    Request, RequestKind, State, Time,
};

use crate::fixture::{CoreFixture, LISTEN, OK, RESOLVE, TO_SYNC, accept, cm, raw, to};

/// A listening id with this backlog, and its channel at the device.
fn listening(fixture: &mut CoreFixture, on: ChannelKey, backlog: i32) -> (IdKey, ChannelKey) {
    let id = fixture.id(Some(on));
    fixture.does(id, Request::Listen { backlog });
    (id, fixture.core.device_channel(id).unwrap())
}

/// Reports requests until the core accepts no more. The invariants are checked once, at the end, because there are
/// many requests.
fn flood(fixture: &mut CoreFixture, listener: IdKey) -> Vec<IdKey> {
    let device_channel = fixture.core.device_channel(listener).unwrap();
    let mut children = Vec::new();
    while let Some(child) = fixture.core.wants_event(device_channel) {
        let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
        fixture.core.handle_event(device_channel, request).unwrap();
        children.push(child);
        assert!(fixture.core.next().is_none());
    }
    fixture.core.check();
    children
}

fn roomy() -> CoreFixture {
    CoreFixture::with(Limits { ids: 4096, channels: 8, events: 4096, groups: 8, ..Limits::LARGE }).reserving(0, 0)
}

#[test]
fn no_more_requests_are_read_than_the_backlog_allows() {
    let max = usize::from(Limits::BACKLOG_MAX);
    for (backlog, expected) in [(1, 1), (8, 8), (1024, max), (0, max), (-1, max), (1025, max), (i32::MAX, max)] {
        let mut fixture = roomy();
        let channel = fixture.channel(Acks::OnDelivery);
        let (listener, device_channel) = listening(&mut fixture, channel, backlog);
        let children = flood(&mut fixture, listener);
        assert_eq!(children.len(), expected, "backlog {backlog}");
        assert_eq!(fixture.core.ids().count(), expected + 1);
        // A delivered request no longer counts against the backlog, answered or not.
        while fixture.core.poll_readable().is_some() {}
        fixture.core.wait_for_room(device_channel);
        assert!(!fixture.core.has_work());
        fixture.sees(channel, children[0], cm(CmEvent::ConnectRequest));
        assert_eq!(fixture.core.poll_readable(), Some(device_channel));
        assert_eq!(flood(&mut fixture, listener).len(), 1);
        fixture.does(children[0], Request::Destroy);
        assert_eq!(fixture.core.wants_event(device_channel), None, "the end of one that was taken makes no room");
    }
}

#[test]
fn a_request_that_is_not_wanted_is_a_fault_and_is_not_taken_in() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (listener, device_channel) = listening(&mut fixture, channel, 1);
    let first = fixture.report_request(listener);
    let child = fixture.core.wants_event(channel).unwrap();
    let before = fixture.core.ids().count();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(fixture.core.handle_event(device_channel, request), Err(Fault::WrongChild { id: child }));
    assert_eq!(fixture.core.handle_event(channel, request), Err(Fault::WrongChild { id: child }));
    assert_eq!((fixture.core.ids().count(), fixture.core.summary().counters.faults), (before, 2));
    fixture.core.check();
    fixture.sees(channel, first, cm(CmEvent::ConnectRequest));
    fixture.stops();
}

#[test]
fn every_listener_has_its_own_backlog() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (one, _) = listening(&mut fixture, channel, 2);
    let (two, device_channel) = listening(&mut fixture, channel, 3);
    assert_eq!(flood(&mut fixture, one).len(), 2);
    assert!(fixture.core.wants_event(device_channel).is_some());
    let children = flood(&mut fixture, two);
    assert_eq!(children.len(), 3);
    // In synchronous mode, too: the request that ends a wait is delivered.
    let mut fixture = CoreFixture::new();
    let (listener, device_channel) =
        (fixture.id(None), |fixture: &CoreFixture, id| fixture.core.device_channel(id).unwrap());
    fixture.does(listener, Request::Listen { backlog: 2 });
    let device_channel = device_channel(&fixture, listener);
    let mut all = flood(&mut fixture, listener);
    assert_eq!(all.len(), 2);
    fixture.submit(listener, Request::GetRequest).unwrap();
    assert!(fixture.core.wants_event(device_channel).is_some());
    all.push(fixture.report_request(listener));
    assert_eq!(fixture.core.wants_event(device_channel), None);
    fixture.does(listener, Request::Destroy);
}

#[test]
fn requests_leave_the_ids_and_events_that_are_reserved() {
    let mut fixture = CoreFixture::with(Limits { ids: 8, events: 8, channels: 8, ..Limits::SINGLE }).reserving(3, 0);
    let channel = fixture.channel(Acks::OnDelivery);
    let (listener, device_channel) = listening(&mut fixture, channel, 100);
    let children = flood(&mut fixture, listener);
    assert_eq!((children.len(), fixture.core.ids().count()), (4, 5));
    for _ in 0..3 {
        fixture.id(Some(channel));
    }
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(channel)), Err(Refused::Full("ids")));
    for child in children {
        fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
    }
    assert_eq!(fixture.core.wants_event(device_channel), None, "the ids are still there");

    let mut fixture = CoreFixture::with(Limits { ids: 64, events: 10, channels: 8, ..Limits::SINGLE }).reserving(0, 5);
    let channel = fixture.channel(Acks::OnDelivery);
    let (listener, device_channel) = listening(&mut fixture, channel, 100);
    let id = fixture.id(Some(channel));
    let children = flood(&mut fixture, listener);
    assert_eq!(children.len(), 5);
    for _ in 0..5 {
        assert!(fixture.core.wants_event(channel).is_some());
        fixture.report(id, CmEvent::AddrChange);
    }
    assert_eq!(fixture.core.wants_event(channel), None);
    for child in &children {
        assert_eq!(fixture.core.wants_event(device_channel), None, "the reserve is in use");
        fixture.sees(channel, *child, cm(CmEvent::ConnectRequest));
    }
    assert_eq!(fixture.core.wants_event(device_channel), None);
    fixture.sees(channel, id, cm(CmEvent::AddrChange));
    assert!(fixture.core.wants_event(device_channel).is_some());

    // A reserve of everything leaves half to requests.
    let mut fixture = CoreFixture::with(Limits { ids: 8, events: 64, channels: 8, ..Limits::SINGLE }).reserving(99, 99);
    let channel = fixture.channel(Acks::OnDelivery);
    let (listener, _) = listening(&mut fixture, channel, 100);
    assert_eq!(flood(&mut fixture, listener).len(), 3);
}

#[test]
fn a_full_channel_stops_only_its_own_reads() {
    let limits = Limits { ids: 16, channels: 8, events: 6, channel_events: 4, ..Limits::SINGLE };
    let mut fixture = CoreFixture::with(limits);
    let channels = [(); 3].map(|()| fixture.channel(Acks::OnDelivery));
    let ids = channels.map(|channel| fixture.id(Some(channel)));
    let fills = |fixture: &mut CoreFixture, which: usize| {
        let mut count = 0;
        while fixture.core.wants_event(channels[which]).is_some() {
            fixture.report(ids[which], CmEvent::AddrChange);
            count += 1;
        }
        count
    };
    assert_eq!(fills(&mut fixture, 0), 4, "its own limit");
    assert_eq!(fills(&mut fixture, 1), 2, "the limit on all");
    assert_eq!(fills(&mut fixture, 2), 1, "one is always read");
    // One event is read at a time.
    for _ in 0..3 {
        fixture.sees(channels[2], ids[2], cm(CmEvent::AddrChange));
        assert_eq!(fills(&mut fixture, 2), 1);
    }
    // Events that migrate with their id make room on the old channel.
    fixture.does(ids[0], to(channels[1]));
    assert!(fixture.core.wants_event(channels[0]).is_some());
    assert_eq!(fixture.core.wants_event(channels[1]), None);
}

#[test]
fn a_paused_channel_is_not_read_until_it_is_resumed() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    fixture.report(id, CmEvent::AddrChange);
    for _ in 0..2 {
        fixture.core.pause_channel(channel).unwrap();
        fixture.core.check();
        assert_eq!(
            (fixture.core.wants_event(channel), fixture.core.channel_info(channel).is_some_and(|it| it.is_paused)),
            (None, true)
        );
    }
    // An event that was read is delivered. A paused channel is not to be read, does not wait for room and is no work.
    fixture.sees(channel, id, cm(CmEvent::AddrChange));
    fixture.core.handle_readable(channel);
    fixture.core.wait_for_room(channel);
    assert!(!fixture.core.has_work());
    fixture.core.resume_channel(channel).unwrap();
    fixture.core.pause_channel(channel).unwrap();
    assert_eq!(fixture.core.poll_readable(), None, "a pause after a report, before the read");
    fixture.core.resume_channel(channel).unwrap();
    assert!(
        !fixture.core.channel_info(channel).is_some_and(|it| it.is_paused)
            && fixture.core.wants_event(channel).is_some()
    );
    assert_eq!(fixture.core.poll_readable(), Some(channel), "events that came meanwhile make no new edge");
    // The same for a listener's own channel.
    let (listener, device_channel) = listening(&mut fixture, channel, 4);
    fixture.core.pause_channel(device_channel).unwrap();
    assert_eq!(fixture.core.wants_event(device_channel), None);
    assert!(fixture.core.wants_event(channel).is_some());
    fixture.core.resume_channel(device_channel).unwrap();
    let child = fixture.report_request(listener);
    fixture.does(listener, Request::Destroy);
    assert_eq!(fixture.core.state(child), None);
    let refused = Refused::NoSuchChannel { channel: device_channel };
    assert_eq!(fixture.core.pause_channel(device_channel), Err(refused));
    assert_eq!(fixture.core.resume_channel(device_channel), Err(refused));
}

#[test]
fn the_ids_of_many_requests_follow_their_listener_without_a_call() {
    let mut fixture = roomy();
    let (here, there) = (fixture.channel(Acks::OnDelivery), fixture.channel(Acks::OnDelivery));
    let (listener, device_channel) = listening(&mut fixture, here, 100);
    let children = flood(&mut fixture, listener);
    assert_eq!(children.len(), 100);
    fixture.submit(listener, to(there)).unwrap();
    fixture.no_call();
    assert_eq!(fixture.next_child(), None);
    fixture.closes(here).unwrap();
    fixture.all_well();
    for child in &children {
        fixture.sees(there, *child, cm(CmEvent::ConnectRequest));
        assert_eq!(
            (fixture.core.device_channel(*child), fixture.core.channel(*child)),
            (Some(device_channel), Some(there))
        );
    }
    fixture.does(listener, Request::Destroy);
}

#[test]
fn a_listener_that_goes_takes_the_ids_of_many_requests_along_a_few_at_a_time() {
    for moves in [false, true] {
        let mut fixture = roomy();
        let (here, there) = (fixture.channel(Acks::OnDelivery), fixture.channel(Acks::OnDelivery));
        let (listener, device_channel) = listening(&mut fixture, here, 100);
        let children = flood(&mut fixture, listener);
        if moves {
            fixture.does(listener, to(there));
        }
        assert_eq!(fixture.makes(listener, Request::Destroy, "destroy_id").unwrap().result, Ok(()));
        assert_eq!((fixture.core.state(listener), fixture.core.ids().count()), (None, 100));
        // Four more follow at once.
        for child in &children[..4] {
            assert_eq!(fixture.takes_call("destroy_id").id(), Some(*child));
            assert_eq!(fixture.answers(OK), None);
        }
        for child in &children[4..] {
            fixture.no_call();
            assert!(fixture.core.has_work() && fixture.core.channel_info(device_channel).is_some());
            assert_eq!(fixture.next_child(), Some(*child));
            assert_eq!(fixture.expect_call("destroy_id", OK), None);
            assert_eq!(fixture.core.state(*child), None);
        }
        assert_eq!((fixture.next_child(), fixture.core.ids().count()), (None, 0));
        fixture.expect_call("destroy_event_channel", OK);
        assert!(fixture.core.channel_info(device_channel).is_none());
    }
}

/// The listener's channel is full and not read. Events of its children are reported on another channel.
#[test]
fn events_of_accepted_ids_do_not_wait_for_requests() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (listener, device_channel) = listening(&mut fixture, channel, 1);
    let child = fixture.report_request(listener);
    fixture.sees(channel, child, cm(CmEvent::ConnectRequest));
    fixture.does(child, accept());
    flood(&mut fixture, listener);
    assert_eq!(fixture.core.wants_event(device_channel), None);
    assert_ne!(fixture.core.device_channel(child), Some(device_channel));
    for kind in [CmEvent::Established, CmEvent::Disconnected] {
        assert!(fixture.core.wants_event(fixture.core.device_channel(child).unwrap()).is_some());
        assert!(fixture.core.handle_event(fixture.core.device_channel(child).unwrap(), raw(child, kind, 0)).is_ok());
    }
    assert_eq!(fixture.state(child), State::PeerClosed);
}

/// In synchronous mode, and in a core that adopted the listener, requests are delivered on the listener's own
/// channel.
#[test]
fn an_id_leaves_its_listeners_channel_before_it_is_accepted() {
    let (mut one, mut two) = (CoreFixture::new(), CoreFixture::new());
    let listener = one.id(None);
    one.does(listener, LISTEN);
    let (released, _) = one.core.release(listener).unwrap();
    let (listener, device_channel) = two.core.adopt(released).unwrap();
    let channel = two.channel(Acks::OnDelivery);
    let children = [two.report_request(listener), two.report_request(listener)];
    for child in children {
        two.submit(listener, Request::GetRequest).unwrap();
        assert_eq!(two.core.device_channel(child), Some(device_channel));
        assert_eq!(two.refuses(child, accept(), RefuseReason::OnListenersChannel).errno(), Errno::EBUSY);
    }
    two.does(children[0], to(channel));
    two.does(children[1], TO_SYNC);
    for child in children {
        two.does(child, accept());
        assert_ne!(two.core.device_channel(child), Some(device_channel));
    }
    // A rejection needs no migration, because no event follows it.
    let other = two.report_request(listener);
    two.submit(listener, Request::GetRequest).unwrap();
    two.does(other, crate::fixture::REJECT);
    assert_eq!(flood(&mut two, listener).len(), 8);
    two.report_and_take(children[0], CmEvent::Established);
}

#[test]
fn a_channel_whose_reads_fail_again_and_again_fails_and_its_ids_live_on() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (busy, idle) = (fixture.id(Some(channel)), fixture.id(Some(channel)));
    fixture.does(busy, RESOLVE);
    for _ in 1..Limits::READ_FAILURES_MAX {
        assert!(fixture.core.handle_unreadable(channel));
        assert_eq!(fixture.core.poll_readable(), Some(channel), "it is tried again");
        fixture.core.check();
    }
    // An event between two failed reads resets the count.
    let mut other = fixture.clone();
    other.report_and_take(busy, CmEvent::AddrChange);
    assert!(other.core.handle_unreadable(channel));
    let activity = fixture.core.activity();
    assert!(!fixture.core.handle_unreadable(channel));
    fixture.core.check();
    assert!(fixture.core.activity() > activity && fixture.core.channel_info(channel).is_some_and(|it| it.has_failed));
    assert_eq!((fixture.core.wants_event(channel), fixture.core.poll_readable()), (None, None));
    assert!(!fixture.core.handle_unreadable(channel), "it stays so");
    // A request that waits for an event of the channel ends. A new one is refused.
    assert_eq!(fixture.core.poll_timeout(), Some((Time::ZERO, busy)));
    fixture.passes(std::time::Duration::ZERO);
    fixture.sees(channel, busy, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    assert_eq!(fixture.refuses(idle, RESOLVE, RefuseReason::ChannelFailed(channel)).errno(), Errno::EIO);
    let refused = fixture.creates(PortSpace::Tcp, Some(channel)).unwrap_err();
    assert_eq!((refused, refused.errno()), (Refused::ChannelFailed { channel }, Errno::EIO));
    let spare = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(spare));
    fixture.refuses(id, to(channel), RefuseReason::ChannelFailed(channel));
    // The ids can be destroyed, or migrated to a channel that is read.
    fixture.does(busy, Request::Destroy);
    fixture.does(idle, to(spare));
    fixture.does(idle, RESOLVE);
    fixture.report_and_take(idle, CmEvent::AddrResolved);
    // The channel can be read again.
    fixture.core.resume_channel(channel).unwrap();
    assert!(std::iter::from_fn(|| fixture.core.poll_readable()).any(|read| read == channel));
    assert!(fixture.core.wants_event(channel).is_some());
}

#[test]
fn what_waits_on_a_failed_channel_in_synchronous_mode_or_for_a_group_ends() {
    let mut fixture = CoreFixture::new();
    let channel = fixture.channel(Acks::OnDelivery);
    let (sync, listener) = (fixture.id(None), fixture.id(None));
    fixture.does(sync, RESOLVE);
    fixture.does(listener, LISTEN);
    fixture.submit(listener, Request::GetRequest).unwrap();
    let member = fixture.id_for(PortSpace::Udp, Some(channel));
    fixture.does(member, RESOLVE);
    fixture.report_and_take(member, CmEvent::AddrResolved);
    let group = fixture.joins(member, "239.1.1.1:7471".parse().unwrap(), false, Time::NEVER).unwrap();
    fixture.all_well();
    for failed in
        [fixture.core.device_channel(sync), fixture.core.device_channel(listener), Some(channel)].into_iter().flatten()
    {
        while fixture.core.handle_unreadable(failed) {}
        fixture.core.check();
    }
    fixture.passes(std::time::Duration::ZERO);
    for id in [sync, listener] {
        assert_eq!(fixture.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
    }
    let event = fixture.expect_event(channel, member, EventKind::DeadlinePassed(RequestKind::Join));
    assert_eq!(event.group, Some(group));
    fixture.refuses(
        listener,
        Request::GetRequest,
        RefuseReason::ChannelFailed(fixture.core.device_channel(listener).unwrap()),
    );
    assert_eq!(fixture.core.poll_timeout(), None);
}
