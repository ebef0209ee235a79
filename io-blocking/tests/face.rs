//! The interface like `std::net` on the simulator: successes, refusals and drops.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::thread;

use cmid_blocking::{Blocking, Connection, Error, Incoming, ListenOptions, Listener, Options};
use cmid_proto::datapath::Attaching;
use cmid_proto::{CmEvent, CmOption, Device as _, Ece, Errno, State};
use cmid_sim::{Qp, SimDevice};

use common::{SOON, Silent, host, incoming, listening, patient, qp, server};

#[test]
fn a_connection_carries_private_data_and_ends_on_both_sides() {
    let (host, mut listener) = listening();
    assert_eq!(listener.local_addr().unwrap(), server());
    let passive = thread::spawn(move || {
        let incoming = listener.accept(SOON).unwrap();
        assert_eq!(&incoming.private_data()[..6], b"hello\0");
        let options = Options { private_data: b"welcome", ..patient() };
        let (mut connection, _qp) = incoming.accept(&options, qp).unwrap();
        assert_eq!(connection.peer_addr().unwrap().ip(), "10.0.0.1".parse::<std::net::IpAddr>().unwrap());
        connection.wait_closed(SOON).unwrap();
        connection.disconnect(SOON).unwrap();
    });
    let source = Some("10.0.0.1:0".parse().unwrap());
    let options = Options { source, private_data: b"hello", ..patient() };
    let (mut connection, _qp) = Connection::connect(host.device(), server(), &options, qp).unwrap();
    assert_eq!(connection.state(), State::Connected);
    assert_eq!(&connection.private_data()[..8], b"welcome\0");
    connection.disconnect(SOON).unwrap();
    assert_eq!(connection.state(), State::TimeWait);
    passive.join().unwrap();
}

/// An error of the application, with a cause.
#[derive(Debug, thiserror::Error)]
#[error("no licence")]
struct Unlicensed(#[source] std::num::ParseIntError);

fn unlicensed(_: &mut SimDevice, _: Attaching<'_>) -> Result<Qp, Unlicensed> {
    "many".parse().map_err(Unlicensed).map(|count: u32| unreachable!("{count} licences"))
}

#[test]
fn an_attach_fails_with_any_error_and_both_sides_return_it_unchanged() {
    let (host, mut listener) = listening();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), unlicensed).err().unwrap());
    let refused = Connection::connect(host.device(), server(), &patient(), qp).unwrap_err();
    assert_eq!(refused.errno(), Errno::ECONNREFUSED, "the drop of the id has rejected the peer");
    let active = Connection::connect(host.device(), server(), &patient(), unlicensed).err().unwrap();
    for error in [passive.join().unwrap(), active] {
        assert_eq!((error.errno(), error.to_string().as_str()), (Errno::EIO, "no licence"));
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "invalid digit found in string", "each text comes once");
        let Error::Attach(own) = error else { panic!("{error}") };
        assert!(own.is::<Unlicensed>());
    }
    // The errors of the data path keep the id and its state.
    let no_memory = |_: &mut SimDevice, _: Attaching<'_>| Err::<(), _>(Errno::ENOMEM);
    let failed = Connection::connect(host.device(), server(), &patient(), no_memory).err().unwrap();
    assert!(failed.to_string().starts_with("failed: create_qp on "), "{failed}");
    assert_eq!(failed.errno(), Errno::ENOMEM);
}

#[test]
fn a_refusal_says_why() {
    let host = host();
    let error = Connection::connect(host.device(), server(), &patient(), qp).unwrap_err();
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    let text = error.to_string();
    let ends = text.ends_with("id0: REJECTED (reason 8, no listener on this port): ECONNREFUSED");
    assert!(text.starts_with("connect: ") && ends, "{text}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::ConnectionRefused);

    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().reject(b"full").unwrap());
    let error = Connection::connect(host.device(), server(), &patient(), qp).unwrap_err();
    let text = error.to_string();
    let ends =
        text.ends_with("REJECTED (reason 28, rejected by the application) with 4 bytes of private data: ECONNREFUSED");
    assert!(ends, "{text}");
    assert_eq!(error.reject_data().map(|data| &data[..5]), Some(&b"full\0"[..]));
    passive.join().unwrap();

    let nowhere = Connection::connect(host.device(), "8.8.8.8:1".parse().unwrap(), &patient(), qp).unwrap_err();
    assert_eq!(nowhere.errno(), Errno::ENETUNREACH);
}

#[test]
fn a_request_that_is_dropped_is_turned_down() {
    let (mut client, incoming) = incoming(&host());
    drop(incoming);
    assert_eq!(client.awaits().cm(), Some(CmEvent::Rejected));
}

#[test]
fn a_listener_that_is_dropped_turns_down_what_it_has_read() {
    let (host, mut listener) = listening();
    let mut clients = [(); 3].map(|()| Silent::connecting(&host));
    let taken = listener.accept(SOON).unwrap();
    drop(listener);
    let ends: Vec<_> = clients[1..].iter_mut().map(|client| client.awaits().cm()).collect();
    assert_eq!(ends, [Some(CmEvent::Rejected); 2]);
    // The request that was taken has a driver of its own.
    taken.reject(&[]).unwrap();
    assert_eq!(clients[0].awaits().cm(), Some(CmEvent::Rejected));
}

#[test]
fn options_are_set_before_anything_else() {
    let host = host();
    let settings = [CmOption::Tos(32), CmOption::AckTimeout(14)];
    let ece = Some(Ece { vendor_id: 0x1234, options: 5 });
    let listen = ListenOptions { settings: &[CmOption::ReuseAddr(true)], backlog: 4 };
    let mut listener = Listener::bind_with(host.device(), server(), &listen).unwrap();
    let passive = thread::spawn(move || {
        let mut incoming = listener.accept(SOON).unwrap();
        assert_eq!(incoming.local_addr().unwrap(), server());
        let (id, driver) = incoming.parts();
        // With a QP on the id, the request carries the QP's ECE. A simulated QP has none.
        assert_eq!(driver.drive().device().remote_ece(id).unwrap(), Ece::default());
        incoming.accept(&Options { settings: &[CmOption::AckTimeout(14)], ..patient() }, qp).unwrap()
    });
    let options = Options { settings: &settings, ece, ..patient() };
    Connection::connect(host.device(), server(), &options, qp).unwrap();
    passive.join().unwrap();

    // An option that cannot be set in this state is refused, and all resources of the accept are released.
    let late = Options { settings: &[CmOption::AfOnly(true)], ..patient() };
    let (mut client, incoming) = incoming(&host);
    assert!(matches!(incoming.accept(&late, qp), Err(Error::Core(cmid_proto::Error::Refused(_)))));
    assert_eq!(client.awaits().cm(), Some(CmEvent::Rejected));
}

#[test]
fn all_of_it_goes_to_other_threads() {
    fn sendable<T: Send>() {}
    sendable::<Listener<SimDevice>>();
    sendable::<Incoming<SimDevice>>();
    sendable::<Connection<SimDevice>>();
    sendable::<Blocking<SimDevice>>();
    sendable::<Error>();
}
