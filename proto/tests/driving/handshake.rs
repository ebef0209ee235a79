//! Handshakes, request by request: the calls that they make, and the events that end them.

use cmid_proto::handshake::{Connected, Dial, DialTo, HandshakeError, Incoming, Serve};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Errno, Error, Event, EventKind, IdKey, Next, PortSpace, PrivateData,
    Progress, RawEvent, ReceivedParam, RequestKind, State, Time,
};

use crate::device::{Driven, PARAM, addr, calls, channel_and_id, driven, fails, has, is_empty, report, requested};

const DEADLINE: Time = Time(1000);

type Step = Result<Option<Connected<u8>>, HandshakeError>;

fn to() -> DialTo {
    DialTo { param: PARAM, ..DialTo::new(addr(2)) }
}

fn dialled(acks: Acks) -> (Driven, ChannelKey, Dial<u8>) {
    let mut drive = driven();
    let channel = drive.open_channel(acks).unwrap();
    calls(&mut drive);
    let dial = Dial::start(&mut drive, Some(channel), &to(), DEADLINE).unwrap();
    (drive, channel, dial)
}

/// No id is left, so the last channel can be closed.
fn closes(mut drive: Driven, channel: ChannelKey) {
    drive.close_channel(channel).unwrap();
    is_empty(&drive);
}

/// Passes all events of the channel to the dial. Returns the last result.
fn fed(drive: &mut Driven, channel: ChannelKey, dial: &mut Dial<u8>) -> Step {
    let mut last = Ok(None);
    while let Some(event) = drive.next_event(channel) {
        last = dial.handle(drive, event, |_, _| Ok::<_, Error>(7));
    }
    last
}

fn goes_on(step: Step) {
    assert!(matches!(step, Ok(None)), "{step:?}");
}

/// The steps of a dial up to its connect.
fn connecting(drive: &mut Driven, channel: ChannelKey, dial: &mut Dial<u8>) {
    for kind in [CmEvent::AddrResolved, CmEvent::AddrChange, CmEvent::RouteResolved] {
        report(drive, dial.id(), kind);
        goes_on(fed(drive, channel, dial));
    }
    assert_eq!(drive.core().state(dial.id()), Some(State::Connecting));
}

#[test]
fn each_event_makes_the_next_request_and_the_last_one_is_the_result() {
    for (acks, answer) in [Acks::Explicit, Acks::OnDelivery]
        .into_iter()
        .flat_map(|acks| [(acks, CmEvent::ConnectResponse), (acks, CmEvent::Established)])
    {
        let (mut drive, channel, mut dial) = dialled(acks);
        connecting(&mut drive, channel, &mut dial);
        assert_eq!(calls(&mut drive), ["create_id", "resolve_addr", "resolve_route", "connect"]);
        assert!(!dial.is_over());
        // An event of another id changes nothing.
        let other = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        report(&mut drive, other, CmEvent::AddrChange);
        goes_on(fed(&mut drive, channel, &mut dial));
        let raw = RawEvent { private_data: &b"hi"[..], ..RawEvent::new(dial.id(), answer) };
        has(&mut drive, raw);
        assert_eq!(drive.run(8), Next::Deliver);
        let connected = fed(&mut drive, channel, &mut dial).unwrap().unwrap();
        assert_eq!((connected.id, connected.attached, &connected.private_data[..]), (dial.id(), 7, &b"hi"[..]));
        let establish: &[&str] = if answer == CmEvent::ConnectResponse { &["establish"] } else { &[] };
        assert_eq!(calls(&mut drive)[1..], *establish);
        assert_eq!(drive.core().state(connected.id), Some(State::Connected));
        // Nothing more is its own: neither an event nor a cancel changes the connection.
        report(&mut drive, connected.id, CmEvent::Disconnected);
        assert!(dial.is_over());
        goes_on(fed(&mut drive, channel, &mut dial));
        assert_eq!(dial.cancel(&mut drive), Ok(Progress::Done));
        for id in [connected.id, other] {
            assert_eq!(drive.destroy(id, Time::NEVER), Ok(Progress::Done));
        }
        closes(drive, channel);
    }
}

#[test]
fn an_ack_that_is_refused_ends_it_if_it_is_for_its_own_id() {
    let (mut drive, channel, mut dial) = dialled(Acks::Explicit);
    let other = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    report(&mut drive, other, CmEvent::AddrChange);
    let event = drive.next_event(channel).unwrap();
    drive.destroy_now(other).unwrap();
    goes_on(dial.handle(&mut drive, event, |_, _| Ok::<_, Error>(7)));
    assert_eq!(drive.core().state(dial.id()), Some(State::AddrResolving));
    report(&mut drive, dial.id(), CmEvent::AddrChange);
    let event = drive.next_event(channel).unwrap();
    drive.destroy_now(dial.id()).unwrap();
    dial.handle(&mut drive, event, |_, _| Ok::<_, Error>(7)).unwrap_err();
    assert!(dial.is_over());
}

#[test]
fn a_failed_request_ends_it_and_destroys_the_id() {
    for call in ["resolve_addr", "resolve_route", "connect"] {
        let mut drive = driven();
        let channel = drive.open_channel(Acks::Explicit).unwrap();
        fails(&mut drive, call, Errno::ENOMEM);
        let mut failed = None;
        match Dial::<u8>::start(&mut drive, Some(channel), &to(), DEADLINE) {
            Err(error) => failed = Some(error),
            Ok(mut dial) => {
                for kind in [CmEvent::AddrResolved, CmEvent::RouteResolved] {
                    if failed.is_none() {
                        report(&mut drive, dial.id(), kind);
                        failed = fed(&mut drive, channel, &mut dial).err();
                    }
                }
            }
        }
        assert_eq!(failed.unwrap().errno(), Errno::ENOMEM, "{call}");
        closes(drive, channel);
    }
}

#[test]
fn an_event_of_failure_ends_it_with_the_event() {
    let ends = [
        (CmEvent::Rejected, 28, Errno::ECONNREFUSED),
        (CmEvent::Unreachable, -110, Errno::ETIMEDOUT),
        (CmEvent::ConnectError, -22, Errno::EINVAL),
        // A failure by its kind alone.
        (CmEvent::ConnectError, 0, Errno::EIO),
        (CmEvent::DeviceRemoval, 0, Errno::ENODEV),
    ];
    for (kind, status, errno) in ends {
        let (mut drive, channel, mut dial) = dialled(Acks::Explicit);
        connecting(&mut drive, channel, &mut dial);
        has(&mut drive, RawEvent { status, private_data: b"why", ..RawEvent::new(dial.id(), kind) });
        let _rest = drive.run(8);
        let failed = fed(&mut drive, channel, &mut dial).unwrap_err();
        assert_eq!(failed.errno(), errno, "{kind}");
        assert_eq!(failed.reject_data(), (kind == CmEvent::Rejected).then_some(&b"why"[..]));
        tells_no(b"why", &format!("{failed} {failed:?}"));
        let HandshakeError::Ended { during: RequestKind::Connect, error } = failed else { panic!("{failed}") };
        assert_eq!((error.event.cm(), error.event.status), (Some(kind), status));
        tells_no(b"why", &format!("{error} {error:?} {:?}", error.event));
        assert!(dial.is_over());
        closes(drive, channel);
    }
}

#[test]
fn one_deadline_is_that_of_all_requests() {
    // It passes while a request is under way.
    let (mut drive, channel, mut dial) = dialled(Acks::Explicit);
    assert_eq!(drive.next_timeout(), Some(DEADLINE));
    report(&mut drive, dial.id(), CmEvent::AddrResolved);
    goes_on(fed(&mut drive, channel, &mut dial));
    assert_eq!(drive.next_timeout(), Some(DEADLINE));
    drive.set_now(DEADLINE);
    let _rest = drive.run(8);
    let failed = fed(&mut drive, channel, &mut dial).unwrap_err();
    assert!(matches!(failed, HandshakeError::TimedOut { during: RequestKind::ResolveRoute }), "{failed}");
    assert_eq!((failed.errno(), failed.to_string().as_str()), (Errno::ETIMEDOUT, "resolve_route: timed out"));
    closes(drive, channel);

    // It passes between two requests.
    let (mut drive, channel, mut dial) = dialled(Acks::OnDelivery);
    report(&mut drive, dial.id(), CmEvent::AddrResolved);
    let event = drive.next_event(channel).unwrap();
    drive.set_now(DEADLINE);
    let failed = dial.handle(&mut drive, event, |_, _| Ok::<_, Error>(7)).unwrap_err();
    assert!(matches!(failed, HandshakeError::TimedOut { during: RequestKind::ResolveRoute }), "{failed}");
    closes(drive, channel);
}

#[test]
fn synchronous_mode_is_polled() {
    let mut drive = driven();
    let mut dial = Dial::start(&mut drive, None, &to(), DEADLINE).unwrap();
    let no_event = |dial: &mut Dial<u8>, drive: &mut Driven| goes_on(dial.poll(drive, |_, _| Ok::<_, Error>(7)));
    no_event(&mut dial, &mut drive);
    for kind in [CmEvent::AddrResolved, CmEvent::RouteResolved] {
        report(&mut drive, dial.id(), kind);
        no_event(&mut dial, &mut drive);
        // The same result is not taken twice.
        no_event(&mut dial, &mut drive);
    }
    report(&mut drive, dial.id(), CmEvent::Established);
    let connected = dial.poll(&mut drive, |_, _| Ok::<_, Error>(7)).unwrap().unwrap();
    assert_eq!(connected.attached, 7);
    no_event(&mut dial, &mut drive);

    let late = DialTo { private_data: PrivateData::copy_of(&[1; 57]), ..to() };
    let mut dial = Dial::start(&mut drive, None, &late, DEADLINE).unwrap();
    let id = dial.id();
    drive.set_now(DEADLINE);
    let _rest = drive.run(8);
    let failed = dial.poll(&mut drive, |_, _| Ok::<_, Error>(7)).unwrap_err();
    assert!(matches!(failed, HandshakeError::TimedOut { during: RequestKind::ResolveAddr }), "{failed}");
    assert_eq!(drive.core().state(id), None);
}

fn listening(acks: Acks) -> (Driven, ChannelKey, IdKey) {
    let mut drive = driven();
    let (channel, listener) = channel_and_id(&mut drive, acks, PortSpace::Tcp);
    drive.listen(listener, 4).unwrap();
    calls(&mut drive);
    (drive, channel, listener)
}

fn incoming(drive: &mut Driven, channel: ChannelKey, listener: IdKey) -> Incoming {
    let id = requested(drive, listener);
    let event = drive.next_event(channel).unwrap();
    let incoming = Incoming::new(drive, event).unwrap();
    assert_eq!((incoming.id(), incoming.peer_addr(drive), incoming.local_addr(drive)), (id, Ok(addr(2)), Ok(addr(1))));
    assert_eq!(drive.core().id_info(listener).map_or(0, |it| it.owed), 0);
    incoming
}

#[test]
fn a_request_has_the_parameters_of_its_event() {
    let (mut drive, channel, listener) = listening(Acks::OnDelivery);
    let on = drive.core().device_channel(listener).unwrap();
    let child = drive.core().wants_event(on).unwrap();
    let (param, private_data) = (ReceivedParam(ConnParam { qp_num: 77, ..PARAM }), &b"secret"[..]);
    let request = RawEvent::new(child, CmEvent::ConnectRequest);
    has(&mut drive, RawEvent { listener: Some(listener), param, private_data, ..request });
    let _rest = drive.run(8);
    let event = drive.next_event(channel).unwrap();
    let incoming = Incoming::new(&mut drive, event).unwrap();
    assert_eq!((incoming.param(), incoming.private_data()), (param, private_data));
    tells_no(private_data, &format!("{incoming:?}"));
    drive.destroy(incoming.id(), Time::NEVER).unwrap();
    end(drive, channel, listener);
}

/// Private data of a peer may be secret: texts have its length.
#[track_caller]
fn tells_no(private_data: &[u8], text: &str) {
    let bytes = format!("{private_data:?}");
    for secret in [&*String::from_utf8_lossy(private_data), bytes.trim_matches(['[', ']'])] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn end(mut drive: Driven, channel: ChannelKey, listener: IdKey) {
    assert_eq!(drive.destroy(listener, Time::NEVER), Ok(Progress::Done));
    closes(drive, channel);
}

fn served(drive: &mut Driven, incoming: Incoming) -> Serve<u8> {
    incoming.accept(drive, PARAM, &[], DEADLINE, |_, _| Ok::<_, Error>(9)).unwrap()
}

#[test]
fn the_passive_side_ends_with_the_peers_confirmation_or_with_a_failure() {
    let ends: [(CmEvent, Option<Errno>); 3] = [
        (CmEvent::Established, None),
        (CmEvent::Unreachable, Some(Errno::EIO)),
        (CmEvent::DeviceRemoval, Some(Errno::ENODEV)),
    ];
    for (acks, (kind, errno)) in
        [Acks::Explicit, Acks::OnDelivery].into_iter().flat_map(|acks| ends.map(|end| (acks, end)))
    {
        let (mut drive, channel, listener) = listening(acks);
        let incoming = incoming(&mut drive, channel, listener);
        let mut serve = served(&mut drive, incoming);
        assert_eq!((serve.is_over(), drive.next_timeout()), (false, Some(DEADLINE)));
        report(&mut drive, serve.id(), kind);
        let event = drive.next_event(channel).unwrap();
        match (serve.handle(&mut drive, event), errno) {
            (Ok(Some(connected)), None) => {
                assert_eq!((connected.id, connected.attached), (serve.id(), 9));
                assert_eq!(drive.destroy(connected.id, Time::NEVER), Ok(Progress::Done));
            }
            (Err(failed), Some(errno)) => assert_eq!(failed.errno(), errno),
            (result, _) => panic!("{kind}: {result:?}"),
        }
        assert!(serve.is_over());
        end(drive, channel, listener);
    }
}

#[test]
fn an_accept_that_fails_destroys_the_id() {
    let (mut drive, channel, listener) = listening(Acks::Explicit);
    for call in ["migrate_id", "accept"] {
        let incoming = incoming(&mut drive, channel, listener);
        fails(&mut drive, call, Errno::EINVAL);
        let failed = incoming.accept(&mut drive, PARAM, &[], DEADLINE, |_, _| Ok::<_, Error>(9)).unwrap_err();
        assert_eq!(failed.errno(), Errno::EINVAL);
    }
    let waits = incoming(&mut drive, channel, listener);
    let serve = served(&mut drive, waits);
    assert_eq!(serve.cancel(&mut drive), Ok(Progress::Done));
    end(drive, channel, listener);
}

/// An error of the application.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("own error {0}")]
struct Own(u32);

#[test]
fn an_error_of_the_application_comes_back_unchanged_from_both_sides() {
    let (mut drive, channel, listener) = listening(Acks::Explicit);
    let incoming = incoming(&mut drive, channel, listener);
    let failed = incoming.accept(&mut drive, PARAM, &[], DEADLINE, |_, _| Err::<u8, _>(Own(4))).unwrap_err();
    assert_eq!((failed.errno(), failed.to_string().as_str()), (Errno::EIO, "own error 4"));
    let HandshakeError::Attach(own) = failed else { panic!("{failed}") };
    assert_eq!(own.downcast_ref(), Some(&Own(4)));
    end(drive, channel, listener);

    let (mut drive, channel, mut dial) = dialled(Acks::OnDelivery);
    report(&mut drive, dial.id(), CmEvent::AddrResolved);
    goes_on(fed(&mut drive, channel, &mut dial));
    report(&mut drive, dial.id(), CmEvent::RouteResolved);
    let event = drive.next_event(channel).unwrap();
    let failed = dial.handle(&mut drive, event, |_, _| Err::<u8, _>(Own(5))).unwrap_err();
    assert!(matches!(&failed, HandshakeError::Attach(own) if own.downcast_ref() == Some(&Own(5))), "{failed}");
    // An error of a request stays one, also on its way through the application's type of errors.
    let (mut drive, channel, mut dial) = dialled(Acks::OnDelivery);
    report(&mut drive, dial.id(), CmEvent::AddrResolved);
    goes_on(fed(&mut drive, channel, &mut dial));
    report(&mut drive, dial.id(), CmEvent::RouteResolved);
    let event = drive.next_event(channel).unwrap();
    let failed = dial.handle(&mut drive, event, |drive, id| {
        drive.listen(id, 1)?;
        Ok::<u8, cmid_proto::handshake::BoxError>(7)
    });
    let failed = failed.unwrap_err();
    assert!(matches!(failed, HandshakeError::Request(Error::Refused(_))), "{failed}");
}

#[test]
fn a_rejected_request_is_gone_even_if_the_reject_fails() {
    let (mut drive, channel, listener) = listening(Acks::Explicit);
    for (errno, result) in [(None, Ok(())), (Some(Errno::EINVAL), Err(Errno::EINVAL))] {
        let incoming = incoming(&mut drive, channel, listener);
        calls(&mut drive);
        if let Some(errno) = errno {
            fails(&mut drive, "reject", errno);
        }
        assert_eq!(incoming.reject(&mut drive, b"no").map_err(|error| error.errno()), result);
        assert_eq!(calls(&mut drive), ["reject", "destroy_id"]);
    }
    end(drive, channel, listener);
}

#[test]
fn other_events_are_no_requests() {
    let (mut drive, channel, listener) = listening(Acks::Explicit);
    report(&mut drive, listener, CmEvent::AddrChange);
    let event = drive.next_event(channel).unwrap();
    let event: Event = Incoming::new(&mut drive, event).unwrap_err();
    drive.ack(event.ack_token.unwrap()).unwrap();
    end(drive, channel, listener);
}

#[test]
fn a_release_that_fails_destroys_the_id_and_one_that_succeeds_is_adopted() {
    let (mut drive, channel, listener) = listening(Acks::Explicit);
    for call in ["migrate_id", "create_event_channel"] {
        let incoming = incoming(&mut drive, channel, listener);
        fails(&mut drive, call, Errno::EMFILE);
        assert_eq!(incoming.release(&mut drive).unwrap_err().errno(), Errno::EMFILE);
        assert_eq!(drive.core().ids().count(), 1);
    }
    let waits = incoming(&mut drive, channel, listener);
    let released = waits.release(&mut drive).unwrap();
    assert_eq!((drive.core().ids().count(), released.private_data()), (1, &[][..]));
    let mut other = driven();
    let to = other.open_channel(Acks::OnDelivery).unwrap();
    let adopted = released.adopt(&mut other, Some(to)).unwrap();
    assert_eq!((adopted.param(), adopted.private_data()), (Default::default(), &[][..]));
    assert_eq!(other.core().channel(adopted.id()), Some(to));

    // A migration to the channel of the adopting driver that fails destroys the id.
    let waits = incoming(&mut drive, channel, listener);
    let released = waits.release(&mut drive).unwrap();
    fails(&mut other, "migrate_id", Errno::EIO);
    assert_eq!(released.adopt(&mut other, Some(to)).unwrap_err().errno(), Errno::EIO);
    assert_eq!(other.core().ids().count(), 1);

    // Without a channel the id is in synchronous mode.
    let waits = incoming(&mut drive, channel, listener);
    let released = waits.release(&mut drive).unwrap();
    let adopted = released.adopt(&mut other, None).unwrap();
    assert!(other.core().id_info(adopted.id()).is_some_and(|it| it.is_sync));
    end(drive, channel, listener);
}

#[test]
fn synchronous_requests_and_lookups_end_without_an_event_on_a_channel() {
    let mut drive = driven();
    let listener = drive.create_id(None, PortSpace::Tcp).unwrap();
    drive.listen(listener, 4).unwrap();
    drive.get_request(listener, Time::NEVER).unwrap();
    requested(&mut drive, listener);
    let event = drive.core().sync_event(listener).unwrap();
    let incoming = Incoming::new(&mut drive, event).unwrap();
    let mut serve = served(&mut drive, incoming);
    assert!(drive.core().id_info(serve.id()).is_some_and(|it| it.is_sync));
    assert!(matches!(serve.poll(&mut drive), Ok(None)));
    report(&mut drive, serve.id(), CmEvent::Established);
    assert_eq!(serve.poll(&mut drive).unwrap().unwrap().attached, 9);

    let mut drive = driven();
    let (channel, listener) = channel_and_id(&mut drive, Acks::Explicit, PortSpace::Udp);
    drive.listen(listener, 4).unwrap();
    let waits = self::incoming(&mut drive, channel, listener);
    let mut serve = served(&mut drive, waits);
    assert_eq!(serve.poll(&mut drive).unwrap().unwrap().id, serve.id());
    // The active side of a lookup.
    let to = DialTo { port_space: PortSpace::Udp, ..to() };
    let mut dial = Dial::start(&mut drive, Some(channel), &to, DEADLINE).unwrap();
    for kind in [CmEvent::AddrResolved, CmEvent::RouteResolved] {
        report(&mut drive, dial.id(), kind);
        goes_on(fed(&mut drive, channel, &mut dial));
    }
    report(&mut drive, dial.id(), CmEvent::Established);
    assert!(fed(&mut drive, channel, &mut dial).unwrap().is_some());
}

#[test]
fn the_end_of_another_request_changes_nothing() {
    let (mut drive, channel, mut dial) = dialled(Acks::OnDelivery);
    connecting(&mut drive, channel, &mut dial);
    for kind in [EventKind::Migrated, EventKind::DeadlinePassed(RequestKind::Disconnect)] {
        report(&mut drive, dial.id(), CmEvent::AddrChange);
        let event = drive.next_event(channel).unwrap();
        goes_on(dial.handle(&mut drive, Event { kind, ..event }, |_, _| Ok::<_, Error>(7)));
    }
    assert_eq!(drive.core().state(dial.id()), Some(State::Connecting));
}
