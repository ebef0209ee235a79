//! Shared receive queues of soft-RoCE.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{
    AsyncEvent, AsyncEventKind, AsyncSource, Attaching, QpState, SendWr, SrqCaps, WcOpcode, WcStatus, prelude::*,
};
use cmid_proto::memory::Access;
use cmid_proto::{Call, CmEvent, Errno, ErrorWith, PortSpace};
use cmid_verbs::{AsyncEvents, GRH_LEN, Mr, Pd, Srq, To};

use crate::data::{polled, register, success};
use crate::env::{CAPS, End, Side, param};

/// Connections to a server whose QPs share their receives.
struct Hall {
    client: Side,
    server: Side,
    pd: Pd,
    srq: Srq,
    ends: Vec<(End, End)>,
}

impl Hall {
    fn open(connections: usize, caps: SrqCaps) -> Self {
        let (mut client, mut server) = (Side::new(), Side::new());
        let (listener, addr) = server.listener();
        let nic = server.device.device_of(listener).expect("device_of");
        let pd = server.device.alloc_pd_on(&nic).expect("alloc_pd");
        let srq = pd.create_srq(caps).expect("create_srq");
        let ends = (0..connections).map(|_| {
            let id = client.resolved(addr);
            let c = client.end(id);
            client.ok(&Call::Connect { id, param: param() });
            let id = server.expect(CmEvent::ConnectRequest).id;
            let cq = server.device.create_cq(id, 128).expect("create_cq");
            let qp = server.device.create_qp_with_srq(Attaching::bare(id), &pd, &cq, &cq, &srq, CAPS);
            let s = End { id, pd: pd.clone(), cq, qp: qp.expect("create_qp_with_srq") };
            server.ok(&Call::Accept { id, param: param() });
            client.expect(CmEvent::Established);
            server.expect(CmEvent::Established);
            (c, s)
        });
        let ends = ends.collect();
        Hall { client, server, pd, srq, ends }
    }

    fn register(&self) -> Mr {
        self.pd.register(vec![0; 64], Access::LOCAL_WRITE).expect("register")
    }
}

/// Two threads poll two CQs while a third one posts: each receive is returned once, whatever the order.
pub(crate) fn threads() {
    const MESSAGES: u64 = 300;
    // Without a receive a sender waits for 0.65 s, so there is one for most of the messages.
    const PLACES: usize = 64;
    let Hall { client, server, mut srq, ends, pd } = Hall::open(2, SrqCaps { max_wr: PLACES as u32, max_sge: 1 });
    let memory = pd.register(vec![0; PLACES * 64], Access::LOCAL_WRITE).expect("register");
    let (ended, seen) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; PLACES]);
    let limit = Instant::now() + Duration::from_secs(60);
    thread::scope(|scope| {
        for (mut c, mut s) in ends {
            let (ended, seen) = (&ended, &seen);
            scope.spawn(move || {
                let source = c.pd.register((0..64).collect::<Vec<u8>>(), Access::empty()).expect("register");
                for n in 0..MESSAGES {
                    c.qp.post_send(SendWr::send(n, source.sge(0..64))).expect("post_send");
                    let done = polled(&mut s.cq);
                    success(done, done.wr_id, WcOpcode::RECV);
                    assert_eq!((done.qp_num, done.byte_len), (s.qp.num(), 64));
                    seen[done.wr_id as usize].fetch_add(1, Ordering::Relaxed);
                    success(polled(&mut c.cq), n, WcOpcode::SEND);
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        // The number of a receive counts how often its range was posted.
        let mut posted = [0_usize; PLACES];
        let range = |at: usize| memory.sge(64 * at..64 * at + 64);
        let mut next = 0;
        while ended.load(Ordering::Relaxed) < 2 {
            assert!(Instant::now() < limit, "{posted:?}, {seen:?}");
            let at = next % PLACES;
            next += 1;
            if posted[at] > seen[at].load(Ordering::Relaxed) {
                thread::yield_now();
                continue;
            }
            // A place is free when the poll that returns its receive is over.
            match srq.post_recv(at as u64, range(at)) {
                Ok(()) => posted[at] += 1,
                Err(error) => assert_eq!(error.errno(), Errno::ENOMEM),
            }
        }
        let unpolled = posted.iter().sum::<usize>() - 2 * MESSAGES as usize;
        assert_eq!(srq.unpolled() as usize, unpolled);
    });
    // On a busy machine the last message may have taken the last receive.
    if srq.unpolled() == 0 {
        println!("             no receive was left");
        srq.post_recv(0, memory.sge(0..64)).expect("post_recv");
    }
    drop(srq);
    let ErrorWith { given: memory, .. } = memory.deregister().expect_err("the ids have QPs, and the QPs have the SRQ");
    drop((client, server));
    memory.deregister().expect("the SRQ is destroyed, and its CQs are dropped");
}

/// Whether the kernel is the older one.
pub(crate) fn is_6_1() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    release.starts_with("6.1.")
}

/// A QP in its error state leaves the receives to others. Linux 6.12 reports when it takes no more, and again after each flushed
/// request; Linux 6.1 does not.
pub(crate) fn errors() {
    let mut hall = Hall::open(2, SrqCaps { max_wr: 8, max_sge: 1 });
    let memory = hall.register();
    let nic = hall.server.device.device_of(hall.ends[0].1.id).expect("device_of");
    let mut events = hall.server.device.async_events(&nic).expect("async_events");
    while events.next_event().expect("next_event").is_some() {}
    hall.srq.post_recv(1, memory.sge(0..8)).expect("post_recv");
    // Too short for what comes: it ends, and its QP with it.
    let (c, s) = &mut hall.ends[0];
    let source = c.pd.register(vec![7; 64], Access::empty()).expect("register");
    c.qp.post_send(SendWr::send(2, source.sge(0..64))).expect("post_send");
    let done = polled(&mut s.cq);
    assert_eq!((done.wr_id, done.is_success(), hall.srq.unpolled()), (1, false, 0));
    assert!(!polled(&mut c.cq).is_success());
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
    let last = AsyncEvent { kind: AsyncEventKind::QP_LAST_WQE_REACHED, source: AsyncSource::Qp(s.qp.num()) };
    let reported = |events: &mut AsyncEvents| {
        thread::sleep(Duration::from_millis(200));
        let all = std::iter::from_fn(|| events.next_event().expect("next_event"));
        all.filter(|event| event.source == last.source).collect::<Vec<_>>()
    };
    assert_eq!(reported(&mut events), if is_6_1() { vec![] } else { vec![last] });
    s.qp.post_send(SendWr::send(5, memory.sge(0..8))).expect("post_send");
    assert_eq!(polled(&mut s.cq).status, WcStatus::WR_FLUSH_ERR);
    let again = reported(&mut events);
    assert!(again.is_empty() == is_6_1() && again.iter().all(|event| *event == last), "{again:?}");
    hall.srq.post_recv(3, memory.sge(0..64)).expect("post_recv");
    let (c, s) = &mut hall.ends[1];
    let source = c.pd.register(vec![8; 64], Access::empty()).expect("register");
    c.qp.post_send(SendWr::send(4, source.sge(0..64))).expect("post_send");
    success(polled(&mut s.cq), 3, WcOpcode::RECV);
    assert_eq!(polled(&mut c.cq).status, WcStatus::SUCCESS);
}

/// A datagram that does not fit is lost. On Linux 6.12 its receive stays, or ends if it is of an SRQ; on 6.1 the QP fails (hazard
/// P109).
pub(crate) fn long_datagrams() {
    for is_shared in [false, true] {
        let (mut client, mut server) = (Side::new(), Side::new());
        let (_listener, addr) = server.listener_in(PortSpace::Udp);
        let id = client.resolved_in(PortSpace::Udp, addr);
        let mut c = client.end(id);
        client.ok(&Call::Connect { id, param: param() });
        let id = server.expect(CmEvent::ConnectRequest).id;
        let pd = server.device.alloc_pd(id).expect("alloc_pd");
        let mut srq = pd.create_srq(SrqCaps { max_wr: 4, max_sge: 1 }).expect("create_srq");
        let cq = server.device.create_cq(id, 64).expect("create_cq");
        let qp = if is_shared {
            server.device.create_qp_with_srq(Attaching::bare(id), &pd, &cq, &cq, &srq, CAPS)
        } else {
            server.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS)
        };
        let mut s = End { id, pd, cq, qp: qp.expect("create_qp") };
        server.ok(&Call::Accept { id, param: param() });
        let found = client.expect(CmEvent::Established).datagram.expect("where to send");
        let (source, memory) = (register(&c, 7, Access::empty()), register(&s, 0, Access::LOCAL_WRITE));
        let short = memory.sge(0..GRH_LEN + 7);
        if is_shared { srq.post_recv(1, short) } else { s.qp.post_recv(1, short) }.expect("post_recv");
        let ah = c.pd.create_ah(&found.path).expect("create_ah");
        let mut send = |len| {
            let to = To { ah: &ah, qp_num: found.qp_num, qkey: found.qkey };
            c.qp.post_send(SendWr::send_to(2, source.sge(0..len), to)).expect("post_send");
            success(polled(&mut c.cq), 2, WcOpcode::SEND);
        };
        send(8);
        thread::sleep(Duration::from_millis(200));
        let ended = s.cq.poll_one().expect("poll").map(|done| (done.wr_id, done.status));
        let (expected, state) = match (is_6_1(), is_shared) {
            (true, _) => (Some((1, WcStatus::LOC_QP_OP_ERR)), QpState::ERR),
            (false, true) => (Some((1, WcStatus::REM_INV_REQ_ERR)), QpState::RTS),
            (false, false) => (None, QpState::RTS),
        };
        assert_eq!((ended, s.qp.state()), (expected, Ok(state)), "of an SRQ: {is_shared}");
        if expected.is_none() {
            send(7);
            success(polled(&mut s.cq), 1, WcOpcode::RECV);
        }
    }
}
