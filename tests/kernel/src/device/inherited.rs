//! A forked child drops what it has inherited: the parent's objects are as before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cmid_proto::datapath::{Attaching, SendWr, SrqCaps, WcOpcode, prelude::*};
use cmid_proto::{Call, CmEvent, Device, Errno, ErrorWith};
use cmid_verbs::{Access, Completion};

use crate::data::{bytes, polled, register, returned, success};
use crate::env::{CAPS, Pair, Side};

/// Runs a function in a forked child, which must succeed within ten seconds.
fn in_a_child(child: impl FnOnce()) {
    // SAFETY: this process has one thread, so the child may call any function.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(10) };
        let outcome = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the child without the destructors of what is left.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(pid > 0, "fork");
    let mut status = 0;
    // SAFETY: the result has a place.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child");
}

/// A message and a write in both directions of what both sides still know.
fn exchange(pair: &mut Pair, n: u8) {
    let from = register(&pair.c, n, Access::empty());
    let to = register(&pair.s, 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    pair.s.qp.post_recv(1, to.sge(0..8)).expect("post_recv");
    pair.c.qp.post_send(SendWr::send(2, from.sge(0..8))).expect("post_send");
    pair.c.qp.post_send(SendWr::write(3, from.sge(0..8), to.remote(64))).expect("post_write");
    success(polled(&mut pair.c.cq), 2, WcOpcode::SEND);
    success(polled(&mut pair.c.cq), 3, WcOpcode::RDMA_WRITE);
    success(polled(&mut pair.s.cq), 1, WcOpcode::RECV);
    assert_eq!((bytes(&to, 7), bytes(&to, 71)), ([n, 0], [n, 0]));
    assert_eq!((returned(from).len(), returned(to).len()), (4096, 4096));
}

/// Everything at once, with work in flight: nothing of the parent ends.
pub(crate) fn everything() {
    let mut pair = Pair::connected();
    exchange(&mut pair, 1);
    let mut posted = register(&pair.s, 0, Access::LOCAL_WRITE);
    pair.s.qp.post_recv(7, posted.sge(0..8)).expect("post_recv");
    let windowed = register(&pair.s, 3, Access::LOCAL_WRITE | Access::MW_BIND);
    let mut window = pair.s.pd.alloc_mw().expect("alloc_mw");
    pair.s.qp.post_bind(8, &mut window, &windowed, 0..64, Access::REMOTE_WRITE).expect("post_bind");
    success(polled(&mut pair.s.cq), 8, WcOpcode::BIND_MW);
    let nic = pair.server.device.device_of(pair.s.id).expect("device_of");
    let channel = pair.server.device.create_comp_channel(&nic).expect("create_comp_channel");
    let shared = pair.server.device.create_cq_at(&nic, Some(&channel), 8, 0).expect("create_cq");
    let mut srq = pair.s.pd.create_srq(SrqCaps { max_wr: 4, max_sge: 1 }).expect("create_srq");
    srq.post_recv(9, posted.sge(64..72)).expect("post_recv");
    let events = pair.server.device.async_events(&nic).expect("async_events");
    let users = pair.s.pd.users();

    let all = (pair, (posted, windowed, window), (nic, channel, shared, srq, events));
    in_a_child(|| drop(all_of(&all)));
    let (mut pair, objects, (nic, channel, shared, srq, events));
    (pair, objects, (nic, channel, shared, srq, events)) = all;
    let (windowed, window);
    (posted, windowed, window) = objects;
    assert_eq!(pair.s.pd.users(), users);
    assert_eq!(channel.next_notification(), Ok(None), "the channel is open");

    // The receive that was posted before takes a message, and the peer still writes through the window.
    let from = register(&pair.c, 5, Access::empty());
    pair.c.qp.post_send(SendWr::send(1, from.sge(0..8))).expect("post_send");
    success(polled(&mut pair.c.cq), 1, WcOpcode::SEND);
    success(polled(&mut pair.s.cq), 7, WcOpcode::RECV);
    let at = cmid_verbs::Remote { addr: windowed.addr(), rkey: window.rkey() };
    pair.c.qp.post_send(SendWr::write(2, from.sge(0..8), at)).expect("post_write");
    success(polled(&mut pair.c.cq), 2, WcOpcode::RDMA_WRITE);
    assert_eq!((bytes(&posted, 0), bytes(&windowed, 7)), ([5], [5, 3]));
    exchange(&mut pair, 6);

    // All of it still exists at the kernel: each deallocation succeeds.
    window.dealloc().expect("ibv_dealloc_mw");
    assert_eq!((returned(windowed).len(), returned(from).len()), (4096, 4096));
    drop(srq);
    assert_eq!(returned(posted).len(), 4096);
    drop((shared, channel, events, nic));
    // No DISCONNECTED came from the child; the parent's reaches the peer.
    pair.client.quiet(50);
    pair.server.quiet(50);
    pair.client.ok(&Call::Disconnect { id: pair.c.id });
    pair.server.expect(CmEvent::Disconnected);
    let Pair { mut client, mut server, c, s, .. } = pair;
    for (side, end) in [(&mut client, c), (&mut server, s)] {
        let crate::env::End { id, pd, cq, qp } = end;
        side.device.destroy_qp(id).expect("destroy_qp");
        drop((qp, cq));
        pd.dealloc().expect("no object is left at the kernel");
    }
}

/// The child drops a CQ whose destroyed QP has left blocks: none of them returns to its pool there, because another thread of the
/// parent may have had the lock of the pool.
pub(crate) fn blocks() {
    let Pair { client: _client, mut server, s, .. } = Pair::connected();
    let crate::env::End { id, mut cq, mut qp, .. } = s;
    let pool = crate::blocks::pool(&s.pd, 1);
    qp.post_recv_blocks(1, pool.take().expect("a block")).expect("post_recv");
    server.ok(&Call::Destroy { id });
    drop(qp);
    in_a_child(|| {
        drop(all_of(&cq));
        assert_eq!(pool.available(), 0);
    });
    let mut left = [Completion::default(); 2];
    while cq.poll(&mut left).expect("poll") > 0 {}
    assert_eq!(pool.available(), 1);
}

/// Takes the objects of a child, which are copies of the parent's.
fn all_of<T>(all: &T) -> T {
    // SAFETY: called in a forked child, which leaves by `_exit`: its other copy is neither used nor dropped.
    unsafe { std::ptr::read(all) }
}

/// What a child requests of inherited objects is refused, and changes nothing.
pub(crate) fn requests() {
    let mut pair = Pair::connected();
    let id = pair.s.id;
    let mr = register(&pair.s, 1, Access::LOCAL_WRITE);
    let window = pair.s.pd.alloc_mw().expect("alloc_mw");
    let nic = pair.server.device.device_of(id).expect("device_of");
    let events = pair.server.device.async_events(&nic).expect("async_events");
    let all = (pair, mr, window, events);
    in_a_child(|| {
        let (mut pair, mr, window, mut events) = all_of(&all);
        // The parent would wait for the acks of what the child reads.
        assert_eq!((events.next_event(), pair.s.cq.take_notifications()), (Err(Errno::EACCES), Err(Errno::EACCES)));
        assert!(pair.server.device.async_events(&nic).is_err());
        let ErrorWith { given: mr, error } = mr.deregister().map(drop).expect_err("it is the parent's");
        assert_eq!(error.to_string(), "refused: deregister an MR while registered: it belongs to the parent process");
        assert_eq!((error.errno(), bytes(&mr, 0)), (Errno::EACCES, [1]));
        assert_eq!(window.dealloc().map(drop).map_err(Errno::from), Err(Errno::EACCES));
        assert!(pair.s.pd.dealloc().is_err());
        let error = pair.s.pd.register(vec![0; 8], Access::empty()).map(drop).expect_err("a PD of the parent").error;
        assert_eq!(error.errno(), Errno::EACCES);
        // The kernel backend drops its use of the QP, and librdmacm keeps it.
        let _ = pair.server.device.destroy_qp(id);
        assert_eq!(pair.server.device.call(&Call::Destroy { id }, &[]), Err(Errno::EACCES));
    });
    let mr;
    let window;
    (pair, mr, window, _) = all;
    exchange(&mut pair, 2);
    window.dealloc().expect("ibv_dealloc_mw");
    assert_eq!(returned(mr).len(), 4096);

    // What the child makes is its own.
    in_a_child(|| {
        let mut side = Side::new();
        let id = side.bound(crate::env::SERVER);
        let pd = side.device.alloc_pd(id).expect("alloc_pd");
        let mut cq = side.device.create_cq(id, 64).expect("create_cq");
        let mr = pd.register(vec![1; 4096], Access::LOCAL_WRITE).expect("register");
        let qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
        assert!(mr.deregister().is_ok());
        side.device.destroy_qp(id).expect("destroy_qp");
        drop(qp);
        assert_eq!(CompletionQueue::poll(&mut cq, &mut []), Ok(0));
        drop(cq);
        pd.dealloc().expect("nothing uses it");
        side.ok(&Call::Destroy { id });
    });
    exchange(&mut pair, 3);
}
