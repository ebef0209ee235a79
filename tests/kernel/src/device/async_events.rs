//! Asynchronous events of soft-RoCE and soft-iWARP.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::Call;
use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncSource, SendWr, prelude::*};
use cmid_verbs::{Access, Mr, Remote};

use crate::data::{polled, register};
use crate::env::{CLIENT, Pair, Side, readable};
use crate::refused_posts::is_iwarp;

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

fn ip(arguments: &[&str]) -> String {
    let done = Command::new("ip").args(arguments).output().expect("ip(8)");
    assert!(done.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// An address that comes and goes changes the GID table. Two readers of one device share its events.
pub(crate) fn address_changes() {
    let mut side = Side::new();
    let id = side.bound(CLIENT);
    let nic = side.device.device_of(id).expect("device_of");
    assert_eq!((nic.name(), nic.port_num()), ("rxe0", 1));
    let mut events = side.device.async_events(&nic).expect("async_events");
    // Those of other checks.
    while events.next_event().expect("next_event").is_some() {}
    let listed = ip(&["-o", "-4", "addr", "show", "to", "10.99.0.1"]);
    let interface = listed.split_whitespace().nth(1).expect("an interface");
    let expected = AsyncEvent { kind: AsyncEventKind::GID_CHANGE, source: AsyncSource::Port(1) };
    for change in ["add", "del"] {
        ip(&["addr", change, "10.99.0.77/24", "dev", interface]);
        assert!(readable(events.fd(), Instant::now() + Duration::from_secs(5)), "no event");
        assert_eq!(events.next_event(), Ok(Some(expected)), "{change}");
        while events.next_event().expect("next_event").is_some() {}
    }
}

/// What soft-iWARP reports of a QP that fails. Soft-RoCE reports nothing.
pub(crate) fn of_failures() {
    use AsyncEventKind as Kind;
    type Step = fn(&mut Pair, &Mr, &Mr);
    let cases: [(&str, Step, &[Kind]); 6] = [
        ("no receive", |pair, here, _| send(pair, here), &[]),
        (
            "a receive that is too short",
            |pair, here, there| {
                pair.s.qp.post_recv(1, there.sge(0..4)).expect("post_recv");
                send(pair, here);
            },
            &[Kind::QP_FATAL],
        ),
        (
            "a write beyond the end",
            |pair, here, there| write(pair, here, there.remote(there.len() - 4)),
            &[Kind::QP_ACCESS_ERR],
        ),
        (
            "a write with a key of nothing",
            |pair, here, there| write(pair, here, Remote { rkey: there.rkey() ^ 1, ..there.remote(0) }),
            &[],
        ),
        (
            "a read beyond the end, and a request behind it",
            |pair, here, there| refused(pair, here, there, 1),
            &[Kind::QP_REQ_ERR],
        ),
        (
            "a read beyond the end, and two requests behind it",
            |pair, here, there| refused(pair, here, there, 2),
            &[Kind::QP_REQ_ERR, Kind::SQ_DRAINED],
        ),
    ];
    for (case, step, expected) in cases {
        let mut pair = Pair::connected();
        let is_iwarp = is_iwarp(&mut pair.server, &pair.s);
        let nic = pair.server.device.device_of(pair.s.id).expect("device_of");
        let mut events = pair.server.device.async_events(&nic).expect("async_events");
        while events.next_event().expect("next_event").is_some() {}
        let [here, there] = [&pair.c, &pair.s].map(|end| register(end, 1, BOTH));
        step(&mut pair, &here, &there);
        thread::sleep(Duration::from_millis(200));
        let own = AsyncSource::Qp(pair.s.qp.num());
        let all = std::iter::from_fn(|| events.next_event().expect("next_event")).filter(|event| event.source == own);
        let seen: Vec<_> = all.map(|event| event.kind).collect();
        assert_eq!(seen, if is_iwarp { expected } else { &[] }, "{case}");
    }
}

fn send(pair: &mut Pair, here: &Mr) {
    pair.c.qp.post_send(SendWr::send(2, here.sge(0..8))).expect("post_send");
}

fn write(pair: &mut Pair, here: &Mr, to: Remote) {
    pair.c.qp.post_send(SendWr::write(2, here.sge(0..8), to)).expect("post_send");
}

/// The server refuses a read, posts this many sends, which are not sent, and disconnects.
fn refused(pair: &mut Pair, here: &Mr, there: &Mr, posts: u64) {
    let beyond = there.remote(there.len() - 4);
    pair.c.qp.post_send(SendWr::read(2, here.sge(0..8), beyond)).expect("post_send");
    polled(&mut pair.c.cq);
    // The kernel ends what it was sending after the connection.
    thread::sleep(Duration::from_millis(100));
    (0..posts).for_each(|wr_id| pair.s.qp.post_send(SendWr::send(wr_id, there.sge(0..8))).expect("post_send"));
    pair.server.ok(&Call::Disconnect { id: pair.s.id });
}
