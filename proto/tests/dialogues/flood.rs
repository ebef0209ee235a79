//! More requests, or more events, than the application takes: what is read, and what stays in the kernel.

use cmid_proto::{
    Acks, BACKLOG_MAX, Call, ChannelKey, CmEvent, Errno, Fault, IdKey, Limits, PortSpace, RawEvent, Refused, Request,
    State, Time, Why,
};

use crate::fixture::{LISTEN, OK, RESOLVE, Stage, TO_SYNC, accept, cm, raw, to};

/// An id that listens with this backlog, and its channel at the device.
fn listening(stage: &mut Stage, on: ChannelKey, backlog: i32) -> (IdKey, ChannelKey) {
    let id = stage.id(Some(on));
    stage.does(id, Request::Listen { backlog });
    (id, stage.core.line(id).unwrap())
}

/// Requests are read until the core wants no more. The invariants are checked once: they are many.
fn flood(stage: &mut Stage, listener: IdKey) -> Vec<IdKey> {
    let line = stage.core.line(listener).unwrap();
    let mut children = Vec::new();
    while let Some(child) = stage.core.wants_event(line) {
        let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
        stage.core.handle_event(line, request).unwrap();
        children.push(child);
        while let Some((token, _)) = stage.core.poll_call() {
            stage.core.handle_outcome(token, OK).unwrap();
        }
    }
    stage.core.check();
    children
}

fn roomy() -> Stage {
    Stage::with(Limits { ids: 4096, channels: 8, events: 4096, groups: 8, ..Limits::LARGE }).reserving(0, 0)
}

#[test]
fn no_more_requests_are_read_than_the_backlog_allows() {
    let max = usize::from(BACKLOG_MAX);
    for (backlog, expected) in [(1, 1), (8, 8), (1024, max), (0, max), (-1, max), (1025, max), (i32::MAX, max)] {
        let mut stage = roomy();
        let channel = stage.channel(Acks::OnDelivery);
        let (listener, line) = listening(&mut stage, channel, backlog);
        let children = flood(&mut stage, listener);
        assert_eq!(children.len(), expected, "backlog {backlog}");
        assert_eq!(stage.core.ids(), expected + 1);
        // One that is delivered counts no longer, answered or not.
        stage.core.wait_for_room(line);
        while stage.core.poll_readable().is_some_and(|read| read != line) {}
        assert!(!stage.core.has_work());
        stage.sees(channel, children[0], cm(CmEvent::ConnectRequest));
        assert_eq!(stage.core.poll_readable(), Some(line));
        assert_eq!(flood(&mut stage, listener).len(), 1);
        stage.does(children[0], Request::Destroy);
        assert_eq!(stage.core.wants_event(line), None, "the end of one that was taken makes no room");
    }
}

#[test]
fn a_request_that_is_not_wanted_is_a_fault_and_is_not_taken_in() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (listener, line) = listening(&mut stage, channel, 1);
    let first = stage.says_request(listener);
    let child = stage.core.wants_event(channel).unwrap();
    let before = stage.core.ids();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    assert_eq!(stage.core.handle_event(line, request), Err(Fault::WrongChild { id: child }));
    assert_eq!(stage.core.handle_event(channel, request), Err(Fault::WrongChild { id: child }));
    assert_eq!((stage.core.ids(), stage.core.counters().faults), (before, 2));
    stage.core.check();
    stage.sees(channel, first, cm(CmEvent::ConnectRequest));
}

#[test]
fn every_listener_has_its_own_backlog() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (one, _) = listening(&mut stage, channel, 2);
    let (two, line) = listening(&mut stage, channel, 3);
    assert_eq!(flood(&mut stage, one).len(), 2);
    assert!(stage.core.wants_event(line).is_some());
    let children = flood(&mut stage, two);
    assert_eq!(children.len(), 3);
    // In synchronous mode, too: the request that ends a wait is delivered.
    let mut stage = Stage::new();
    let (listener, line) = (stage.id(None), |stage: &Stage, id| stage.core.line(id).unwrap());
    stage.does(listener, Request::Listen { backlog: 2 });
    let line = line(&stage, listener);
    let mut all = flood(&mut stage, listener);
    assert_eq!(all.len(), 2);
    stage.asks(listener, Request::GetRequest).unwrap();
    assert!(stage.core.wants_event(line).is_some());
    all.push(stage.says_request(listener));
    assert_eq!(stage.core.wants_event(line), None);
    stage.does(listener, Request::Destroy);
    stage.ends(&all[..1], &[]);
}

#[test]
fn requests_leave_the_ids_and_events_that_are_reserved() {
    let mut stage = Stage::with(Limits { ids: 8, events: 8, channels: 8, ..Limits::SINGLE }).reserving(3, 0);
    let channel = stage.channel(Acks::OnDelivery);
    let (listener, line) = listening(&mut stage, channel, 100);
    let children = flood(&mut stage, listener);
    assert_eq!((children.len(), stage.core.ids()), (4, 5));
    for _ in 0..3 {
        stage.id(Some(channel));
    }
    assert_eq!(stage.core.create_id(Some(channel), PortSpace::Tcp), Err(Refused::Full("ids")));
    for child in children {
        stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    }
    assert_eq!(stage.core.wants_event(line), None, "the ids are still there");

    let mut stage = Stage::with(Limits { ids: 64, events: 10, channels: 8, ..Limits::SINGLE }).reserving(0, 5);
    let channel = stage.channel(Acks::OnDelivery);
    let (listener, line) = listening(&mut stage, channel, 100);
    let id = stage.id(Some(channel));
    let children = flood(&mut stage, listener);
    assert_eq!(children.len(), 5);
    for _ in 0..5 {
        assert!(stage.core.wants_event(channel).is_some());
        stage.says(id, CmEvent::AddrChange);
    }
    assert_eq!(stage.core.wants_event(channel), None);
    for child in &children {
        assert_eq!(stage.core.wants_event(line), None, "the reserve is in use");
        stage.sees(channel, *child, cm(CmEvent::ConnectRequest));
    }
    assert_eq!(stage.core.wants_event(line), None);
    stage.sees(channel, id, cm(CmEvent::AddrChange));
    assert!(stage.core.wants_event(line).is_some());

    // A reserve of all leaves half to requests.
    let mut stage = Stage::with(Limits { ids: 8, events: 64, channels: 8, ..Limits::SINGLE }).reserving(99, 99);
    let channel = stage.channel(Acks::OnDelivery);
    let (listener, _) = listening(&mut stage, channel, 100);
    assert_eq!(flood(&mut stage, listener).len(), 3);
}

#[test]
fn a_full_channel_stops_only_its_own_reads() {
    let limits = Limits { ids: 16, channels: 8, events: 6, channel_events: 4, ..Limits::SINGLE };
    let mut stage = Stage::with(limits);
    let channels = [(); 3].map(|()| stage.channel(Acks::OnDelivery));
    let ids = channels.map(|channel| stage.id(Some(channel)));
    let fills = |stage: &mut Stage, which: usize| {
        let mut count = 0;
        while stage.core.wants_event(channels[which]).is_some() {
            stage.says(ids[which], CmEvent::AddrChange);
            count += 1;
        }
        count
    };
    assert_eq!(fills(&mut stage, 0), 4, "its own limit");
    assert_eq!(fills(&mut stage, 1), 2, "the limit on all");
    assert_eq!(fills(&mut stage, 2), 1, "one is always read");
    // One after the other.
    for _ in 0..3 {
        stage.sees(channels[2], ids[2], cm(CmEvent::AddrChange));
        assert_eq!(fills(&mut stage, 2), 1);
    }
    // What moves away with its id makes room on the channel.
    stage.does(ids[0], to(channels[1]));
    assert!(stage.core.wants_event(channels[0]).is_some());
    assert_eq!(stage.core.wants_event(channels[1]), None);
}

#[test]
fn a_paused_channel_is_not_read_until_it_is_resumed() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.says(id, CmEvent::AddrChange);
    for _ in 0..2 {
        stage.core.pause_channel(channel).unwrap();
        stage.core.check();
        assert_eq!((stage.core.wants_event(channel), stage.core.is_paused(channel)), (None, true));
    }
    // What was read is delivered; it does not wait for room, and is no work.
    stage.sees(channel, id, cm(CmEvent::AddrChange));
    stage.core.handle_readable(channel);
    assert_eq!(stage.core.poll_readable(), Some(channel));
    stage.core.wait_for_room(channel);
    assert!(!stage.core.has_work());
    stage.core.resume_channel(channel).unwrap();
    assert!(!stage.core.is_paused(channel) && stage.core.wants_event(channel).is_some());
    assert_eq!(stage.core.poll_readable(), Some(channel), "what came meanwhile makes no new edge");
    // A listener's own.
    let (listener, line) = listening(&mut stage, channel, 4);
    stage.core.pause_channel(line).unwrap();
    assert_eq!(stage.core.wants_event(line), None);
    assert!(stage.core.wants_event(channel).is_some());
    stage.core.resume_channel(line).unwrap();
    let child = stage.says_request(listener);
    stage.does(listener, Request::Destroy);
    assert_eq!(stage.core.state(child), None);
    let refused = Refused::NoSuchChannel { channel: line };
    assert_eq!(stage.core.pause_channel(line), Err(refused));
    assert_eq!(stage.core.resume_channel(line), Err(refused));
    stage.ends(&[id], &[channel]);
}

#[test]
fn the_ids_of_many_requests_follow_their_listener_without_a_call() {
    let mut stage = roomy();
    let (here, there) = (stage.channel(Acks::OnDelivery), stage.channel(Acks::OnDelivery));
    let (listener, line) = listening(&mut stage, here, 100);
    let children = flood(&mut stage, listener);
    assert_eq!(children.len(), 100);
    stage.asks(listener, to(there)).unwrap();
    stage.no_call();
    assert_eq!(stage.core.poll_child(), None);
    stage.core.close_channel(here).unwrap();
    stage.all_well();
    for child in &children {
        stage.sees(there, *child, cm(CmEvent::ConnectRequest));
        assert_eq!((stage.core.line(*child), stage.core.home(*child)), (Some(line), Some(there)));
    }
    stage.does(listener, Request::Destroy);
    stage.ends(&children, &[there]);
}

#[test]
fn a_listener_that_goes_takes_the_ids_of_many_requests_along_a_few_at_a_time() {
    for moves in [false, true] {
        let mut stage = roomy();
        let (here, there) = (stage.channel(Acks::OnDelivery), stage.channel(Acks::OnDelivery));
        let (listener, line) = listening(&mut stage, here, 100);
        let children = flood(&mut stage, listener);
        if moves {
            stage.does(listener, to(there));
        }
        stage.asks(listener, Request::Destroy).unwrap();
        let mut gone = 0;
        while let Some((token, call)) = stage.core.poll_call() {
            assert_eq!(call.name(), "destroy_id");
            stage.answers(token, OK);
            gone += 1;
        }
        assert_eq!(gone, 5, "the listener and four more in one turn");
        for child in &children[4..] {
            assert!(stage.core.has_work() && stage.core.has_channel(line));
            assert_eq!(stage.core.poll_child(), Some(*child));
            stage.core.check();
            stage.expect_call("destroy_id", OK);
            assert_eq!(stage.core.state(*child), None);
        }
        assert_eq!((stage.core.poll_child(), stage.core.ids()), (None, 0));
        stage.expect_call("destroy_event_channel", OK);
        assert!(!stage.core.has_channel(line));
        stage.ends(&[], &[here, there]);
    }
}

/// The listener's channel is full and not read; what its children do is reported elsewhere.
#[test]
fn events_of_accepted_ids_do_not_wait_for_requests() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (listener, line) = listening(&mut stage, channel, 1);
    let child = stage.says_request(listener);
    stage.sees(channel, child, cm(CmEvent::ConnectRequest));
    stage.does(child, accept());
    flood(&mut stage, listener);
    assert_eq!(stage.core.wants_event(line), None);
    assert_ne!(stage.core.line(child), Some(line));
    for kind in [CmEvent::Established, CmEvent::Disconnected] {
        assert!(stage.core.wants_event(stage.core.line(child).unwrap()).is_some());
        assert!(stage.core.handle_event(stage.core.line(child).unwrap(), raw(child, kind, 0)).is_ok());
    }
    assert_eq!(stage.state(child), State::PeerClosed);
}

/// In synchronous mode, and in another core that adopted the listener, requests are delivered on its own channel.
#[test]
fn an_id_leaves_its_listeners_channel_before_it_is_accepted() {
    let (mut one, mut two) = (Stage::new(), Stage::new());
    let listener = one.id(None);
    one.does(listener, LISTEN);
    let (released, _) = one.core.release(listener).unwrap();
    let (listener, line) = two.core.adopt(released).unwrap();
    let channel = two.channel(Acks::OnDelivery);
    let children = [two.says_request(listener), two.says_request(listener)];
    for child in children {
        two.asks(listener, Request::GetRequest).unwrap();
        assert_eq!(two.core.line(child), Some(line));
        assert_eq!(two.refuses(child, accept(), Why::OnListenersChannel).errno(), Errno::EBUSY);
    }
    two.does(children[0], to(channel));
    two.does(children[1], TO_SYNC);
    for child in children {
        two.does(child, accept());
        assert_ne!(two.core.line(child), Some(line));
    }
    // A rejection is reported by no event.
    let other = two.says_request(listener);
    two.asks(listener, Request::GetRequest).unwrap();
    two.does(other, crate::fixture::REJECT);
    assert_eq!(flood(&mut two, listener).len(), 8);
    two.tells(children[0], CmEvent::Established);
}

#[test]
fn a_channel_whose_reads_fail_again_and_again_fails_and_its_ids_live_on() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (busy, idle) = (stage.id(Some(channel)), stage.id(Some(channel)));
    stage.does(busy, RESOLVE);
    for _ in 1..cmid_proto::READ_FAILURES_MAX {
        assert!(stage.core.handle_unreadable(channel));
        assert_eq!(stage.core.poll_readable(), Some(channel), "it is tried again");
        stage.core.check();
    }
    // An event in between ends the row.
    let mut other = stage.clone();
    other.tells(busy, CmEvent::AddrChange);
    assert!(other.core.handle_unreadable(channel));
    let news = stage.core.news();
    assert!(!stage.core.handle_unreadable(channel));
    stage.core.check();
    assert!(stage.core.news() > news && stage.core.has_failed(channel));
    assert_eq!((stage.core.wants_event(channel), stage.core.poll_readable()), (None, None));
    assert!(!stage.core.handle_unreadable(channel), "it stays so");
    // What waits for an event that cannot come ends; what would wait for one is refused.
    assert_eq!(stage.core.poll_timeout(), Some((Time::ZERO, busy)));
    stage.passes(std::time::Duration::ZERO);
    stage.sees(channel, busy, cmid_proto::EventKind::DeadlinePassed(cmid_proto::Verb::ResolveAddr));
    assert_eq!(stage.refuses(idle, RESOLVE, Why::ChannelFailed(channel)).errno(), Errno::EIO);
    let refused = stage.core.create_id(Some(channel), PortSpace::Tcp).unwrap_err();
    assert_eq!((refused, refused.errno()), (Refused::ChannelFailed { channel }, Errno::EIO));
    let spare = stage.channel(Acks::OnDelivery);
    let id = stage.id(Some(spare));
    stage.refuses(id, to(channel), Why::ChannelFailed(channel));
    // They can be destroyed, or moved to where they are heard of again.
    stage.does(busy, Request::Destroy);
    stage.does(idle, to(spare));
    stage.does(idle, RESOLVE);
    stage.tells(idle, CmEvent::AddrResolved);
    // And the channel can be tried again.
    stage.core.resume_channel(channel).unwrap();
    assert!(std::iter::from_fn(|| stage.core.poll_readable()).any(|read| read == channel));
    assert!(stage.core.wants_event(channel).is_some());
    stage.ends(&[id, idle], &[channel, spare]);
}

#[test]
fn what_waits_on_a_failed_channel_in_synchronous_mode_or_for_a_group_ends() {
    let mut stage = Stage::new();
    let channel = stage.channel(Acks::OnDelivery);
    let (sync, listener) = (stage.id(None), stage.id(None));
    stage.does(sync, RESOLVE);
    stage.does(listener, LISTEN);
    stage.asks(listener, Request::GetRequest).unwrap();
    let member = stage.id_for(PortSpace::Udp, Some(channel));
    stage.does(member, RESOLVE);
    stage.tells(member, CmEvent::AddrResolved);
    let group = stage.core.join(stage.now, member, "239.1.1.1:7471".parse().unwrap(), false, Time::NEVER).unwrap();
    stage.all_well();
    for failed in [stage.core.line(sync), stage.core.line(listener), Some(channel)].into_iter().flatten() {
        while stage.core.handle_unreadable(failed) {}
        stage.core.check();
    }
    stage.passes(std::time::Duration::ZERO);
    for id in [sync, listener] {
        assert_eq!(stage.core.sync_result(id), Some(Err(Errno::ETIMEDOUT)));
    }
    let told = stage.expect_event(channel, member, cmid_proto::EventKind::DeadlinePassed(cmid_proto::Verb::Join));
    assert_eq!(told.group, Some(group));
    stage.refuses(listener, Request::GetRequest, Why::ChannelFailed(stage.core.line(listener).unwrap()));
    assert_eq!(stage.core.poll_timeout(), None);
}

/// A request that is reported before a listen fails leaves an id on the channel of the one that was to listen.
#[test]
fn an_id_does_not_listen_again_while_accepted_ids_are_on_its_channel() {
    let (mut stage, _) = Stage::on(Acks::OnDelivery);
    let id = stage.id(None);
    stage.asks(id, LISTEN).unwrap();
    let (token, _) = stage.core.poll_call().unwrap();
    let line = stage.core.line(id).unwrap();
    let child = stage.core.wants_event(line).unwrap();
    let request = RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) };
    stage.core.handle_event(line, request).unwrap();
    stage.answers(token, Err(Errno::ENODEV));
    // Of one that is not accepted there are no events.
    let mut other = stage.clone();
    other.does(id, LISTEN);
    other.refuses(child, accept(), Why::OnListenersChannel);
    stage.does(child, accept());
    stage.refuses(id, LISTEN, Why::SharesChannel);
    stage.does(child, Request::Destroy);
    stage.does(id, LISTEN);
}

/// Requests that are reported before a listen fails count against the backlog of the next one.
#[test]
fn an_id_does_not_listen_again_with_more_untaken_requests_than_the_backlog_allows() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, Request::Listen { backlog: 2 }).unwrap();
    let (token, _) = stage.core.poll_call().unwrap();
    let children = [(); 2].map(|()| stage.says_request(id));
    stage.answers(token, Err(Errno::ENOMEM));
    let again = Request::Listen { backlog: 1 };
    stage.refuses(id, again, Why::Busy(cmid_proto::Verb::Listen));
    stage.sees(channel, children[0], cm(CmEvent::ConnectRequest));
    stage.does(id, again);
}

/// The channel on which a listen failed is no listener's when the id listens on another one.
#[test]
fn the_channel_of_a_listen_that_failed_has_no_listener() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(None);
    stage.asks(id, LISTEN).unwrap();
    let (token, _) = stage.core.poll_call().unwrap();
    let line = stage.core.line(id).unwrap();
    let child = stage.says_request(id);
    stage.answers(token, Err(Errno::ENOMEM));
    stage.does(child, accept());
    stage.does(id, to(channel));
    stage.does(id, LISTEN);
    assert_eq!((stage.core.line(child), stage.core.state(child)), (Some(line), Some(State::Accepting)));
    stage.tells(child, CmEvent::Established);
}

/// The id of a request that is reported before the device listens is answered on another channel, as that of any request.
#[test]
fn a_channel_has_a_listener_from_when_it_is_opened_for_one() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.asks(id, LISTEN).unwrap();
    let (open, call) = stage.takes_call("create_event_channel");
    let Call::OpenChannel { channel: line } = call else { panic!("{call:?}") };
    stage.answers(open, OK);
    let (migrate, _) = stage.takes_call("migrate_id");
    let child = stage.core.wants_event(line).unwrap();
    stage.says_on(line, RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) });
    for makes in [false, true] {
        let mut stage = stage.clone();
        if makes {
            stage.answers(migrate, OK);
            stage.all_well();
        }
        stage.asks(child, accept()).unwrap();
        let (_, call) = stage.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: line, to: channel });
    }
}
