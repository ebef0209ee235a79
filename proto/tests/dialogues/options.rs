//! Options, notify, reject reasons and enhanced connection establishment.

use cmid_proto::{
    Acks, Call, CmEvent, CmOption, ConnParam, Ece, Errno, EventKind, PortSpace, RefuseReason, RejectReason, Request,
    RequestKind, State,
};

use crate::fixture::{CoreFixture, OK, RESOLVE, SOON, TO_SYNC, accept, cm, connect};

/// An option that counts in each state of a connection.
const REUSE: Request<'static> = Request::SetOption { option: CmOption::ReuseAddr(true) };
const TOS: Request<'static> = Request::SetOption { option: CmOption::Tos(0x60) };
const ECE: Request<'static> = Request::SetEce { ece: Ece { vendor_id: 0x15b3, options: 1 } };

#[test]
fn each_option_reaches_the_device_as_it_was_given() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    for option in [
        CmOption::Tos(0x60),
        CmOption::ReuseAddr(true),
        CmOption::ReuseAddr(false),
        CmOption::AfOnly(true),
        CmOption::AckTimeout(14),
    ] {
        fixture.submit(id, Request::SetOption { option }).unwrap();
        let call = fixture.takes_call("set_option");
        assert_eq!(call, Call::SetOption { id, option });
        assert_eq!(fixture.answers(OK).unwrap().result, Ok(()));
        let failure = fixture.fails(id, Request::SetOption { option }, "set_option", Errno::EINVAL);
        assert_eq!((failure.call, failure.errno), (option.request_kind().name(), Errno::EINVAL));
        assert_eq!(fixture.state(id), State::Idle);
    }
}

#[test]
fn options_are_refused_where_the_kernel_would() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let (on, off) = (CmOption::ReuseAddr(true), CmOption::ReuseAddr(false));
    let id = fixture.in_state(channel, State::Bound);
    fixture.refuses(id, Request::SetOption { option: off }, RefuseReason::WrongState);
    let listener = fixture.in_state(channel, State::Listening);
    fixture.refuses(listener, Request::SetOption { option: on }, RefuseReason::WrongState);
    let resolved = fixture.in_state(channel, State::AddrResolved);
    fixture.does(resolved, Request::SetOption { option: on });
    fixture.refuses(resolved, Request::SetOption { option: CmOption::AfOnly(false) }, RefuseReason::WrongState);
    let datagrams = fixture.id_for(PortSpace::Udp, Some(channel));
    let refused = fixture.refuses(
        datagrams,
        Request::SetOption { option: CmOption::AckTimeout(14) },
        RefuseReason::NotForDatagrams,
    );
    assert_eq!(refused.errno(), Errno::EINVAL);
    fixture.refuses(datagrams, ECE, RefuseReason::NotForDatagrams);
    fixture.does(datagrams, TOS);
}

#[test]
fn a_value_that_does_not_fit_its_field_is_refused() {
    let param = ConnParam { qp_num: 7, ..ConnParam::default() };
    let connects = |param| Request::Connect { param, private_data: b"" };
    let accepts = |param| Request::Accept { param, private_data: b"" };
    let timeout = |power| Request::SetOption { option: CmOption::AckTimeout(power) };
    let ece = |vendor_id| Request::SetEce { ece: Ece { vendor_id, options: u32::MAX } };
    let mut cases = Vec::new();
    for power in 32..=255 {
        cases.push((State::Bound, timeout(31), timeout(power), "the ACK timeout", u32::from(power), 31));
    }
    cases.push((State::RouteResolved, ece(0xff_ffff), ece(1 << 24), "vendor_id", 1 << 24, 0xff_ffff));
    cases.push((State::Requested, ece(0xff_ffff), ece(u32::MAX), "vendor_id", u32::MAX, 0xff_ffff));
    for (field, set, max, above) in [
        ("retry_count", (|param, value| ConnParam { retry_count: value as u8, ..param }) as fn(_, _) -> _, 7, 8),
        ("rnr_retry_count", |param, value| ConnParam { rnr_retry_count: value as u8, ..param }, 7, 255),
        ("qp_num", |param, value| ConnParam { qp_num: value, ..param }, 0xff_ffff, 1 << 24),
    ] {
        let (fits, does_not): (ConnParam, ConnParam) = (set(param, max), set(param, above));
        cases.push((State::RouteResolved, connects(fits), connects(does_not), field, above, max));
        cases.push((State::Requested, accepts(fits), accepts(does_not), field, above, max));
    }
    for (state, fits, does_not, field, value, max) in cases {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, state);
        let refused = fixture.refuses(id, does_not, RefuseReason::TooLarge { field, value, max });
        assert_eq!(refused.errno(), Errno::EINVAL, "{refused}");
        fixture.does(id, fits);
    }
}

#[test]
fn on_iwarp_the_connect_takes_the_type_of_service() {
    for state in [State::RouteResolving, State::RouteResolved] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, state);
        fixture.refuses(id, TOS, RefuseReason::AlreadySent);
        fixture.core.note_iwarp(id);
        fixture.does(id, TOS);
    }
}

#[test]
fn an_option_leaves_the_operation_that_is_under_way_its_deadline() {
    for state in State::ALL.into_iter().filter(|&state| cmid_proto::table::operation(state).is_some()) {
        if state == State::Destroying {
            continue;
        }
        for outcome in [OK, Err(Errno::EINVAL)] {
            let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
            let (from, request) = match state {
                State::AddrResolving => (State::Bound, RESOLVE),
                State::RouteResolving => (State::AddrResolved, Request::ResolveRoute),
                State::Connecting => (State::RouteResolved, connect()),
                State::SidrReqSent => (State::SidrReqSent, connect()),
                State::Accepting => (State::Requested, accept()),
                State::Disconnecting => (State::Connected, Request::Disconnect),
                State::Closing => (State::Connected, Request::Teardown),
                other => panic!("{other} waits for something new"),
            };
            let id = if state == State::SidrReqSent {
                let id = fixture.id_for(PortSpace::Udp, Some(channel));
                fixture.lead(id, State::RouteResolved);
                id
            } else {
                fixture.in_state(channel, from)
            };
            let soon = fixture.does_soon(id, request);
            let sooner = fixture.within(SOON / 2);
            fixture.submit_until(id, REUSE, sooner).unwrap();
            assert_eq!(fixture.core.poll_timeout(), Some((soon, id)), "{state}");
            fixture.expect_call("set_option", outcome);
            assert_eq!(fixture.core.poll_timeout(), Some((soon, id)), "{state}");
            fixture.passes(SOON);
            fixture.sees(channel, id, EventKind::DeadlinePassed(request.request_kind()));
        }
    }
}

#[test]
fn notify_is_for_an_accepted_id_and_leaves_the_accept_its_deadline() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Requested);
        fixture.refuses(id, Request::Notify, RefuseReason::WrongState);
        let soon = fixture.does_soon(id, accept());
        fixture.submit(id, Request::Notify).unwrap();
        let call = fixture.takes_call("notify");
        assert_eq!(call, Call::Notify { id });
        assert_eq!(fixture.answers(outcome).unwrap().result.is_ok(), outcome.is_ok());
        assert_eq!((fixture.state(id), fixture.core.poll_timeout()), (State::Accepting, Some((soon, id))));
        fixture.report_and_take(id, CmEvent::Established);
        assert_eq!(fixture.core.poll_timeout(), None);
        assert_eq!(fixture.refuses(id, Request::Notify, RefuseReason::IsConnected).errno(), Errno::EISCONN);
    }
}

#[test]
fn in_synchronous_mode_notify_does_not_end_the_accept_that_it_is_for() {
    for outcome in [OK, Err(Errno::EINVAL)] {
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Requested);
        fixture.does(id, TO_SYNC);
        let soon = fixture.does_soon(id, accept());
        fixture.refuses(id, REUSE, RefuseReason::Busy(RequestKind::Accept));
        fixture.submit(id, Request::Notify).unwrap();
        fixture.expect_call("notify", outcome);
        assert_eq!((fixture.core.sync_result(id), fixture.core.poll_timeout()), (None, Some((soon, id))));
        fixture.report(id, CmEvent::Established);
        assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
        assert_eq!(fixture.core.sync_event(id).unwrap().kind, cm(CmEvent::Established));
    }
}

#[test]
fn a_rejection_gives_its_reason() {
    for reason in [RejectReason::Consumer, RejectReason::Ece] {
        for from in [State::Requested, State::Responded, State::SidrReqReceived] {
            let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, from);
            fixture.submit(id, Request::Reject { reason, private_data: b"no" }).unwrap();
            let call = fixture.takes_call("reject");
            assert_eq!((call, fixture.call_data().as_slice()), (Call::Reject { id, reason }, &b"no"[..]));
            fixture.answers(OK);
            assert_eq!(fixture.state(id), State::Failed);
        }
    }
}

#[test]
fn options_that_were_set_before_the_message_reach_the_peer() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    for from in [State::RouteResolved, State::Requested] {
        let id = fixture.in_state(channel, from);
        fixture.submit(id, ECE).unwrap();
        let call = fixture.takes_call("set_local_ece");
        assert_eq!(call, Call::SetEce { id, ece: Ece { vendor_id: 0x15b3, options: 1 } });
        assert!(fixture.answers(Err(Errno::ENOSYS)).unwrap().result.is_err());
        assert_eq!(fixture.state(id), from);
        fixture.does(id, ECE);
        let none = Request::SetEce { ece: Ece { vendor_id: 0, options: 1 } };
        assert_eq!(fixture.refuses(id, none, RefuseReason::NoVendor).errno(), Errno::EINVAL);
        fixture.does(id, Request::AttachQp);
        fixture.refuses(id, ECE, RefuseReason::HasQp);
        fixture.does(id, if from == State::Requested { accept() } else { connect() });
        fixture.refuses(id, ECE, RefuseReason::AlreadySent);
    }
}
