//! A simulated host and the steps that the tests share.
#![allow(dead_code, unused_imports, clippy::unwrap_used, reason = "for tests, each of which uses some of it")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Blocking, Canceller, Connection, Incoming, Listener, Options};
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{CreateError, DataPath};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, Limits, PortSpace, Time};
use cmid_sim::{Caps, Host, Qp, SimDevice};

pub(crate) use cmid_harness::sim_host as host;

/// Longer than any wait of these tests, also on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A time in which no event comes.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);
/// The time limit of a wait that only its canceller ends.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);

pub(crate) fn server() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

pub(crate) fn qp(device: &mut SimDevice, attaching: Attaching<'_>) -> Result<Qp, CreateError> {
    let (pd, cq) = (device.alloc_pd(attaching.id())?, device.create_cq(attaching.id(), 32)?);
    device.create_qp(attaching, &pd, &cq, &cq, Caps::default())
}

/// A host, and a listener on it.
pub(crate) fn listening() -> (Host, Listener<SimDevice>) {
    let host = host();
    let listener = Listener::bind(host.device(), server()).unwrap();
    (host, listener)
}

/// One side of a connection and its QP.
pub(crate) type Side = (Connection<SimDevice>, Qp);

/// Both sides of a connection, the active one first.
pub(crate) fn connected(host: &Host) -> (Side, Side) {
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), qp).unwrap());
    let active = Connection::connect(host.device(), server(), &patient(), qp).unwrap();
    (active, passive.join().unwrap())
}

pub(crate) fn patient() -> Options<'static> {
    Options { timeout: SOON, ..Options::default() }
}

/// The next number of a QP that does not exist. Two connections of a host must not have the same number.
static QP_NUM: AtomicU32 = AtomicU32::new(9);

/// A client that has requested a connection and does not confirm it. It has no QP, so librdmacm does not confirm it
/// either.
#[derive(Debug)]
pub(crate) struct Silent {
    driver: Blocking<SimDevice>,
    channel: ChannelKey,
}

impl Silent {
    pub(crate) fn connecting(host: &Host) -> Self {
        let mut driver = Blocking::new(host.device(), Limits::SINGLE, Canceller::new().unwrap());
        let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
        let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
        let mut silent = Silent { driver, channel };
        silent.driver.drive().resolve_addr(id, None, server(), Time::NEVER).unwrap();
        assert_eq!(silent.awaits().cm(), Some(CmEvent::AddrResolved));
        silent.driver.drive().resolve_route(id, Time::NEVER).unwrap();
        assert_eq!(silent.awaits().cm(), Some(CmEvent::RouteResolved));
        let param = ConnParam { qp_num: QP_NUM.fetch_add(1, Ordering::Relaxed), ..ConnParam::default() };
        silent.driver.drive().connect(id, param, &[], Time::NEVER).unwrap();
        silent
    }

    pub(crate) fn awaits(&mut self) -> Event {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.driver.drive().next_event(self.channel) {
                return event;
            }
            assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
            self.driver.wait(Some(SOON)).unwrap();
        }
    }
}

/// A connection request of a client that does not confirm the connection.
pub(crate) fn incoming(host: &Host) -> (Silent, Incoming<SimDevice>) {
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let client = Silent::connecting(host);
    let incoming = listener.accept(SOON).unwrap();
    (client, incoming)
}
