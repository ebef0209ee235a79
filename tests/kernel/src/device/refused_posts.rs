//! Posts that are refused, by cmid or by the kernel, and completions that come out of order. They hold on soft-RoCE and
//! on soft-iWARP.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{
    AsyncEventKind, Attaching, Caps, PostReason, QpState, SendFlags, SendWr, WcOpcode, prelude::*,
};
use cmid_proto::{Call, CmEvent, ConnParam, Transport};
use cmid_verbs::{Access, Completion, Cq, Mr, WcStatus};
use rustix::thread::{Uid, set_thread_res_uid};

use crate::data::{bytes, polled, register, returned, success, why};
use crate::env::{CAPS, End, Pair, Side, answered, param};

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Whether the device is soft-iWARP.
pub(crate) fn is_iwarp(side: &mut Side, end: &End) -> bool {
    use cmid_proto::Device as _;
    side.device.transport(end.id) == Some(Transport::Iwarp)
}

/// Polls until the time is over. Nothing may fail.
fn all(cq: &mut Cq, limit: Duration) -> Vec<Completion> {
    let (end, mut all, mut some) = (Instant::now() + limit, Vec::new(), [Completion::default(); 4]);
    while Instant::now() < end {
        let count = cq.poll(&mut some).expect("poll");
        all.extend_from_slice(&some[..count]);
    }
    all
}

/// What is posted before the QP sends is refused and not executed later.
pub(crate) fn too_early() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr): (_, SocketAddr) = server.listener();
    let id = client.resolved(addr);
    let mut early = client.end(id);
    let from = register(&early, 1, BOTH);
    let at = from.remote(0);
    for wr in
        [SendWr::send(1, from.sge(0..64)), SendWr::write(2, from.sge(0..64), at), SendWr::read(3, from.sge(0..64), at)]
    {
        assert_eq!(why(early.qp.post_send(wr)), Err(PostReason::TooEarly(QpState::INIT)), "{wr:?}");
        let error = early.qp.post_sends([wr]).expect_err("it is too early");
        assert_eq!((error.posted, error.error.reason()), (0, PostReason::TooEarly(QpState::INIT)));
    }
    early.qp.post_recv(4, from.sge(64..128)).expect("a receive is posted early");
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest);
    let mut s = server.end(request.id);
    let to = register(&s, 0, BOTH);
    (0..4).for_each(|wr_id| s.qp.post_recv(wr_id, to.sge(0..64)).expect("post_recv"));
    assert_eq!(why(s.qp.post_send(SendWr::send(9, to.sge(0..64)))), Err(PostReason::TooEarly(QpState::INIT)));
    server.ok(&Call::Accept { id: s.id, param: param() });
    client.expect(CmEvent::Established);
    server.expect(CmEvent::Established);
    early.qp.post_send(SendWr::send(5, from.sge(0..64))).expect("post_send");
    success(polled(&mut early.cq), 5, WcOpcode::SEND);
    success(polled(&mut s.cq), 0, WcOpcode::RECV);
    assert!(all(&mut s.cq, Duration::from_millis(200)).is_empty(), "one message was accepted");
}

/// A thread of another user posts: the library has queued the request when the kernel refuses the doorbell.
fn post_as_nobody(end: &mut End, wr: SendWr<'_, cmid_verbs::Sge<'_, Mr>, cmid_verbs::Ah>) {
    let refused = std::thread::scope(|scope| {
        let post = || {
            let nobody = Uid::from_raw(65534);
            set_thread_res_uid(nobody, nobody, nobody).expect("it is root");
            end.qp.post_send(wr)
        };
        scope.spawn(post).join().expect("no panic")
    });
    assert!(refused.is_err(), "the kernel compares the credentials with those that have opened the device");
}

/// What the kernel has refused stays in flight, because it may be executed with a later doorbell.
pub(crate) fn doorbell() {
    let Pair { mut client, server: _server, mut c, s, .. } = Pair::connected();
    let (mut into, other) = (register(&c, 1, Access::LOCAL_WRITE), register(&c, 2, BOTH));
    let shared = register(&s, 0xee, BOTH);
    post_as_nobody(&mut c, SendWr::read(1, into.sge(0..64), shared.remote(0)));
    assert!(into.slice_mut().is_err(), "it may be executed");
    if is_iwarp(&mut client, &c) {
        // libsiw rings only if the request before is done, so nothing is executed any more, and nothing more is posted.
        // Another request would be queued, with success. It ends with the QP.
        let write = SendWr::write(2, other.sge(0..64), shared.remote(100));
        assert_eq!(why(c.qp.post_send(write)), Err(PostReason::Stuck));
        assert_eq!(c.qp.post_sends([write]).map_err(|batch| batch.error.reason()), Err(PostReason::Stuck));
        client.ok(&Call::Destroy { id: c.id });
        let End { qp, mut cq, .. } = c;
        drop(qp);
        assert!(all(&mut cq, Duration::from_millis(200)).is_empty());
        assert_eq!(into.slice_mut().expect("over")[0], 1);
        return;
    }
    c.qp.post_send(SendWr::write(2, other.sge(0..64), shared.remote(100))).expect("post_send");
    success(polled(&mut c.cq), 2, WcOpcode::RDMA_WRITE);
    // It was executed with the second one. The application has been told otherwise, and hears nothing of it.
    assert_eq!(into.slice().expect("a later completion has passed it")[0], 0xee);
    assert!(all(&mut c.cq, Duration::from_millis(100)).is_empty());
    c.qp.post_send(SendWr::write(3, other.sge(0..64), shared.remote(0))).expect("post_send");
    success(polled(&mut c.cq), 3, WcOpcode::RDMA_WRITE);
    returned(into);
}

/// A long read and a short write behind it. Soft-iWARP completes the write first.
pub(crate) fn out_of_order() {
    const LEN: usize = 1 << 20;
    for is_signaled in [true, false] {
        let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
        let mut into = c.pd.register(vec![1; LEN], Access::LOCAL_WRITE).expect("register");
        let shared = s.pd.register(vec![0xee; LEN], BOTH).expect("register");
        let (other, beside) = (register(&c, 2, BOTH), register(&s, 3, BOTH));
        let read = SendWr::read(1, into.sge(0..LEN), shared.remote(0));
        c.qp.post_send(if is_signaled { read } else { read.unsignaled() }).expect("post_send");
        c.qp.post_send(SendWr::write(2, other.sge(0..64), beside.remote(0))).expect("post_send");
        let mut left = if is_signaled { vec![1, 2] } else { vec![2] };
        while !left.is_empty() {
            let completion = polled(&mut c.cq);
            assert!(completion.is_success(), "{completion:?}");
            left.retain(|&wr_id| wr_id != completion.wr_id);
            if let Ok(slice) = into.slice() {
                assert_eq!((slice[0], slice[LEN - 1]), (0xee, 0xee), "the read is in flight");
            }
        }
        // A fenced request comes after earlier reads.
        c.qp.post_send(SendWr::write(3, other.sge(0..64), beside.remote(0)).fenced()).expect("post_send");
        success(polled(&mut c.cq), 3, WcOpcode::RDMA_WRITE);
        assert_eq!(into.slice_mut().expect("all is over")[LEN - 1], 0xee);
    }
}

/// Bits that no flag has do not reach the provider: one of them is `IBV_SEND_INLINE`.
pub(crate) fn unknown_flags() {
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let (from, to) = (register(&c, 1, BOTH), register(&s, 0, BOTH));
    let with = |flags| SendWr { flags, ..SendWr::write(7, from.sge(0..4096), to.remote(0)) };
    c.qp.post_send(with(SendFlags::from_bits_retain(!0))).expect("post_send");
    success(polled(&mut c.cq), 7, WcOpcode::RDMA_WRITE);
    assert_eq!(c.qp.post_sends([with(SendFlags::from_bits_retain(0b1010))]), Ok(1));
    success(polled(&mut c.cq), 7, WcOpcode::RDMA_WRITE);
    assert_eq!(bytes::<4096>(&to, 0), [1; 4096]);
}

/// A QP whose requests have no ranges. An empty range is none.
pub(crate) fn without_ranges() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let caps = Caps { max_send_sge: 0, max_recv_sge: 0, ..CAPS };
    let end = |side: &mut Side, id| {
        let (pd, cq) = (side.device.alloc_pd(id).expect("alloc_pd"), side.device.create_cq(id, 64).expect("create_cq"));
        let qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, caps).expect("create_qp");
        End { id, pd, cq, qp }
    };
    let mut c = end(&mut client, id);
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest);
    let mut s = end(&mut server, request.id);
    let (from, to) = (register(&c, 1, BOTH), register(&s, 2, BOTH));
    assert_eq!(why(s.qp.post_recv(1, to.sge(0..1))), Err(PostReason::TooManyRanges { ranges: 1, max: 0 }));
    assert!(s.qp.post_recvs([(1, to.sge(0..1))]).is_err());
    let read_only = register(&s, 3, Access::empty());
    assert_eq!(why(s.qp.post_recv(1, read_only.sge(0..1))), Err(PostReason::ReadOnly));
    s.qp.post_recv(2, to.sge(0..0)).expect("an empty range");
    s.qp.post_recv(3, []).expect("an empty list");
    server.ok(&Call::Accept { id: s.id, param: param() });
    client.expect(CmEvent::Established);
    server.expect(CmEvent::Established);
    for wr in [SendWr::send(1, from.sge(0..1)), SendWr::write(1, from.sge(0..1), to.remote(0))] {
        assert_eq!(why(c.qp.post_send(wr)), Err(PostReason::TooManyRanges { ranges: 1, max: 0 }));
        assert!(c.qp.post_sends([wr]).is_err());
    }
    c.qp.post_send(SendWr::send(4, from.sge(0..0))).expect("an empty range");
    c.qp.post_send(SendWr::send(5, [])).expect("an empty list");
    for wr_id in [4, 5] {
        success(polled(&mut c.cq), wr_id, WcOpcode::SEND);
        success(polled(&mut s.cq), wr_id - 2, WcOpcode::RECV);
    }
}

/// Soft-iWARP flushes the read twice that it sends next: on several CPUs, if the disconnect comes between two reads. A CQ of
/// exactly the depth of its queues has room for that. (Not each read is flushed: none that awaits its answer while nothing is to
/// be sent.)
pub(crate) fn flushed_reads() {
    const LEN: usize = 1 << 16;
    for round in 0..80 {
        let (mut client, mut server) = (Side::new(), Side::new());
        let (_, addr) = server.listener();
        let id = client.resolved(addr);
        let nic = client.device.device_of(id).expect("device_of");
        let mut events = client.device.async_events(&nic).expect("async_events");
        let (pd, depth) = (client.device.alloc_pd(id).expect("alloc_pd"), CAPS.max_send_wr + CAPS.max_recv_wr);
        let cq = client.device.create_cq(id, depth).expect("create_cq");
        let qp = client.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
        let mut c = End { id, pd, cq, qp };
        client.ok(&Call::Connect { id, param: param() });
        let request = server.expect(CmEvent::ConnectRequest);
        let s = server.end(request.id);
        server.ok(&Call::Accept { id: s.id, param: param() });
        client.expect(CmEvent::Established);
        server.expect(CmEvent::Established);
        let [into, far] = [&c, &s].map(|end| end.pd.register(vec![1; LEN], BOTH).expect("register"));
        for wr_id in 0..u64::from(CAPS.max_recv_wr) {
            c.qp.post_recv(wr_id, into.sge(0..0)).expect("post_recv");
            c.qp.post_send(SendWr::read(wr_id, into.sge(0..LEN), far.remote(0))).expect("post_send");
        }
        std::thread::sleep(Duration::from_micros(20 * round));
        client.ok(&Call::Disconnect { id: c.id });
        // All completions are in the CQ before the first one is polled.
        std::thread::sleep(Duration::from_millis(20));
        let left = all(&mut c.cq, Duration::from_millis(5)).len();
        let mut kinds = std::iter::from_fn(|| events.next_event().expect("next_event")).map(|event| event.kind);
        assert!(
            kinds.all(|kind| kind != AsyncEventKind::CQ_ERR),
            "round {round}: an overrun, {left} of {depth} are left"
        );
    }
}

/// The opcode of a failed completion is that of its request.
pub(crate) fn failed_opcodes() {
    let Pair { mut client, server: _server, mut c, s, .. } = Pair::connected();
    let (memory, far) = (register(&c, 1, BOTH), register(&s, 2, Access::LOCAL_WRITE));
    c.qp.post_recv(1, memory.sge(0..64)).expect("post_recv");
    c.qp.post_send(SendWr::read(2, memory.sge(0..64), far.remote(0))).expect("post_send");
    c.qp.post_send(SendWr::write(3, memory.sge(0..64), far.remote(0))).expect("post_send");
    if is_iwarp(&mut client, &c) {
        client.ok(&Call::Disconnect { id: c.id });
    }
    let mut failed: Vec<_> = all(&mut c.cq, Duration::from_secs(2)).iter().map(|one| (one.wr_id, one.opcode)).collect();
    failed.sort_by_key(|(wr_id, _)| *wr_id);
    let expected = [(1, WcOpcode::RECV), (2, WcOpcode::RDMA_READ), (3, WcOpcode::RDMA_WRITE)];
    assert!(failed.iter().all(|one| expected.contains(one)) && failed.contains(&expected[0]), "{failed:?}");
}

/// A peer that answers no reads: soft-RoCE would wait for ever, and soft-iWARP would execute nothing more.
pub(crate) fn no_reads() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let none = ConnParam { responder_resources: 0, initiator_depth: 0, ..param() };
    let (mut c, mut s) = answered(&mut client, &mut server, id, none);
    let (memory, far) = (register(&c, 1, BOTH), register(&s, 2, BOTH));
    for (end, memory, far) in [(&mut c, &memory, &far), (&mut s, &far, &memory)] {
        let read = SendWr::read(1, memory.sge(0..64), far.remote(0));
        assert_eq!(why(end.qp.post_send(read)), Err(PostReason::NoReads));
        assert!(end.qp.post_sends([read]).is_err());
        end.qp.post_send(SendWr::write(2, memory.sge(0..64), far.remote(0))).expect("post_send");
        assert_eq!(polled(&mut end.cq).status, WcStatus::SUCCESS);
        assert_eq!(why(end.qp.post_send(read)), Err(PostReason::NoReads));
    }
}

/// Delays what the machine sends to itself, until it is dropped.
struct Delay;

impl Delay {
    fn new() -> Self {
        Self::tc(&["replace", "dev", "lo", "root", "netem", "delay", "300ms"]);
        Delay
    }

    fn tc(arguments: &[&str]) {
        let status = Command::new("tc").arg("qdisc").args(arguments).status().expect("tc runs");
        assert!(status.success(), "{arguments:?}");
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        Self::tc(&["del", "dev", "lo", "root"]);
    }
}

/// Soft-iWARP gives TCP the pages of a long unsignaled request. The completion of a later one does not say that they are sent.
pub(crate) fn unsignaled_memory() {
    const LEN: usize = 1 << 14;
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let (from, to) = (register(&c, 1, BOTH), s.pd.register(vec![0; LEN], BOTH).expect("register"));
    // TCP knows the length of its segments from then on.
    c.qp.post_send(SendWr::write(1, from.sge(0..64), to.remote(0))).expect("post_send");
    success(polled(&mut c.cq), 1, WcOpcode::RDMA_WRITE);
    let long = c.pd.register(vec![7; LEN], Access::LOCAL_WRITE).expect("register");
    let _delay = Delay::new();
    c.qp.post_send(SendWr::write(2, long.sge(0..LEN), to.remote(0)).unsignaled()).expect("post_send");
    c.qp.post_send(SendWr::write(3, from.sge(0..64), to.remote(0))).expect("post_send");
    success(polled(&mut c.cq), 3, WcOpcode::RDMA_WRITE);
    long.deregister().expect("nothing is in flight").buffer.into_vec().expect("the only one").fill(0xee);
    let deadline = Instant::now() + Duration::from_secs(5);
    while bytes::<LEN>(&to, 0)[LEN - 1] == 0 {
        assert!(Instant::now() < deadline, "nothing has come");
    }
    let came = bytes::<LEN>(&to, 0);
    assert!(came[64..].iter().all(|&byte| byte == 7), "the peer has what was written after the request was over");
}
