//! The id of a request is on its listener's channel at the device until it is accepted or migrated.

use std::time::Duration;

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, Errno, EventKind, IdKey, PortSpace, Refused, Request, State, Verb, Why,
};

use crate::fixture::{LISTEN, OK, REJECT, Stage, TO_SYNC, accept, cm, raw, to};

const SOON: Duration = Duration::from_millis(2);

/// A listener, its channel at the device, and a request that was taken and acked; no channel is to be read.
fn asked(stage: &mut Stage, space: PortSpace, here: ChannelKey) -> (IdKey, ChannelKey, IdKey) {
    let listener = stage.id_for(space, Some(here));
    stage.does(listener, LISTEN);
    let line = stage.core.line(listener).unwrap();
    let child = stage.says_request(listener);
    stage.sees(here, child, cm(CmEvent::ConnectRequest));
    while stage.core.poll_readable().is_some() {}
    assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(here), Some(line)));
    (listener, line, child)
}

const SPACES: [(PortSpace, State, State); 2] =
    [(PortSpace::Tcp, State::Requested, State::Accepting), (PortSpace::Udp, State::Asked, State::Answered)];

#[test]
fn an_accept_migrates_the_id_of_the_request_and_then_accepts_and_nothing_is_read() {
    for (space, _, accepted) in SPACES {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let (listener, line, child) = asked(&mut stage, space, here);
        let soon = stage.within(SOON);
        stage.asks_until(child, accept(), soon).unwrap();
        assert_eq!(stage.state(child), accepted);
        stage.refuses(child, REJECT, if space == PortSpace::Tcp { Why::Stalls } else { Why::WrongState });
        stage.refuses(
            child,
            Request::DetachQp,
            if space == PortSpace::Tcp { Why::WrongState } else { Why::Busy(Verb::Accept) },
        );
        let (token, call) = stage.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: line, to: here });
        assert_eq!(stage.core.call_data(token), b"");
        stage.no_call();
        assert_eq!(stage.answers(token, OK), None, "the request goes on");
        assert_eq!(stage.core.line(child), Some(here));
        let (token, call) = stage.takes_call("accept");
        let Request::Accept { param, private_data } = accept() else { panic!("no accept") };
        assert_eq!((call, stage.core.call_data(token)), (Call::Accept { id: child, param }, private_data));
        assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
        assert_eq!(stage.core.poll_readable(), None);
        let waits = space == PortSpace::Tcp;
        assert_eq!(stage.core.poll_timeout(), waits.then_some((soon, child)));
        if waits {
            stage.tells(child, CmEvent::Established);
        }
        stage.ends(&[child, listener], &[here]);
    }
}

#[test]
fn the_id_of_a_request_that_is_rejected_or_destroyed_is_not_migrated() {
    for (space, ..) in SPACES {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let (listener, _, child) = asked(&mut stage, space, here);
        stage.asks(child, REJECT).unwrap();
        stage.expect_call("reject", OK);
        stage.no_call();
        stage.asks(child, Request::Destroy).unwrap();
        stage.expect_call("destroy_id", OK);
        let other = stage.says_request(listener);
        stage.asks(other, Request::Destroy).unwrap();
        stage.expect_call("destroy_id", OK);
        stage.no_call();
        stage.ends(&[listener], &[here]);
    }
}

#[test]
fn the_id_of_a_request_that_is_migrated_leaves_its_listeners_channel_and_nothing_is_read() {
    for (space, ..) in SPACES {
        for other in [Acks::Explicit, Acks::OnDelivery] {
            let (mut stage, here) = Stage::on(Acks::Explicit);
            let there = stage.channel(other);
            let (listener, line, child) = asked(&mut stage, space, here);
            for target in [here, there] {
                let mut stage = stage.clone();
                stage.asks(child, to(target)).unwrap();
                let (token, call) = stage.takes_call("migrate_id");
                assert_eq!(call, Call::Migrate { id: child, from: line, to: target });
                assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
                assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(target), Some(target)));
                assert_eq!(stage.core.poll_readable(), None);
                stage.asks(child, accept()).unwrap();
                stage.expect_call("accept", OK);
                assert_eq!(stage.core.poll_readable(), None);
                stage.ends(&[child, listener], &[here, there]);
            }
            stage.asks(child, TO_SYNC).unwrap();
            stage.expect_call("create_event_channel", OK);
            stage.expect_call("migrate_id", OK);
            assert!(stage.core.is_sync(child));
            assert_eq!(stage.core.poll_readable(), None);
            stage.asks(child, accept()).unwrap();
            stage.expect_call("accept", OK);
            stage.ends(&[child, listener], &[here, there]);
        }
    }
}

/// What was accepted may have events pending when it is migrated.
#[test]
fn an_accepted_id_that_is_migrated_has_its_new_channel_read() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let (listener, _, child) = asked(&mut stage, PortSpace::Tcp, here);
    stage.does(child, accept());
    stage.does(child, to(there));
    assert_eq!(stage.core.poll_readable(), Some(there));
    stage.ends(&[child, listener], &[here, there]);
}

#[test]
fn an_accept_whose_migration_fails_leaves_the_request_to_be_accepted_again() {
    for (space, before, accepted) in SPACES {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let (listener, line, child) = asked(&mut stage, space, here);
        let soon = stage.within(SOON);
        stage.asks_until(child, accept(), soon).unwrap();
        let failure = stage.expect_call("migrate_id", Err(Errno::ENOMEM)).unwrap().result.unwrap_err();
        assert_eq!((failure.call, failure.state, failure.errno), ("migrate_id", before, Errno::ENOMEM));
        assert_eq!((stage.state(child), stage.core.line(child)), (before, Some(line)));
        assert_eq!((stage.core.poll_timeout(), stage.core.poll_call()), (None, None));
        stage.does(child, accept());
        assert_eq!((stage.state(child), stage.core.line(child)), (accepted, Some(here)));
        stage.ends(&[child, listener], &[here]);
    }
}

#[test]
fn an_accept_that_fails_after_the_migration_has_rejected_the_peer() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let (listener, line, child) = asked(&mut stage, PortSpace::Tcp, here);
    stage.asks(child, accept()).unwrap();
    stage.expect_call("migrate_id", OK);
    let failure = stage.expect_call("accept", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state), ("accept", State::Failed));
    assert_ne!(stage.core.line(child), Some(line));
    stage.ends(&[child, listener], &[here]);
}

#[test]
fn a_deadline_or_a_destroy_in_the_middle_of_an_accept_makes_no_second_call() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let (listener, line, child) = asked(&mut stage, PortSpace::Tcp, here);
        let soon = stage.within(SOON);
        stage.asks_until(child, accept(), soon).unwrap();
        let (token, _) = stage.takes_call("migrate_id");
        let mut other = stage.clone();
        stage.passes(SOON);
        assert_eq!(stage.state(child), State::Failed);
        stage.no_event(here);
        // The deadline is the end of it, as of an accept that the device makes.
        assert_eq!(stage.answers(token, outcome).unwrap().result, Ok(()));
        stage.no_call();
        stage.sees(here, child, EventKind::DeadlinePassed(Verb::Accept));
        assert_eq!(stage.core.line(child), Some(if outcome.is_ok() { here } else { line }));
        stage.ends(&[child, listener], &[here]);

        other.asks(child, Request::Destroy).unwrap();
        assert_eq!(other.answers(token, outcome), None);
        assert_eq!(other.expect_call("destroy_id", OK), None);
        other.no_call();
        other.sees(here, child, EventKind::Destroyed);
        other.ends(&[listener], &[here]);
    }
}

/// The kernel reports nothing of an id that is not accepted; a device may. It has not been asked to accept yet.
#[test]
fn an_event_in_the_middle_of_an_accept_is_taken_as_before_it() {
    for (space, before, accepted) in SPACES {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let (listener, line, child) = asked(&mut stage, space, here);
        stage.asks(child, accept()).unwrap();
        let (token, _) = stage.takes_call("migrate_id");
        assert_eq!(stage.says_on(line, raw(child, CmEvent::Established, 0)), Admission::Late);
        assert_eq!(stage.says_on(line, raw(child, CmEvent::AddrChange, 0)), Admission::Known);
        assert_eq!(stage.state(child), accepted);
        stage.no_event(here);
        let mut gone = stage.clone();
        stage.answers(token, OK);
        stage.expect_call("accept", OK);
        stage.sees(here, child, cm(CmEvent::AddrChange));
        stage.ends(&[child, listener], &[here]);

        assert_eq!(gone.says_on(line, raw(child, CmEvent::DeviceRemoval, 0)), Admission::Known);
        let ended = gone.answers(token, Err(Errno::ENXIO)).unwrap();
        match ended.result {
            // The removal is the end of it.
            Ok(()) => assert_eq!(before, State::Requested),
            Err(failure) => {
                assert_eq!((before, failure.call, failure.errno), (State::Asked, "migrate_id", Errno::ENXIO))
            }
        }
        gone.sees(here, child, cm(CmEvent::AddrChange));
        gone.sees(here, child, cm(CmEvent::DeviceRemoval));
        gone.ends(&[child, listener], &[here]);
    }
}

#[test]
fn a_lookup_whose_device_goes_in_the_middle_of_its_answer_fails_although_it_was_moved() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let (listener, line, child) = asked(&mut stage, PortSpace::Udp, here);
    stage.asks(child, accept()).unwrap();
    let (token, _) = stage.takes_call("migrate_id");
    stage.says_on(line, raw(child, CmEvent::DeviceRemoval, 0));
    let failure = stage.answers(token, OK).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.state, failure.errno), ("accept", State::Removed, Errno::ENODEV));
    stage.no_call();
    assert_eq!(stage.core.line(child), Some(here));
    stage.ends(&[child, listener], &[here]);
}

/// The ack of a CONNECT_REQUEST is owed for the listener; an event of the id's own holds the accept up.
#[test]
fn an_accept_does_not_wait_for_the_ack_of_the_request() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let listener = stage.in_state(here, State::Listening);
    let child = stage.says_request(listener);
    let request = stage.expect_event(here, child, cm(CmEvent::ConnectRequest));
    assert_eq!((stage.core.owed(listener), stage.core.owed(child)), (1, 0));
    let mut other = stage.clone();
    stage.does(child, accept());
    stage.tells(child, CmEvent::Established);
    stage.acks(request);
    stage.ends(&[child, listener], &[here]);

    other.says(child, CmEvent::AddrChange);
    let own = other.expect_event(here, child, cm(CmEvent::AddrChange));
    assert_eq!(other.refuses(child, accept(), Why::OwesAcks).errno(), Errno::EBUSY);
    other.acks(own);
    other.does(child, accept());
}

#[test]
fn a_listener_that_goes_leaves_its_channel_until_the_request_is_accepted() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let (listener, line, child) = asked(&mut stage, PortSpace::Tcp, here);
    stage.does(listener, Request::Destroy);
    assert!(stage.core.has_channel(line));
    stage.asks(child, accept()).unwrap();
    stage.expect_call("migrate_id", OK);
    let closes = stage.core.has_channel(line);
    stage.all_well();
    assert_eq!((closes, stage.core.has_channel(line)), (true, false));
    stage.tells(child, CmEvent::Established);
    stage.ends(&[child], &[here]);
}

#[test]
fn an_accept_is_refused_where_the_id_would_be_on_a_channel_that_failed() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let (_, line, child) = asked(&mut stage, PortSpace::Tcp, here);
    let mut other = stage.clone();
    while stage.core.handle_unreadable(here) {}
    stage.refuses(child, accept(), Why::ChannelFailed(here));
    // That of the listener does not matter.
    while other.core.handle_unreadable(line) {}
    other.does(child, accept());
    other.tells(child, CmEvent::Established);
    // It fails in the middle.
    stage.core.resume_channel(here).unwrap();
    stage.asks(child, accept()).unwrap();
    while stage.core.handle_unreadable(here) {}
    stage.all_well();
    stage.passes(Duration::ZERO);
    stage.sees(here, child, EventKind::DeadlinePassed(Verb::Accept));
}

#[test]
fn a_listener_is_released_when_the_ids_of_its_requests_have_left_its_channel() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let (listener, line, taken) = asked(&mut stage, PortSpace::Tcp, here);
    let rejected = stage.says_request(listener);
    stage.sees(here, rejected, cm(CmEvent::ConnectRequest));
    stage.does(rejected, REJECT);
    let accepted = stage.says_request(listener);
    stage.sees(here, accepted, cm(CmEvent::ConnectRequest));
    stage.does(accepted, accept());
    assert_eq!(stage.core.ids_away_on(line).collect::<Vec<_>>(), [(taken, here), (rejected, here)]);
    stage.asks(listener, TO_SYNC).unwrap();
    stage.no_call();
    assert!(matches!(stage.core.release(listener), Err(Refused::Request { why: Why::SharesChannel, .. })));
    for (id, home) in stage.core.ids_away_on(line).collect::<Vec<_>>() {
        stage.does(id, to(home));
    }
    let (_released, channel) = stage.core.release(listener).unwrap();
    assert_eq!(channel, line);
    stage.core.check();
    stage.does(taken, accept());
    stage.ends(&[taken, rejected, accepted], &[here]);
}
