//! Options, notify, reject reasons and enhanced connection establishment.

use std::time::Duration;

use cmid_proto::{
    Acks, Call, CmEvent, CmOption, Ece, Errno, EventKind, PortSpace, RejectReason, Request, State, Verb, Why,
};

use crate::fixture::{OK, RESOLVE, Stage, TO_SYNC, accept, cm, connect};

const SOON: Duration = Duration::from_millis(2);
const TOS: Request<'static> = Request::SetOption { option: CmOption::Tos(0x60) };
const ECE: Request<'static> = Request::SetEce { ece: Ece { vendor_id: 0x15b3, options: 1 } };

#[test]
fn each_option_reaches_the_device_as_it_was_given() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    for option in [
        CmOption::Tos(0x60),
        CmOption::ReuseAddr(true),
        CmOption::ReuseAddr(false),
        CmOption::AfOnly(true),
        CmOption::AckTimeout(14),
    ] {
        stage.asks(id, Request::SetOption { option }).unwrap();
        let (token, call) = stage.takes_call("set_option");
        assert_eq!(call, Call::SetOption { id, option });
        assert_eq!(stage.answers(token, OK).unwrap().result, Ok(()));
        stage.asks(id, Request::SetOption { option }).unwrap();
        let failure = stage.expect_call("set_option", Err(Errno::EINVAL)).unwrap().result.unwrap_err();
        assert_eq!((failure.call, failure.errno), (option.verb().name(), Errno::EINVAL));
        assert_eq!(stage.state(id), State::Idle);
    }
    stage.ends(&[id], &[channel]);
}

#[test]
fn options_are_refused_where_the_kernel_would() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let (on, off) = (CmOption::ReuseAddr(true), CmOption::ReuseAddr(false));
    let id = stage.in_state(channel, State::Bound);
    stage.refuses(id, Request::SetOption { option: off }, Why::WrongState);
    let listener = stage.in_state(channel, State::Listening);
    stage.refuses(listener, Request::SetOption { option: on }, Why::WrongState);
    let resolved = stage.in_state(channel, State::AddrResolved);
    stage.does(resolved, Request::SetOption { option: on });
    stage.refuses(resolved, Request::SetOption { option: CmOption::AfOnly(false) }, Why::WrongState);
    let datagrams = stage.id_for(PortSpace::Udp, Some(channel));
    let refused =
        stage.refuses(datagrams, Request::SetOption { option: CmOption::AckTimeout(14) }, Why::NotForDatagrams);
    assert_eq!(refused.errno(), Errno::EINVAL);
    stage.refuses(datagrams, ECE, Why::NotForDatagrams);
    stage.does(datagrams, TOS);
    stage.ends(&[id, listener, resolved, datagrams], &[channel]);
}

#[test]
fn an_option_leaves_the_operation_that_is_under_way_its_deadline() {
    for state in State::ALL.into_iter().filter(|&state| cmid_proto::table::operation(state).is_some()) {
        if state == State::Destroying {
            continue;
        }
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let (from, request) = match state {
                State::AddrResolving => (State::Bound, RESOLVE),
                State::RouteResolving => (State::AddrResolved, Request::ResolveRoute),
                State::Connecting => (State::RouteResolved, connect()),
                State::Asking => (State::Asking, connect()),
                State::Accepting => (State::Requested, accept()),
                State::Disconnecting => (State::Connected, Request::Disconnect),
                State::Closing => (State::Connected, Request::Teardown),
                other => panic!("{other} waits for something new"),
            };
            let id = if state == State::Asking {
                let id = stage.id_for(PortSpace::Udp, Some(channel));
                stage.does(id, RESOLVE);
                stage.tells(id, CmEvent::AddrResolved);
                stage.does(id, Request::ResolveRoute);
                stage.tells(id, CmEvent::RouteResolved);
                id
            } else {
                stage.in_state(channel, from)
            };
            let soon = stage.within(SOON);
            stage.does_until(id, request, soon);
            stage.asks(id, TOS).unwrap();
            assert_eq!(stage.core.poll_timeout(), Some((soon, id)), "{state}");
            stage.expect_call("set_option", outcome);
            assert_eq!(stage.core.poll_timeout(), Some((soon, id)), "{state}");
            stage.passes(SOON);
            stage.sees(channel, id, EventKind::DeadlinePassed(request.verb()));
        }
    }
}

#[test]
fn a_deadline_may_pass_while_an_option_is_being_set() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::RouteResolved);
        let soon = stage.within(SOON);
        stage.does_until(id, connect(), soon);
        stage.asks(id, TOS).unwrap();
        let (token, _) = stage.takes_call("set_option");
        stage.passes(SOON);
        assert_eq!(stage.answers(token, outcome).unwrap().result.is_ok(), outcome.is_ok());
        assert_eq!(stage.state(id), State::Failed);
        stage.sees(channel, id, EventKind::DeadlinePassed(Verb::Connect));
        assert_eq!(stage.core.poll_timeout(), None);
        stage.ends(&[id], &[channel]);
    }
}

#[test]
fn notify_is_for_an_accepted_id_and_leaves_the_accept_its_deadline() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Requested);
        stage.refuses(id, Request::Notify, Why::WrongState);
        let soon = stage.within(SOON);
        stage.does_until(id, accept(), soon);
        stage.asks(id, Request::Notify).unwrap();
        let (token, call) = stage.takes_call("notify");
        assert_eq!(call, Call::Notify { id });
        assert_eq!(stage.answers(token, outcome).unwrap().result.is_ok(), outcome.is_ok());
        assert_eq!((stage.state(id), stage.core.poll_timeout()), (State::Accepting, Some((soon, id))));
        stage.tells(id, CmEvent::Established);
        assert_eq!(stage.core.poll_timeout(), None);
        assert_eq!(stage.refuses(id, Request::Notify, Why::IsConnected).errno(), Errno::EISCONN);
    }
}

#[test]
fn a_confirmation_may_come_while_notify_is_under_way() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.in_state(channel, State::Accepting);
    stage.asks(id, Request::Notify).unwrap();
    let (token, _) = stage.takes_call("notify");
    stage.tells(id, CmEvent::Established);
    let failure = stage.answers(token, Err(Errno::EISCONN)).unwrap().result.unwrap_err();
    assert_eq!((failure.state, failure.errno), (State::Connected, Errno::EISCONN));
}

#[test]
fn in_synchronous_mode_notify_does_not_end_the_accept_that_it_is_for() {
    for (outcome, early) in [(OK, false), (Err(Errno::EINVAL), false), (Err(Errno::EISCONN), true)] {
        let (mut stage, channel) = Stage::on(Acks::OnDelivery);
        let id = stage.in_state(channel, State::Requested);
        stage.does(id, TO_SYNC);
        let soon = stage.within(SOON);
        stage.does_until(id, accept(), soon);
        stage.refuses(id, TOS, Why::Busy(Verb::Accept));
        stage.asks(id, Request::Notify).unwrap();
        let (token, _) = stage.takes_call("notify");
        if early {
            stage.says(id, CmEvent::Established);
        }
        stage.answers(token, outcome);
        if !early {
            assert_eq!((stage.core.sync_result(id), stage.core.poll_timeout()), (None, Some((soon, id))));
            stage.says(id, CmEvent::Established);
        }
        assert_eq!(stage.core.sync_result(id), Some(Ok(())));
        assert_eq!(stage.core.sync_event(id).unwrap().kind, cm(CmEvent::Established));
    }
}

#[test]
fn a_rejection_gives_its_reason() {
    for reason in [RejectReason::Consumer, RejectReason::Ece] {
        for from in [State::Requested, State::Responded, State::Asked] {
            let (mut stage, channel) = Stage::on(Acks::OnDelivery);
            let id = stage.in_state(channel, from);
            stage.asks(id, Request::Reject { reason, private_data: b"no" }).unwrap();
            let (token, call) = stage.takes_call("reject");
            assert_eq!((call, stage.core.call_data(token)), (Call::Reject { id, reason }, &b"no"[..]));
            stage.answers(token, OK);
            assert_eq!(stage.state(id), State::Failed);
        }
    }
}

#[test]
fn the_peer_is_told_of_options_that_were_set_before_the_message() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    for from in [State::RouteResolved, State::Requested] {
        let id = stage.in_state(channel, from);
        stage.asks(id, ECE).unwrap();
        let (token, call) = stage.takes_call("set_local_ece");
        assert_eq!(call, Call::SetEce { id, ece: Ece { vendor_id: 0x15b3, options: 1 } });
        assert!(stage.answers(token, Err(Errno::ENOSYS)).unwrap().result.is_err());
        assert_eq!(stage.state(id), from);
        stage.does(id, ECE);
        let none = Request::SetEce { ece: Ece { vendor_id: 0, options: 1 } };
        assert_eq!(stage.refuses(id, none, Why::NoVendor).errno(), Errno::EINVAL);
        stage.does(id, Request::AttachQp);
        stage.refuses(id, ECE, Why::HasQp);
        stage.does(id, if from == State::Requested { accept() } else { connect() });
        stage.refuses(id, ECE, Why::AlreadySent);
    }
}
