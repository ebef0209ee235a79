//! Errors of users of RDMA devices, on the simulated fabric: each is one line with a remedy.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_mio::proto::handshake::{Dial, DialTo, HandshakeError, Incoming};
use cmid_mio::proto::{Acks, CmEvent, Limits, Next, PortSpace, PrivateData};
use cmid_mio::sim::{Clock, Config, Fabric, Host, SimDevice};
use cmid_mio::{Config as DriverConfig, Mio};
use mio::{Events, Poll};
use replog::links::{Links as _, Polled as _};
use replog::rdma::Rdma;

/// The limit of each wait. Test machines may be slow.
const PATIENCE: Duration = Duration::from_secs(30);

const ADDRS: [&str; 2] = ["10.0.0.1:7500", "10.0.0.2:7500"];

fn addrs() -> [SocketAddr; 2] {
    ADDRS.map(|addr| addr.parse().expect("an address"))
}

fn hosts() -> [Host; 2] {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    addrs().map(|addr| fabric.host(&[addr.ip()]))
}

/// Starts replica `id` on a host. Returns its error.
fn error_of(host: &Host, id: usize) -> String {
    let poll = Poll::new().expect("a poll");
    let started = Rdma::new(host.device(), poll.registry(), id, &addrs());
    let said = started.map(|_| ()).expect_err("an error").to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn an_address_is_of_another_machine() {
    let [first, _] = hosts();
    assert_eq!(
        error_of(&first, 1),
        "10.0.0.2:7500 is not an address of this machine: give --id the number of this replica"
    );
}

#[test]
fn an_address_is_of_no_rdma_device() {
    let [first, _] = hosts();
    first.add_plain_addr(addrs()[1].ip());
    let expected = "no RDMA device has 10.0.0.2:7500: select an address from `rdma link` and `ip address`";
    assert_eq!(error_of(&first, 1), expected);
}

#[test]
fn a_port_is_in_use() {
    let ([first, _], poll) = (hosts(), Poll::new().expect("a poll"));
    let _running = Rdma::new(first.device(), poll.registry(), 0, &addrs()).expect("a replica");
    assert_eq!(error_of(&first, 0), "10.0.0.1:7500 is in use: stop the other program, or select another port");
}

/// A program with its driver and loop.
struct Program {
    poll: Poll,
    driver: Mio<SimDevice>,
}

impl Program {
    fn new(host: &Host) -> Self {
        let poll = Poll::new().expect("a poll");
        let config = DriverConfig { limits: Limits::default(), tokens: 0..8 };
        let driver = Mio::new(host.device(), poll.registry(), config).expect("a driver");
        Program { poll, driver }
    }

    fn turn(&mut self) {
        let (mut events, at_most) = (Events::with_capacity(8), Duration::from_millis(2));
        let timeout = self.driver.timeout(Some(at_most)).unwrap_or(at_most);
        self.poll.poll(&mut events, Some(timeout)).expect("a poll");
        events.iter().for_each(|event| _ = self.driver.handle(event));
        while self.driver.turn() == Next::Again {}
    }
}

/// The private data of replica 0 or 1 of version 9.
fn hello_of_version_9(id: u8) -> [u8; 8] {
    [b'r', b'e', b'p', b'l', b'o', b'g', 9, id]
}

#[test]
fn a_peer_that_listens_has_another_version() {
    let [first, second] = hosts();
    let mut peer = Program::new(&second);
    let drive = peer.driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
    let listener = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
    drive.bind(listener, addrs()[1]).expect("bind");
    drive.listen(listener, 1).expect("listen");

    let mut poll = Poll::new().expect("a poll");
    let mut replica = Rdma::new(first.device(), poll.registry(), 0, &addrs()).expect("a replica");
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < PATIENCE, "no error");
        peer.turn();
        while let Some(event) = peer.driver.drive().next_event(channel) {
            if event.cm() == Some(CmEvent::ConnectRequest) {
                let drive = peer.driver.drive();
                let incoming = Incoming::new(drive, event).expect("a request");
                incoming.reject(drive, &hello_of_version_9(1)).expect("reject");
            }
        }
        let mut events = Events::with_capacity(8);
        let timeout = replica.before_poll(Duration::from_millis(2));
        poll.poll(&mut events, Some(timeout)).expect("a poll");
        events.iter().for_each(|event| _ = replica.handle(event));
        if let Err(error) = replica.turn() {
            break error.to_string();
        }
    };
    assert_eq!(error, "replica 1 has version 9, this one 1: install one version everywhere");
}

#[test]
fn a_peer_that_connects_has_another_version() {
    let ([first, second], mut poll) = (hosts(), Poll::new().expect("a poll"));
    let mut replica = Rdma::new(second.device(), poll.registry(), 1, &addrs()).expect("a replica");
    let mut peer = Program::new(&first);
    let drive = peer.driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
    let private_data = PrivateData::copy_of(&hello_of_version_9(0));
    let mut to = DialTo { private_data, ..DialTo::new(addrs()[1]) };
    // The request is rejected, so it needs no QP.
    to.param.qp_num = 0x10_0000;
    let deadline = drive.within(PATIENCE);
    let mut dial = Dial::<()>::start(drive, Some(channel), &to, deadline).expect("a dial");
    let rejection = 'rejected: loop {
        peer.turn();
        while let Some(event) = peer.driver.drive().next_event(channel) {
            match dial.handle(peer.driver.drive(), event, |_, _| Ok::<_, cmid_mio::proto::Error>(())) {
                Err(HandshakeError::Ended { error, .. }) => break 'rejected error,
                Ok(None) => {}
                other => panic!("{other:?}"),
            }
        }
        let mut events = Events::with_capacity(8);
        let timeout = replica.before_poll(Duration::from_millis(2));
        poll.poll(&mut events, Some(timeout)).expect("a poll");
        events.iter().for_each(|event| _ = replica.handle(event));
        replica.turn().expect("the replica goes on");
    };
    // The rejection names the version, so that the peer can report it.
    assert_eq!(rejection.event.private_data[..8], *b"replog\x01\x01");
}
