//! Asynchronous events of a device.

use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource, DataPath, SendWr, prelude::*};
use cmid_proto::{Errno, IdKey};
use rustix::event::{PollFd, PollFlags, poll};

use cmid_sim::{Access, AsyncEvents, Config, Mr, QpState, Remote};

use crate::common::{Env, Equipment, SECOND, connected};
use crate::iwarp;
use crate::providers::ALL;

fn is_readable(events: &impl AsyncEventQueue) -> bool {
    let fd = events.fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_device_reports_its_port_and_its_removal_to_each_reader() {
    let (mut env, pair) = connected(Config::default());
    let nic = env.client.device.device_of(pair.client).unwrap();
    let mut readers = [0; 2].map(|_| env.client.device.async_events(&nic).unwrap());
    let mut late = env.client.device.async_events(&nic).unwrap();
    assert_eq!((late.next_event(), is_readable(&late)), (Ok(None), false));
    env.host.set_link(false);
    env.host.set_link(false);
    env.host.set_link(true);
    env.host.remove_device();
    let port = |kind| AsyncEvent { kind, source: AsyncSource::Port(1) };
    for reader in &mut readers {
        assert!(is_readable(reader));
        assert_eq!(reader.next_event(), Ok(Some(port(AsyncEventKind::PORT_ERR))));
        assert_eq!(reader.next_event(), Ok(Some(port(AsyncEventKind::PORT_ACTIVE))));
        assert!(is_readable(reader));
        let fatal = AsyncEvent { kind: AsyncEventKind::DEVICE_FATAL, source: AsyncSource::Device };
        assert_eq!(reader.next_event(), Ok(Some(fatal)));
        assert_eq!((reader.next_event(), is_readable(reader)), (Ok(None), false));
    }
    // The handle of the removed device is not that of the next one.
    assert_eq!(env.client.device.async_events(&nic).map(drop).map_err(|error| error.errno()), Err(Errno::ENODEV));
    assert_eq!(env.client.device.alloc_pd_on(&nic).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    assert_eq!(env.client.device.create_cq_on(&nic, 1).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    env.host.add_device();
    assert_eq!(env.client.device.alloc_pd_on(&nic).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    env.host.set_link(false);
    assert_eq!(readers[0].next_event(), Ok(None));
}

/// Both ends of a connection on iWARP, with memory of each.
struct Ends {
    env: Env,
    server: IdKey,
    c: Equipment,
    s: Equipment,
    here: Mr,
    there: Mr,
    events: AsyncEvents,
}

impl Ends {
    fn with(rights: Access) -> Ends {
        let mut env = iwarp::env();
        let ([client, server], [c, s]) = iwarp::established(&mut env);
        let nic = env.client.device.device_of(client).unwrap();
        let events = env.client.device.async_events(&nic).unwrap();
        let [here, there] = [(&c, ALL), (&s, rights)].map(|(end, rights)| end.pd.register(vec![1; 8], rights).unwrap());
        Ends { env, server, c, s, here, there, events }
    }

    fn receive(&mut self, len: usize) {
        self.s.qp.post_recv(1, self.there.sge(0..len)).unwrap();
    }

    fn send(&mut self) {
        self.c.qp.post_send(SendWr::send(2, self.here.sge(0..8))).unwrap();
    }

    fn write(&mut self, at: u64, other_key: u32) {
        let to = Remote { addr: self.there.addr() + at, rkey: self.there.rkey() ^ other_key };
        self.c.qp.post_send(SendWr::write(2, self.here.sge(0..8), to)).unwrap();
    }

    fn read(&mut self, at: u64, other_key: u32) {
        let from = Remote { addr: self.there.addr() + at, rkey: self.there.rkey() ^ other_key };
        self.c.qp.post_send(SendWr::read(2, self.here.sge(0..8), from)).unwrap();
    }

    /// The peer ends the memory of the server.
    fn end_memory(&mut self) {
        let other = self.s.pd.register(vec![0; 8], ALL).unwrap();
        self.s.qp.post_recv(3, other.sge(0..8)).unwrap();
        self.c.qp.post_send(SendWr::send_invalidate(4, self.here.sge(0..8), self.there.rkey())).unwrap();
        self.env.fabric.advance_by(SECOND);
    }

    /// The events of the server's QP since the last call. The client's has none.
    #[track_caller]
    fn reported(&mut self) -> Vec<AsyncEventKind> {
        self.env.fabric.advance_by(SECOND);
        let (own, all) = (AsyncSource::Qp(self.s.qp.num()), std::iter::from_fn(|| self.events.next_event().unwrap()));
        all.inspect(|event| assert_eq!(event.source, own)).map(|event| event.kind).collect()
    }
}

/// `siw_send_check_ntoh`, `siw_proc_send`, `siw_proc_write`, `siw_proc_rresp`, `siw_qp_sq_process`.
#[test]
fn soft_iwarp_reports_why_a_qp_fails() {
    use AsyncEventKind as Kind;
    type Step = fn(&mut Ends);
    let read_of_server = |ends: &mut Ends| {
        ends.s.qp.post_send(SendWr::read(5, ends.there.sge(0..8), ends.here.remote(0))).unwrap();
        ends.end_memory();
    };
    let send_of_server = |ends: &mut Ends| {
        ends.end_memory();
        ends.s.qp.post_send(SendWr::send(5, ends.there.sge(0..8))).unwrap();
    };
    let cases: [(&str, Step, Option<Kind>); 10] = [
        ("no receive", |ends| ends.send(), None),
        ("a receive that is too short", |ends| (ends.receive(4), ends.send()).0, Some(Kind::QP_FATAL)),
        (
            "a receive of ended memory",
            |ends| (ends.end_memory(), ends.receive(8), ends.send()).0,
            Some(Kind::QP_ACCESS_ERR),
        ),
        ("a write of ended memory", |ends| (ends.end_memory(), ends.write(0, 0)).0, Some(Kind::QP_ACCESS_ERR)),
        ("a write beyond the end", |ends| ends.write(1, 0), Some(Kind::QP_ACCESS_ERR)),
        ("a write with a key of nothing", |ends| ends.write(0, 1), None),
        ("a read beyond the end", |ends| ends.read(1, 0), Some(Kind::QP_REQ_ERR)),
        ("a read with a key of nothing", |ends| ends.read(0, 1), Some(Kind::QP_REQ_ERR)),
        ("an answer to ended memory", read_of_server, Some(Kind::QP_ACCESS_ERR)),
        ("a send of ended memory", send_of_server, Some(Kind::QP_FATAL)),
    ];
    for (case, step, expected) in cases {
        let mut ends = Ends::with(ALL);
        step(&mut ends);
        assert_eq!(ends.reported(), Vec::from_iter(expected), "{case}");
        assert_eq!(ends.c.qp.state(), Ok(QpState::ERR), "{case}");
    }
    let mut ends = Ends::with(Access::LOCAL_WRITE);
    ends.write(0, 0);
    assert_eq!(ends.reported(), [Kind::QP_ACCESS_ERR], "without the right");
}

/// `siw_sq_flush`: the first one is no longer in the queue.
#[test]
fn soft_iwarp_reports_the_flush_of_requests_that_it_has_not_begun_with() {
    for (posts, drained) in [(1, None), (2, Some(AsyncEventKind::SQ_DRAINED))] {
        let mut ends = Ends::with(ALL);
        ends.read(1, 0);
        assert_eq!(ends.reported(), [AsyncEventKind::QP_REQ_ERR]);
        // The QP sends no more.
        (0..posts).for_each(|wr_id| ends.s.qp.post_send(SendWr::send(wr_id, ends.there.sge(0..8))).unwrap());
        assert_eq!(ends.reported(), []);
        ends.env.server.disconnect(ends.server).unwrap();
        assert_eq!(ends.reported(), Vec::from_iter(drained));
    }
}
