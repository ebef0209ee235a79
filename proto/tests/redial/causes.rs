//! What [`Cause::of`] makes of the error of a handshake.

use cmid_proto::handshake::HandshakeError;
use cmid_proto::redial::{CROSSED, Cause};
use cmid_proto::{
    ChannelKey, CmEvent, Errno, Error, Event, EventError, EventKind, Failure, FailureCause, IdKey, PrivateData,
    RawEvent, RefuseReason, Refused, RejectCode, RequestKind, State, Target,
};

fn id() -> IdKey {
    IdKey::from_parts(0, 1, 1).unwrap()
}

fn ended(kind: CmEvent, status: i32, private_data: &[u8]) -> Cause {
    let raw = RawEvent::new(id(), kind);
    let event = Event {
        id: raw.id,
        kind: EventKind::Cm(kind),
        status,
        listener: None,
        group: None,
        param: raw.param,
        datagram: None,
        private_data: PrivateData::copy_of(private_data),
        ack_token: None,
    };
    let error = EventError { errno: Errno::ECONNREFUSED, event };
    Cause::of(&HandshakeError::Ended { during: RequestKind::Connect, error })
}

/// As the kernel delivers it: 148 bytes, the rest is zero.
fn padded(data: &[u8]) -> Vec<u8> {
    let mut padded = data.to_vec();
    padded.resize(148, 0);
    padded
}

#[test]
fn a_peer_that_is_gone_is_told_from_one_that_refuses() {
    for status in [28, -Errno::ECONNREFUSED.0] {
        assert_eq!(ended(CmEvent::Rejected, status, &padded(b"")), Cause::Heals);
        assert_eq!(ended(CmEvent::Rejected, status, b""), Cause::Heals);
        assert_eq!(ended(CmEvent::Rejected, status, &padded(b"not you")), Cause::Refused);
        assert_eq!(ended(CmEvent::Rejected, status, &padded(CROSSED)), Cause::Crossed);
    }
    assert_eq!(ended(CmEvent::Rejected, 10, &padded(b"")), Cause::Stale);
    assert_eq!(ended(CmEvent::Rejected, 8, &padded(b"")), Cause::Heals);
}

#[test]
fn each_reason_of_a_reject_has_its_cause() {
    let unfit: Vec<_> = RejectCode::ALL
        .iter()
        .filter(|code| ended(CmEvent::Rejected, code.0.into(), b"") == Cause::Unfit)
        .map(|code| code.0)
        .collect();
    assert_eq!(unfit, [5, 9, 27, 29, 31, 35]);
}

#[test]
fn every_other_event_and_the_deadline_heal() {
    for kind in CmEvent::ALL.iter().copied().filter(|kind| *kind != CmEvent::Rejected) {
        for status in [0, -1, -110, 10, 28] {
            assert_eq!(ended(kind, status, b"data"), Cause::Heals, "{kind} {status}");
        }
    }
    assert_eq!(Cause::of(&HandshakeError::TimedOut { during: RequestKind::Connect }), Cause::Heals);
}

#[test]
fn an_error_of_the_application_does_not_heal() {
    assert_eq!(Cause::of(&HandshakeError::Attach("no licence".into())), Cause::Unfit);
}

fn failed(errno: Errno, cause: Option<FailureCause>) -> Cause {
    let failure = Failure { call: "connect", target: Target::Id(id()), state: State::RouteResolved, errno, cause };
    Cause::of(&HandshakeError::Request(Error::Failed(failure)))
}

#[test]
fn a_failed_request_heals_unless_rights_or_arguments_are_wrong() {
    for errno in [Errno::ENODEV, Errno::ENETUNREACH, Errno::EADDRNOTAVAIL, Errno::ENOMEM, Errno::EINVAL] {
        assert_eq!(failed(errno, None), Cause::Heals, "{errno}");
    }
    for errno in [Errno::EACCES, Errno::EPERM, Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT] {
        assert_eq!(failed(errno, None), Cause::Unfit, "{errno}");
    }
    assert_eq!(failed(Errno::ENODEV, Some(FailureCause::LoopbackPeer)), Cause::Unfit);
}

#[test]
fn a_refused_request_heals_if_it_was_for_the_state_of_the_id() {
    let refused = |refused| Cause::of(&HandshakeError::Request(Error::Refused(refused)));
    let request = |reason| Refused::Request { id: id(), request: RequestKind::Connect, state: State::Removed, reason };
    assert_eq!(refused(request(RefuseReason::DeviceGone)), Cause::Heals);
    assert_eq!(refused(Refused::Full("ids")), Cause::Heals);
    assert_eq!(refused(request(RefuseReason::NoChannelLeft)), Cause::Heals);
    let channel = ChannelKey::from_parts(0, 1, 1).unwrap();
    for reason in [
        RefuseReason::PrivateDataTooLong { len: 57, max: 56 },
        RefuseReason::MappedAddress,
        RefuseReason::NoVendor,
        RefuseReason::IsBound,
        RefuseReason::AlreadySent,
        RefuseReason::NoSuchChannel(channel),
        RefuseReason::ChannelFailed(channel),
    ] {
        assert_eq!(refused(request(reason)), Cause::Unfit, "{reason}");
    }
    assert_eq!(refused(Refused::ChannelFailed { channel }), Cause::Unfit);
}
