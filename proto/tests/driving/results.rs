//! Events as results: their meaning, their text, and the errors they become.

use std::io;

use cmid_proto::datapath::{BatchError, PostCall, PostError, PostReason};
use cmid_proto::handshake::HandshakeError;
use cmid_proto::{
    AckError, Acks, CmEvent, Core, Errno, Error, ErrorWith, Event, EventError, EventKind, Fault, GroupKey, IdKey,
    Limits, PrivateData, RawEvent, ReceivedParam, RejectCode, Request, RequestKind, Status, Time, memory,
};

use crate::device::{driven, report, with_an_id};

fn event(kind: EventKind, status: i32) -> Event {
    let raw = RawEvent::new(IdKey::from_parts(0, 1, 1).unwrap(), CmEvent::Established);
    Event {
        id: raw.id,
        listener: None,
        kind,
        status,
        param: ReceivedParam::default(),
        datagram: None,
        group: None,
        private_data: PrivateData::EMPTY,
        ack_token: None,
    }
}

fn cm(kind: CmEvent, status: i32) -> Event {
    event(EventKind::Cm(kind), status)
}

#[test]
fn the_meaning_of_a_status() {
    let cases = [
        (cm(CmEvent::Established, 0), Status::Success, "id1: ESTABLISHED"),
        (cm(CmEvent::AddrError, -110), Status::Errno(Errno::ETIMEDOUT), "id1: ADDR_ERROR (ETIMEDOUT)"),
        (
            cm(CmEvent::Rejected, 8),
            Status::Reject(RejectCode::INVALID_SERVICE_ID),
            "id1: REJECTED (reason 8, no listener on this port)",
        ),
        (cm(CmEvent::Rejected, 34), Status::Reject(RejectCode(34)), "id1: REJECTED (reason 34)"),
        // iWARP.
        (cm(CmEvent::Rejected, -111), Status::Errno(Errno::ECONNREFUSED), "id1: REJECTED (ECONNREFUSED)"),
        (cm(CmEvent::Rejected, 0x1_0000), Status::Other(0x1_0000), "id1: REJECTED (status 65536)"),
        // A lookup that is not answered with success.
        (cm(CmEvent::Unreachable, 2), Status::Other(2), "id1: UNREACHABLE (status 2)"),
        (cm(CmEvent::Disconnected, i32::MIN), Status::Errno(Errno(i32::MAX)), "id1: DISCONNECTED (errno 2147483647)"),
        (event(EventKind::DeadlinePassed(RequestKind::Connect), 0), Status::Success, "id1: DEADLINE_PASSED(connect)"),
    ];
    for (event, meaning, text) in cases {
        assert_eq!((event.meaning(), event.to_string().as_str()), (meaning, text));
        let reason = if let Status::Reject(code) = meaning { Some(code) } else { None };
        assert_eq!(event.reject_code(), reason);
    }
    let request = Event { listener: IdKey::from_parts(0, 0, 1), ..cm(CmEvent::ConnectRequest, 0) };
    assert_eq!(request.to_string(), "id1: CONNECT_REQUEST on id0");
    let data = PrivateData::copy_of(b"no\0\0");
    let error =
        EventError { errno: Errno::ECONNREFUSED, event: Event { private_data: data, ..cm(CmEvent::Rejected, -111) } };
    assert_eq!(error.to_string(), "id1: REJECTED (ECONNREFUSED) with 2 bytes of private data");
    let joined = Event { group: GroupKey::from_parts(0, 2, 1), ..cm(CmEvent::MulticastJoin, 0) };
    assert_eq!(joined.to_string(), "id1: MULTICAST_JOIN of grp2");
    assert_eq!(joined.meaning().to_string(), "success");
}

#[test]
fn reject_codes_are_those_of_the_specification() {
    let codes: Vec<_> = RejectCode::ALL.iter().map(|code| code.0).collect();
    // 34 is reserved.
    assert_eq!(codes, (1..=33).chain([35]).collect::<Vec<u16>>());
    assert!(RejectCode::ALL.iter().all(|code| code.text().is_some()));
    assert_eq!(RejectCode(36).to_string(), "reason 36");
}

#[test]
fn an_event_becomes_a_result() {
    assert_eq!(
        cm(CmEvent::Established, 0).into_result().map(|event| event.kind),
        Ok(EventKind::Cm(CmEvent::Established))
    );
    let refused = cm(CmEvent::Rejected, 28).into_result().unwrap_err();
    let meaning = refused.event.meaning();
    assert_eq!((refused.errno, meaning), (Errno::ECONNREFUSED, Status::Reject(RejectCode::CONSUMER_DEFINED)));
    let text = "id1: REJECTED (reason 28, rejected by the application): ECONNREFUSED";
    assert_eq!(refused.to_string(), text);
    assert_eq!(format!("{refused:?}"), text);
    let unresolved = cm(CmEvent::AddrError, -110).into_result().unwrap_err();
    assert_eq!(unresolved.to_string(), "id1: ADDR_ERROR (ETIMEDOUT)");
    assert_eq!(io::Error::from(unresolved).kind(), io::ErrorKind::TimedOut);
    let results = [0, -5, 5, i32::MAX, i32::MIN].map(|status| cm(CmEvent::AddrChange, status).result());
    assert_eq!(results, [Ok(()), Err(Errno::EIO), Err(Errno::EIO), Err(Errno(i32::MAX)), Err(Errno::EINVAL)]);
    // A status of 0 is a failure where another request ends by it.
    assert!(cm(CmEvent::Disconnected, 0).into_result().is_ok());
    for (request, result) in [
        (RequestKind::Connect, Err(Errno::ECONNRESET)),
        (RequestKind::Disconnect, Ok(())),
        (RequestKind::Teardown, Ok(())),
    ] {
        assert_eq!(cm(CmEvent::Disconnected, 0).result_of(request), result);
        assert_eq!(cm(CmEvent::DeviceRemoval, 0).result_of(request), Err(Errno::ENODEV));
    }
    let reset = EventError { errno: Errno::ECONNRESET, event: cm(CmEvent::Disconnected, 0) };
    assert_eq!(reset.to_string(), "id1: DISCONNECTED: ECONNRESET");
}

#[test]
fn errors_become_io_errors_of_their_kind() {
    let refused = cm(CmEvent::Rejected, 28).into_result().unwrap_err();
    let text = refused.to_string();
    let ended = io::Error::from(HandshakeError::Ended { during: RequestKind::Connect, error: refused });
    assert_eq!((ended.kind(), ended.to_string()), (io::ErrorKind::ConnectionRefused, format!("connect: {text}")));
    assert!(ended.get_ref().is_some_and(|source| source.is::<HandshakeError>()));
    let timed_out = HandshakeError::TimedOut { during: RequestKind::Accept };
    assert_eq!(io::Error::from(timed_out).kind(), io::ErrorKind::TimedOut);
    assert_eq!(io::Error::from(Errno::EADDRINUSE).raw_os_error(), Some(98));
    let refused = PostError::new(PostCall::Send, 1, PostReason::QueueFull { max: 4 });
    let posted = BatchError { posted: 1, error: refused };
    assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(io::Error::from(posted).to_string(), posted.to_string());
    assert_eq!(io::Error::from(posted).kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(
        io::Error::from(memory::MemoryError::register(Errno::EBUSY, 1, None)).kind(),
        io::ErrorKind::ResourceBusy
    );
    let mut core = Core::new(Limits::SINGLE);
    let channel = core.open_channel(Acks::OnDelivery).unwrap().0;
    let id = IdKey::from_parts(0, 0, 1).unwrap();
    let absent = core.begin(Time::ZERO, id, &Request::Establish, Time::NEVER).unwrap_err();
    assert_eq!(io::Error::from(absent).kind(), io::ErrorKind::NotFound);
    assert_eq!(io::Error::from(Error::from(absent)).kind(), io::ErrorKind::NotFound);
    assert_eq!(io::Error::from(Fault::Read { channel, errno: Errno::EINTR }).kind(), io::ErrorKind::Interrupted);
}

#[test]
fn times_are_seconds() {
    let texts = [Time::ZERO, Time(12_000_000_500), Time::NEVER].map(|time| time.to_string());
    assert_eq!(texts, ["0.000000000 s", "12.000000500 s", "never"]);
}

#[test]
fn the_error_of_an_ack_becomes_an_io_error() {
    let (mut drive, channel, id) = with_an_id(Acks::Explicit);
    report(&mut drive, id, CmEvent::AddrChange);
    let event = drive.next_event(channel).unwrap();
    let refused = driven().ack(event.ack_token.unwrap()).unwrap_err();
    let text = refused.to_string();
    let error = io::Error::from(refused);
    assert!(error.get_ref().is_some_and(|source| source.is::<AckError>()));
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_error_with_a_value_has_the_source_of_its_error() {
    #[derive(Debug)]
    struct Caused(Errno);
    impl std::fmt::Display for Caused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("caused")
        }
    }
    impl std::error::Error for Caused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let error = ErrorWith::<_, Caused>::new(7, Caused(Errno::EIO));
    assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some(Errno::EIO.to_string()));
}
