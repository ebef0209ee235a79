//! rdma_resolve_route with an ibacm that does not answer.
//!
//! `device ibacm` is a process of its own, because librdmacm looks for ibacm once. It listens on ibacm's socket, and
//! on request sends the answer of an ibacm that knows no path.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::{Acks, Call, CmEvent, Drive, Errno, EventKind, Limits, Pollable, PortSpace, Time};
use cmid_verbs::{Backend, Verbs};

use crate::env::{CLIENT, Pair, Side, backend, channel_key};

const SOCKET: &str = "/run/ibacm.sock";
/// The time limit of a call that does not block, on an emulated machine.
const AT_ONCE: Duration = Duration::from_millis(300);

/// Whether it answers.
static ANSWERS: AtomicBool = AtomicBool::new(false);

pub(crate) fn silent() {
    let daemon = UnixListener::bind(SOCKET).expect("nobody else has ibacm's socket");
    thread::spawn(move || daemon.incoming().for_each(|client| serve(client.expect("a connection"))));

    match backend() {
        Backend::Librdmacm => {
            resolved_through_it();
            the_device_goes_on();
        }
        Backend::Kernel => never_contacted(),
        other => panic!("{other}"),
    }
    _ = std::fs::remove_file(SOCKET);
}

/// Answers requests until the process is killed: an ibacm that knows no path.
pub(crate) fn stand_in() {
    ANSWERS.store(true, Ordering::SeqCst);
    let daemon = UnixListener::bind(SOCKET).expect("nobody else has ibacm's socket");
    daemon.incoming().for_each(|client| serve(client.expect("a connection")));
}

/// The kernel backend makes connections while ibacm is silent.
fn never_contacted() {
    let from = Instant::now();
    drop(Pair::connected());
    println!("ok  ibacm is silent: a connection takes {:?}", from.elapsed());
    assert!(from.elapsed() < 5 * AT_ONCE);
    let mut side = Side::new();
    let id = side.with_addr();
    side.ok(&Call::ResolveRoute { id, timeout_ms: 2_000 });
    side.expect(CmEvent::RouteResolved);
    side.ok(&Call::Destroy { id });
}

/// While ibacm answers, connections can be made, and failures of the call are reported as events.
fn resolved_through_it() {
    ANSWERS.store(true, Ordering::SeqCst);
    let pair = Pair::connected();
    drop(pair);
    let mut side = Side::new();
    let id = side.id();
    let dst = SocketAddr::from(([127, 0, 0, 1], 7));
    side.ok(&Call::ResolveAddr { id, src: None, dst, timeout_ms: 2_000 });
    side.expect(CmEvent::AddrResolved);
    side.ok(&Call::ResolveRoute { id, timeout_ms: 2_000 });
    let seen = side.event_within(Duration::from_secs(5)).expect("an event");
    assert_eq!((seen.id, seen.kind, seen.status), (id, CmEvent::RouteError, -Errno::ENODEV.0));
    side.quiet(50);
    println!("ok  ibacm answers: connections are made, and a failure is ROUTE_ERROR");
}

/// ibacm does not answer. No operation on the ids blocks.
fn the_device_goes_on() {
    ANSWERS.store(false, Ordering::SeqCst);
    let (mut side, mut other) = (Side::new(), Side::new());
    let [stuck, queued] = [side.with_addr(), side.with_addr()];
    let from = Instant::now();
    side.ok(&Call::ResolveRoute { id: stuck, timeout_ms: 2_000 });
    side.ok(&Call::ResolveRoute { id: queued, timeout_ms: 2_000 });
    assert!(from.elapsed() < AT_ONCE, "{:?}", from.elapsed());
    side.quiet(1_000);

    // Other ids are not delayed, and the events of the own core arrive.
    let (_, addr) = other.listener();
    let id = side.id();
    side.ok(&Call::ResolveAddr { id, src: None, dst: addr, timeout_ms: 2_000 });
    side.expect(CmEvent::AddrResolved);
    by_deadline();

    let from = Instant::now();
    let spare = channel_key(7, 1);
    side.ok(&Call::OpenChannel { channel: spare });
    side.fails(&Call::Migrate { id: stuck, from: side.channel, to: spare }, Errno::EBUSY);
    side.fails(&Call::ResolveRoute { id: stuck, timeout_ms: 1 }, Errno::EBUSY);
    side.ok(&Call::Migrate { id: queued, from: side.channel, to: spare });
    side.ok(&Call::Migrate { id: queued, from: spare, to: side.channel });
    side.ok(&Call::Destroy { id: queued });
    side.ok(&Call::Destroy { id: stuck });
    assert!(from.elapsed() < 2 * AT_ONCE, "{:?}", from.elapsed());
    assert_eq!(side.device.set_aside(), (1, 0));
    side.quiet(200);

    // ibacm answers late: the id that was kept for the call is destroyed.
    ANSWERS.store(true, Ordering::SeqCst);
    side.quiet(1_000);
    assert_eq!(side.device.set_aside(), (0, 0));
    println!("ok  ibacm is silent: nothing waits for it, and what it held up goes when it answers");

    // While ibacm does not answer, everything can be dropped.
    ANSWERS.store(false, Ordering::SeqCst);
    let mut side = Side::new();
    let id = side.with_addr();
    side.ok(&Call::ResolveRoute { id, timeout_ms: 2_000 });
    thread::sleep(Duration::from_millis(200));
    let from = Instant::now();
    drop(side);
    assert!(from.elapsed() < AT_ONCE, "{:?}", from.elapsed());
    ANSWERS.store(true, Ordering::SeqCst);
    thread::sleep(Duration::from_millis(500));
    drop(Pair::connected());
    println!("ok  ibacm is silent: the device is dropped, and others are made");
}

/// The request ends at its deadline.
fn by_deadline() {
    let mut drive = Drive::new(crate::env::open(), Limits::default());
    let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
    let id = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
    let dst = SocketAddr::from((CLIENT, 7));
    drive.resolve_addr(id, None, dst, Time::NEVER).expect("resolve_addr");
    let turn = |drive: &mut Drive<Verbs>| {
        let fd = drive.device().fd(channel).expect("known");
        if crate::env::readable(fd, Instant::now() + Duration::from_millis(100)) {
            drive.readable(channel);
        }
        _ = drive.run(64);
        drive.next_event(channel).map(|event| event.kind)
    };
    let resolved = (0..50).find_map(|_| turn(&mut drive));
    assert_eq!(resolved, Some(EventKind::Cm(CmEvent::AddrResolved)));
    drive.set_now(Time(1_000));
    drive.resolve_route(id, Time(2_000)).expect("resolve_route");
    assert_eq!(turn(&mut drive), None);
    drive.set_now(Time(2_000));
    let passed = (0..50).find_map(|_| turn(&mut drive));
    assert!(matches!(passed, Some(EventKind::DeadlinePassed(_))), "{passed:?}");
    drive.destroy(id, Time::NEVER).expect("destroy");
}

/// Reads requests, and answers "no path" to each once `ANSWERS` is set.
fn serve(mut client: UnixStream) {
    thread::spawn(move || {
        let mut request = [0; 4096];
        while let Ok(len @ 16..) = client.read(&mut request) {
            while !ANSWERS.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            // The status, which is the third byte (struct acm_hdr): ENODATA.
            request[2] = 1;
            if client.write_all(&request[..len]).is_err() {
                return;
            }
        }
    });
}

impl Side {
    /// Makes an id with a resolved address.
    fn with_addr(&mut self) -> cmid_proto::IdKey {
        let id = self.id();
        let src = Some(SocketAddr::from((CLIENT, 0)));
        let dst = SocketAddr::from((crate::env::SERVER, 7));
        self.ok(&Call::ResolveAddr { id, src, dst, timeout_ms: 2_000 });
        assert_eq!(self.expect(CmEvent::AddrResolved).id, id);
        id
    }
}
