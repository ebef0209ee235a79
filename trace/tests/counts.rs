//! Counters of one driver and of several.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cmid_blocking::{Connection, ListenOptions, Listener, Options};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{CreateError, DataPath};
use cmid_proto::{Acks, CmEvent, Limits, PortSpace, RequestKind, Time};
use cmid_sim::{Caps, Clock, Fabric, Host, Qp, SimDevice};
use cmid_trace::{Counting, Counts};

const SOON: Duration = Duration::from_secs(20);

fn host() -> (Host, SocketAddr) {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    (fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]), "10.0.0.2:7471".parse().unwrap())
}

fn counting() -> (Counting, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    (Counting::new(Arc::clone(&counts)), counts)
}

#[test]
fn requests_refusals_failures_events_and_deadlines_of_a_driver() {
    let (host, there) = host();
    let (counting, counts) = counting();
    let limits = Limits { core: Some(0), channels: 1, ..Limits::SINGLE };
    let mut epoll = Epoll::observed(host.device(), Config { limits, ..Config::default() }, counting).unwrap();
    assert_eq!(counts.to_string(), "");
    let channel = epoll.drive().open_channel(Acks::OnDelivery).unwrap();
    epoll.drive().open_channel(Acks::OnDelivery).unwrap_err();
    let [one, two] = [(); 2].map(|()| epoll.drive().create_id(Some(channel), PortSpace::Tcp).unwrap());
    for id in [one, two, one] {
        epoll.drive().establish(id).unwrap_err();
    }
    epoll.drive().bind(one, "10.9.9.9:1".parse().unwrap()).unwrap_err();
    epoll.drive().resolve_addr(one, None, there, Time::NEVER).unwrap();
    let soon = epoll.drive().within(Duration::from_micros(1));
    epoll.drive().resolve_addr(two, None, "10.0.0.9:1".parse().unwrap(), soon).unwrap();
    // The deadline passes before the first wait, because an event that comes in a wait precedes a deadline that passes
    // in it.
    thread::sleep(Duration::from_micros(10));
    let mut events = 0;
    while events < 2 {
        epoll.wait(Some(SOON)).unwrap();
        while epoll.drive().next_event(channel).is_some() {
            events += 1;
        }
    }
    epoll.drive().destroy(two, Time::NEVER).unwrap();
    epoll.drive().establish(two).unwrap_err();

    assert_eq!((counts.events(CmEvent::AddrResolved), counts.events(CmEvent::Unknown(99))), (1, 0));
    assert_eq!((counts.requests(RequestKind::ResolveAddr), counts.requests(RequestKind::Establish)), (2, 0));
    assert_eq!((counts.deadlines(RequestKind::ResolveAddr), counts.deadlines(RequestKind::Connect)), (1, 0));
    let (first, times) = counts.refusals()[1];
    assert_eq!((first.to_string().as_str(), times), ("establish on id0 while idle: not in this state", 3));
    assert_eq!(counts.failures(), [("bind_addr", 1)]);
    // The kernel's own ADDR_ERROR may follow the deadline.
    let text = counts.to_string().replace(", 1 ADDR_ERROR;", ";");
    assert_eq!(
        text,
        "events: 1 ADDR_RESOLVED; requests: 1 bind_addr, 2 resolve_addr, 1 destroy_id; refused: 1 (the limit on \
         channels is reached (Limits::channels; with cmid-mio, the number of its tokens)), 3 establish (not in this state), 1 establish (there is no such id); failed: 1 bind_addr; \
         deadlines: 1 resolve_addr"
    );
}

fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<Qp, CreateError> {
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 32)?);
    device.create_qp(to, &pd, &cq, &cq, Caps::default())
}

#[test]
fn siblings_count_together() {
    let (host, there) = host();
    let (ours, counts) = counting();
    let mut listener = Listener::observed(host.device(), ours, there, &ListenOptions::default()).unwrap();
    let ((client, theirs), device) = (counting(), host.device());
    let connect = move || Connection::observed(device, client, None, there, &Options::default(), attach).unwrap();
    let client = thread::spawn(connect);
    let server = listener.accept(SOON).unwrap().accept(&Options::default(), attach).unwrap();
    drop((client.join().unwrap(), server));
    for (counts, requests) in [(&counts, [0, 1]), (&theirs, [1, 0])] {
        assert_eq!([RequestKind::Connect, RequestKind::Accept].map(|kind| counts.requests(kind)), requests);
        assert_eq!(counts.events(CmEvent::Established), 1, "{counts}");
        assert!(counts.failures().is_empty() && counts.refusals().is_empty(), "{counts}");
    }
}

#[test]
fn deadlines_of_synchronous_mode_count() {
    let (host, there) = host();
    // A listener that answers no request.
    let _listener = Listener::bind(host.device(), there).unwrap();
    let (counting, counts) = counting();
    let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
    let failed = Connection::observed(host.device(), counting, None, there, &options, attach).map(drop).unwrap_err();
    assert!(matches!(failed, cmid_blocking::Error::TimedOut { during: "connect" }), "{failed}");
    assert_eq!((counts.deadlines(RequestKind::Connect), counts.deadlines(RequestKind::ResolveAddr)), (1, 0));
}
