//! The `std::net`-like face on the simulator: what goes well, and every way in which a wait ends.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Canceller, Connection, Error, Listener, Options};
use cmid_proto::{CmEvent, Errno, IdKey, State};
use cmid_sim::{Caps, Clock, Config, Fabric, Host, Qp, SimDevice};

const SOON: Duration = Duration::from_secs(5);

fn host() -> Host {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()])
}

fn server() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

fn qp(device: &mut SimDevice, id: IdKey) -> Result<Qp, Errno> {
    let (pd, cq) = (device.alloc_pd(id)?, device.create_cq(id, 16)?);
    device.create_qp(id, &pd, &cq, &cq, Caps::default())
}

#[test]
fn a_connection_carries_private_data_and_ends_on_both_sides() {
    let host = host();
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    assert_eq!(listener.local_addr().unwrap(), server());
    let passive = thread::spawn(move || {
        let incoming = listener.accept(SOON).unwrap();
        assert_eq!(&incoming.private_data()[..6], b"hello\0");
        let options = Options { private_data: b"welcome", ..Options::default() };
        let (mut connection, _qp) = incoming.accept(&options, qp).unwrap();
        assert_eq!(connection.peer_addr().unwrap().ip(), "10.0.0.1".parse::<std::net::IpAddr>().unwrap());
        connection.wait_closed(SOON).unwrap();
        connection.disconnect(SOON).unwrap();
    });
    let source = Some("10.0.0.1:0".parse().unwrap());
    let options = Options { source, private_data: b"hello", ..Options::default() };
    let (mut connection, _qp) = Connection::connect(host.device(), server(), &options, qp).unwrap();
    assert_eq!(connection.state(), State::Connected);
    assert_eq!(&connection.private_data()[..8], b"welcome\0");
    connection.disconnect(SOON).unwrap();
    assert_eq!(connection.state(), State::TimeWait);
    passive.join().unwrap();
}

#[test]
fn a_refusal_says_why() {
    let host = host();
    let error = Connection::connect(host.device(), server(), &Options::default(), qp).unwrap_err();
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    assert_eq!(error.to_string(), "connect: ECONNREFUSED (REJECTED with status 8)");

    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().reject(b"full").unwrap());
    let error = Connection::connect(host.device(), server(), &Options::default(), qp).unwrap_err();
    let Error::Ended { event, .. } = error else { panic!("{error}") };
    assert_eq!((event.cm(), event.status, &event.private_data[..5]), (Some(CmEvent::Rejected), 28, &b"full\0"[..]));
    passive.join().unwrap();

    let nowhere =
        Connection::connect(host.device(), "8.8.8.8:1".parse().unwrap(), &Options::default(), qp).unwrap_err();
    assert_eq!(nowhere.errno(), Errno::ENETUNREACH);
}

#[test]
fn every_wait_has_a_deadline() {
    let host = host();
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let begun = Instant::now();
    assert!(matches!(listener.accept(Duration::from_millis(50)), Err(Error::TimedOut { .. })));
    // The listener does not answer; the kernel would wait for a quarter of an hour.
    let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
    let error = Connection::connect(host.device(), server(), &options, qp).unwrap_err();
    assert!(matches!(error, Error::TimedOut { during: "connect" }), "{error}");
    assert!(begun.elapsed() < SOON);
}

#[test]
fn a_second_thread_ends_a_wait() {
    let host = host();
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let cancel = listener.canceller();
    let accepting = thread::spawn(move || listener.accept(Duration::from_secs(600)).map(drop));
    thread::sleep(Duration::from_millis(50));
    cancel.cancel();
    assert!(matches!(accepting.join().unwrap(), Err(Error::Cancelled { during: "accept" })));

    let _silent = Listener::bind(host.device(), server()).unwrap();
    let canceller = Canceller::new().unwrap();
    let options =
        Options { canceller: Some(canceller.clone()), timeout: Duration::from_secs(600), ..Options::default() };
    let device = host.device();
    thread::scope(|scope| {
        let connecting = scope.spawn(move || Connection::connect(device, server(), &options, qp).map(drop));
        thread::sleep(Duration::from_millis(50));
        canceller.cancel();
        assert!(matches!(connecting.join().unwrap(), Err(Error::Cancelled { during: "connect" })));
    });
}
