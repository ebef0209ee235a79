//! A destroy ends all other requests of its id. This includes a destroy that gives up at its deadline while a call of
//! such a request is under way.

use std::time::Duration;

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, CmOption, Ece, Errno, EventKind, IdKey, PortSpace, Request, RequestKind, State,
};

use crate::fixture::{
    BIND, CoreFixture, LISTEN, OK, REJECT, RESOLVE, TO_SYNC, accept, cm, connect, group_addr, raw, to,
};

const SOON: Duration = Duration::from_millis(2);

/// Every request that a device call carries out, and a state in which it is legal.
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
        (State::SidrReqReceived, accept()),
        (State::SidrReqSent, to(there)),
    ]
}

/// The deadline of a destroy passes while a call of the id is under way.
fn gives_up(fixture: &mut CoreFixture, id: IdKey) {
    let soon = fixture.within(SOON);
    fixture.submit_until(id, Request::Destroy, soon).unwrap();
    fixture.no_call();
    fixture.passes(SOON);
    assert_eq!(fixture.state(id), State::Failed);
}

/// Completes the call that is under way and the calls that follow it. Only the end of the destroy is reported.
fn ends_unreported(fixture: &mut CoreFixture, id: IdKey, token: cmid_proto::Token, outcome: cmid_proto::Outcome) {
    assert_eq!(fixture.answers(token, outcome), None);
    while let Some((token, call)) = fixture.core.poll_call() {
        assert_eq!(fixture.answers(token, OK), None, "{call:?}");
    }
    assert_eq!((fixture.state(id), fixture.core.sync_result(id)), (State::Failed, None));
    let home = fixture.core.channel(id).unwrap();
    assert_eq!(fixture.sees(home, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    fixture.no_event(home);
}

#[test]
fn after_a_destroy_gave_up_no_other_request_of_the_id_ends_when_its_call_returns() {
    for at in 0..calls(CoreFixture::on(Acks::Explicit).1).len() {
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let there = fixture.channel(Acks::Explicit);
            let (state, request) = calls(there)[at];
            let id = fixture.in_state(here, state);
            let channels = fixture.core.channels();
            fixture.submit(id, request).unwrap();
            let (token, _) = fixture.core.poll_call().unwrap();
            gives_up(&mut fixture, id);
            ends_unreported(&mut fixture, id, token, outcome);
            // After a rejection, and after an accept that could not migrate it, the id is still on the listener's
            // channel.
            let stays =
                matches!(state, State::Requested | State::SidrReqReceived) && (request == REJECT || outcome.is_err());
            assert_eq!(fixture.core.device_channel(id) != fixture.core.channel(id), stays, "{request:?}");
            assert!(fixture.core.channels() <= channels, "{request:?} has left a channel");
            let others: Vec<_> = fixture.core.id_keys().collect();
            fixture.ends(&others, &[here, there]);
        }
    }
}

#[test]
fn the_second_call_of_a_request_reports_no_end_either() {
    for (request, second, line_stays) in [(TO_SYNC, "migrate_id", false), (LISTEN, "migrate_id", true)] {
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let id = fixture.in_state(here, State::Bound);
            fixture.submit(id, request).unwrap();
            fixture.expect_call("create_event_channel", OK);
            let (token, _) = fixture.takes_call(second);
            gives_up(&mut fixture, id);
            ends_unreported(&mut fixture, id, token, outcome);
            let apart = fixture.core.device_channel(id) != fixture.core.channel(id);
            assert_eq!(apart, line_stays && outcome.is_ok(), "{request:?}");
            fixture.ends(&[id], &[here]);
        }
    }
}

#[test]
fn a_listen_that_a_destroy_has_ended_listens_all_the_same_if_its_call_succeeds() {
    for outcome in [OK, Err(Errno::EADDRINUSE)] {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let there = fixture.channel(Acks::Explicit);
        let id = fixture.in_state(here, State::Bound);
        fixture.submit(id, LISTEN).unwrap();
        fixture.expect_call("create_event_channel", OK);
        fixture.expect_call("migrate_id", OK);
        let (token, _) = fixture.takes_call("listen");
        gives_up(&mut fixture, id);
        ends_unreported(&mut fixture, id, token, outcome);
        // The device does not migrate a listening id.
        fixture.submit(id, to(there)).unwrap();
        let call = fixture.core.poll_call();
        assert_eq!(call.is_none(), outcome.is_ok());
        if let Some((token, _)) = call {
            assert!(fixture.answers(token, OK).is_some());
        }
        assert_eq!(fixture.core.channel(id), Some(there));
        fixture.ends(&[id], &[here, there]);
    }
}

#[test]
fn an_event_may_say_that_the_id_has_moved_and_no_end_is_reported() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
    fixture.report(id, CmEvent::AddrChange);
    let held = fixture.expect_event(here, id, cm(CmEvent::AddrChange));
    fixture.submit(id, to(there)).unwrap();
    fixture.acks(held);
    let (token, _) = fixture.takes_call("migrate_id");
    gives_up(&mut fixture, id);
    fixture.report_on(there, raw(id, CmEvent::AddrChange, 0));
    assert_eq!((fixture.core.channel(id), fixture.core.device_channel(id)), (Some(there), Some(there)));
    assert_eq!(fixture.answers(token, OK), None);
    assert_eq!(fixture.sees(there, id, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
    fixture.sees(there, id, cm(CmEvent::AddrChange));
    fixture.no_event(there);
    fixture.ends(&[id], &[here, there]);
}

#[test]
fn a_migration_or_a_leave_that_began_with_the_last_ack_is_not_reported() {
    for (outcome, migrates) in [(OK, true), (Err(Errno::ENOMEM), true), (OK, false), (Err(Errno::ENOMEM), false)] {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let there = fixture.channel(Acks::Explicit);
        let id = fixture.id_for(PortSpace::Udp, Some(here));
        fixture.does(id, BIND);
        let group = fixture.core.join(fixture.now, id, group_addr(9), false, cmid_proto::Time::NEVER).unwrap();
        fixture.all_well();
        let joined = cmid_proto::RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) };
        fixture.report_on(here, joined);
        let held = fixture.expect_event(here, id, cm(CmEvent::MulticastJoin));
        fixture.submit(id, if migrates { to(there) } else { Request::Leave { group } }).unwrap();
        fixture.no_call();
        fixture.acks(held);
        let (token, call) = fixture.core.poll_call().unwrap();
        assert_eq!(matches!(call, Call::Migrate { .. }), migrates);
        gives_up(&mut fixture, id);
        ends_unreported(&mut fixture, id, token, outcome);
        assert_eq!(fixture.core.groups(), usize::from(migrates));
        fixture.ends(&[id], &[here, there]);
    }
}

#[test]
fn a_join_that_a_destroy_has_ended_leaves_a_membership_to_be_left() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
        let id = fixture.id_for(PortSpace::Udp, Some(here));
        fixture.does(id, BIND);
        let group = fixture.core.join(fixture.now, id, group_addr(9), false, cmid_proto::Time::NEVER).unwrap();
        let (token, _) = fixture.takes_call("join_multicast");
        gives_up(&mut fixture, id);
        ends_unreported(&mut fixture, id, token, outcome);
        fixture.submit(id, Request::Leave { group }).unwrap();
        assert!(fixture.expect_call("leave_multicast", outcome).is_some());
        fixture.ends(&[id], &[here]);
    }
}

#[test]
fn an_id_that_could_not_be_created_is_gone_after_a_destroy_that_gave_up() {
    for (outcome, taken) in [(OK, true), (OK, false), (Err(Errno::ENOMEM), true), (Err(Errno::ENOMEM), false)] {
        for sync in [false, true] {
            let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
            let id = fixture.core.create_id((!sync).then_some(here), PortSpace::Tcp).unwrap();
            let (token, _) = fixture.core.poll_call().unwrap();
            gives_up(&mut fixture, id);
            let home = fixture.core.channel(id).unwrap();
            if taken {
                fixture.sees(home, id, EventKind::Destroyed);
            }
            let ended = fixture.answers(token, outcome);
            assert_eq!(fixture.core.state(id).is_some(), outcome.is_ok());
            while let Some((token, _)) = fixture.core.poll_call() {
                assert_eq!(fixture.answers(token, OK), None);
            }
            // The destroy ends once. The channel of a synchronous id that is gone cannot be read.
            assert_eq!(ended.is_some(), !taken && sync && outcome.is_err());
            if !taken && ended.is_none() {
                fixture.sees(home, id, EventKind::Destroyed);
            }
            fixture.no_event(home);
            fixture.ends(&[id], &[here]);
        }
    }
}

#[test]
fn a_destroy_that_is_requested_again_while_the_call_is_under_way_ends_once() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::Explicit);
    let id = fixture.in_state(here, State::Connected);
    fixture.submit(id, to(there)).unwrap();
    let (token, _) = fixture.takes_call("migrate_id");
    gives_up(&mut fixture, id);
    fixture.refuses(id, Request::DetachQp, cmid_proto::RefuseReason::Busy(RequestKind::Migrate));
    fixture.submit(id, Request::Destroy).unwrap();
    assert_eq!(fixture.answers(token, OK), None);
    assert_eq!(fixture.expect_call("destroy_id", OK), None);
    assert_eq!(fixture.sees(there, id, EventKind::Destroyed).result(), Ok(()));
    fixture.no_event(there);
    fixture.ends(&[], &[here, there]);
}

/// A destroy gives up while the id of a request is migrated for its accept. The outcome decides which channel the id
/// is on.
#[test]
fn an_accept_whose_destroy_gave_up_makes_no_second_call() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
        let there = fixture.channel(Acks::OnDelivery);
        let (listener, child) = fixture.requested(here);
        let device_channel = fixture.core.device_channel(listener).unwrap();
        fixture.submit(child, accept()).unwrap();
        let (token, call) = fixture.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: device_channel, to: here });
        fixture.submit(listener, to(there)).unwrap();
        gives_up(&mut fixture, child);
        assert_eq!(fixture.answers(token, outcome), None);
        fixture.no_call();
        let on = if outcome.is_ok() { here } else { device_channel };
        assert_eq!((fixture.core.channel(child), fixture.core.device_channel(child)), (Some(here), Some(on)));
        assert_eq!(fixture.sees(here, child, EventKind::Destroyed).result(), Err(Errno::ETIMEDOUT));
        fixture.ends(&[listener, child], &[here, there]);
    }
}
