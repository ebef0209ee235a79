//! A destroy ends every other request of its id, once and for all: also when it gives up at its deadline while a call of
//! such a request is under way.

use std::time::Duration;

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, CmOption, Ece, Errno, EventKind, IdKey, PortSpace, Request, State, Verb,
};

use crate::fixture::{BIND, LISTEN, OK, REJECT, RESOLVE, Stage, TO_SYNC, accept, addr, cm, connect, raw, to};

const SOON: Duration = Duration::from_millis(2);

/// Every request that a call of the device carries out, and a state to make it in.
fn calls(there: ChannelKey) -> Vec<(State, Request<'static>)> {
    vec![
        (State::Idle, BIND),
        (State::Bound, RESOLVE),
        (State::AddrResolved, Request::ResolveRoute),
        (State::Bound, LISTEN),
        (State::RouteResolved, connect()),
        (State::Requested, accept()),
        (State::Requested, REJECT),
        (State::Responded, REJECT),
        (State::Responded, Request::Establish),
        (State::Connected, Request::Disconnect),
        (State::Connected, Request::Teardown),
        (State::Accepting, Request::Notify),
        (State::Idle, Request::SetOption { option: CmOption::Tos(1) }),
        (State::Bound, Request::SetOption { option: CmOption::ReuseAddr(true) }),
        (State::Idle, Request::SetOption { option: CmOption::ReuseAddr(false) }),
        (State::Bound, Request::SetOption { option: CmOption::AfOnly(true) }),
        (State::Bound, Request::SetOption { option: CmOption::AckTimeout(7) }),
        (State::Bound, Request::SetEce { ece: Ece { vendor_id: 1, options: 0 } }),
        (State::Connected, to(there)),
        (State::Connected, TO_SYNC),
        (State::Asked, accept()),
        (State::Asking, to(there)),
    ]
}

/// The destroy of an id gives up while a call is under way.
fn gives_up(stage: &mut Stage, id: IdKey) {
    let soon = stage.within(SOON);
    stage.asks_until(id, Request::Destroy, soon).unwrap();
    stage.no_call();
    stage.passes(SOON);
    assert_eq!(stage.state(id), State::Failed);
}

/// The call that is under way returns, and those that follow it: no end but the destroy's is reported.
fn ends_unreported(stage: &mut Stage, id: IdKey, token: cmid_proto::Token, outcome: cmid_proto::Outcome) {
    assert_eq!(stage.answers(token, outcome), None);
    while let Some((token, call)) = stage.core.poll_call() {
        assert_eq!(stage.answers(token, OK), None, "{call:?}");
    }
    assert_eq!((stage.state(id), stage.core.sync_result(id)), (State::Failed, None));
    let home = stage.core.home(id).unwrap();
    assert_eq!(stage.sees(home, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    stage.no_event(home);
}

#[test]
fn no_request_of_an_id_whose_destroy_gave_up_is_said_to_end_when_its_call_returns() {
    for at in 0..calls(Stage::on(Acks::Explicit).1).len() {
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut stage, here) = Stage::on(Acks::Explicit);
            let there = stage.channel(Acks::Explicit);
            let (state, request) = calls(there)[at];
            let id = stage.in_state(here, state);
            let channels = stage.core.channels();
            stage.asks(id, request).unwrap();
            let (token, _) = stage.core.poll_call().unwrap();
            gives_up(&mut stage, id);
            ends_unreported(&mut stage, id, token, outcome);
            // A rejection leaves the id of a request on its listener's channel, and so does an accept that could not move it.
            let stays = matches!(state, State::Requested | State::Asked) && (request == REJECT || outcome.is_err());
            assert_eq!(stage.core.line(id) != stage.core.home(id), stays, "{request:?}");
            assert!(stage.core.channels() <= channels, "{request:?} has left a channel");
            let others: Vec<_> = stage.core.id_keys().collect();
            stage.ends(&others, &[here, there]);
        }
    }
}

#[test]
fn the_second_call_of_a_request_reports_no_end_either() {
    for (request, second, line_stays) in [(TO_SYNC, "migrate_id", false), (LISTEN, "migrate_id", true)] {
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut stage, here) = Stage::on(Acks::Explicit);
            let id = stage.in_state(here, State::Bound);
            stage.asks(id, request).unwrap();
            stage.expect_call("create_event_channel", OK);
            let (token, _) = stage.takes_call(second);
            gives_up(&mut stage, id);
            ends_unreported(&mut stage, id, token, outcome);
            let apart = stage.core.line(id) != stage.core.home(id);
            assert_eq!(apart, line_stays && outcome.is_ok(), "{request:?}");
            stage.ends(&[id], &[here]);
        }
    }
}

#[test]
fn a_listen_that_a_destroy_has_ended_listens_all_the_same_if_the_device_says_so() {
    for outcome in [OK, Err(Errno::EADDRINUSE)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = stage.in_state(here, State::Bound);
        stage.asks(id, LISTEN).unwrap();
        stage.expect_call("create_event_channel", OK);
        stage.expect_call("migrate_id", OK);
        let (token, _) = stage.takes_call("listen");
        gives_up(&mut stage, id);
        ends_unreported(&mut stage, id, token, outcome);
        // The device moves no id that listens.
        stage.asks(id, to(there)).unwrap();
        let call = stage.core.poll_call();
        assert_eq!(call.is_none(), outcome.is_ok());
        if let Some((token, _)) = call {
            assert!(stage.answers(token, OK).is_some());
        }
        assert_eq!(stage.core.home(id), Some(there));
        stage.ends(&[id], &[here, there]);
    }
}

#[test]
fn an_event_may_say_that_the_id_has_moved_and_no_end_is_reported() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.says(id, CmEvent::AddrChange);
    let held = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.acks(held);
    let (token, _) = stage.takes_call("migrate_id");
    gives_up(&mut stage, id);
    stage.says_on(there, raw(id, CmEvent::AddrChange, 0));
    assert_eq!((stage.core.home(id), stage.core.line(id)), (Some(there), Some(there)));
    assert_eq!(stage.answers(token, OK), None);
    assert_eq!(stage.sees(there, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    stage.sees(there, id, cm(CmEvent::AddrChange));
    stage.no_event(there);
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_migration_or_a_leave_that_began_with_the_last_ack_is_not_reported() {
    for (outcome, migrates) in [(OK, true), (Err(Errno::ENOMEM), true), (OK, false), (Err(Errno::ENOMEM), false)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let there = stage.channel(Acks::Explicit);
        let id = stage.id_for(PortSpace::Udp, Some(here));
        stage.does(id, BIND);
        let group = stage.core.join(stage.now, id, addr(9), false, cmid_proto::Time::NEVER).unwrap();
        stage.all_well();
        let joined = cmid_proto::RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) };
        stage.says_on(here, joined);
        let held = stage.expect_event(here, id, cm(CmEvent::MulticastJoin));
        stage.asks(id, if migrates { to(there) } else { Request::Leave { group } }).unwrap();
        stage.no_call();
        stage.acks(held);
        let (token, call) = stage.core.poll_call().unwrap();
        assert_eq!(matches!(call, Call::Migrate { .. }), migrates);
        gives_up(&mut stage, id);
        ends_unreported(&mut stage, id, token, outcome);
        assert_eq!(stage.core.groups(), usize::from(migrates));
        stage.ends(&[id], &[here, there]);
    }
}

#[test]
fn a_join_that_a_destroy_has_ended_leaves_a_membership_to_be_left() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, here) = Stage::on(Acks::Explicit);
        let id = stage.id_for(PortSpace::Udp, Some(here));
        stage.does(id, BIND);
        let group = stage.core.join(stage.now, id, addr(9), false, cmid_proto::Time::NEVER).unwrap();
        let (token, _) = stage.takes_call("join_multicast");
        gives_up(&mut stage, id);
        ends_unreported(&mut stage, id, token, outcome);
        stage.asks(id, Request::Leave { group }).unwrap();
        assert!(stage.expect_call("leave_multicast", outcome).is_some());
        stage.ends(&[id], &[here]);
    }
}

#[test]
fn an_id_that_could_not_be_created_is_gone_after_a_destroy_that_gave_up() {
    for (outcome, taken) in [(OK, true), (OK, false), (Err(Errno::ENOMEM), true), (Err(Errno::ENOMEM), false)] {
        for sync in [false, true] {
            let (mut stage, here) = Stage::on(Acks::Explicit);
            let id = stage.core.create_id((!sync).then_some(here), PortSpace::Tcp).unwrap();
            let (token, _) = stage.core.poll_call().unwrap();
            gives_up(&mut stage, id);
            let home = stage.core.home(id).unwrap();
            if taken {
                stage.sees(home, id, EventKind::Destroyed);
            }
            let ended = stage.answers(token, outcome);
            assert_eq!(stage.core.state(id).is_some(), outcome.is_ok());
            while let Some((token, _)) = stage.core.poll_call() {
                assert_eq!(stage.answers(token, OK), None);
            }
            // The destroy ends once. Nobody can read the channel of a synchronous id that is gone.
            assert_eq!(ended.is_some(), !taken && sync && outcome.is_err());
            if !taken && ended.is_none() {
                stage.sees(home, id, EventKind::Destroyed);
            }
            stage.no_event(home);
            stage.ends(&[id], &[here]);
        }
    }
}

#[test]
fn a_destroy_that_is_asked_for_again_while_the_call_is_under_way_ends_once() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.in_state(here, State::Connected);
    stage.asks(id, to(there)).unwrap();
    let (token, _) = stage.takes_call("migrate_id");
    gives_up(&mut stage, id);
    stage.refuses(id, Request::DetachQp, cmid_proto::Why::Busy(Verb::Migrate));
    stage.asks(id, Request::Destroy).unwrap();
    assert_eq!(stage.answers(token, OK), None);
    assert_eq!(stage.expect_call("destroy_id", OK), None);
    assert_eq!(stage.sees(there, id, EventKind::Destroyed).result(), Ok(()));
    stage.no_event(there);
    stage.ends(&[], &[here, there]);
}

/// A destroy gives up while the id of a request is moved to be accepted: it is where it was to go, if the device says so.
#[test]
fn an_accept_whose_destroy_gave_up_makes_no_second_call() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let there = stage.channel(Acks::OnDelivery);
        let (listener, child) = stage.requested(here);
        let line = stage.core.line(listener).unwrap();
        stage.asks(child, accept()).unwrap();
        let (token, call) = stage.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: line, to: here });
        stage.asks(listener, to(there)).unwrap();
        gives_up(&mut stage, child);
        assert_eq!(stage.answers(token, outcome), None);
        stage.no_call();
        let on = if outcome.is_ok() { here } else { line };
        assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(here), Some(on)));
        assert_eq!(stage.sees(here, child, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
        stage.ends(&[listener, child], &[here, there]);
    }
}
