//! Behaviour 83: memory windows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use cmid_proto::datapath::{
    DataPath, Length, MemoryRegion, MemoryWindow, OfPd, Part, PostReason, ProtectionDomain, QueuePair, SendWr, WcOpcode,
};
use cmid_proto::memory::{MemoryError, MemoryReason};
use cmid_proto::{Errno, ErrorWith};
use cmid_verbs::{Access, Buffer, WcStatus};

use crate::data::{polled, register, success, why};
use crate::env::{End, Pair};
use crate::memory::{PAGE, mapped};

fn reason(error: MemoryError) -> Option<MemoryReason> {
    if let MemoryError::Refused(refused) = error { Some(refused.reason) } else { None }
}

/// An MR that is dropped before its window is deregistered when the window is destroyed, in either way.
pub(crate) fn dropped() {
    for deallocated in [false, true] {
        let Pair { client: _client, server: _server, mut s, .. } = Pair::connected();
        let users = s.pd.users();
        let (page, unmapped) = mapped(PAGE);
        let mr = s.pd.register(page, Access::LOCAL_WRITE | Access::MW_BIND).expect("register");
        let mut window = s.pd.alloc_mw().expect("alloc_mw");
        s.qp.post_bind(1, &mut window, &mr, 0..8, Access::REMOTE_READ).expect("post_bind");
        success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
        drop(mr);
        // The MR is neither freed nor forgotten, also when another deregistration retries it.
        register(&s, 0, Access::empty()).deregister().expect("another one");
        assert_eq!((s.pd.users(), unmapped.load(Ordering::Relaxed)), (users + 2, 0));
        if deallocated {
            window.dealloc().expect("ibv_dealloc_mw");
        } else {
            drop(window);
        }
        assert_eq!((s.pd.users(), unmapped.load(Ordering::Relaxed)), (users, 1));
    }

    // The window is invalidated by a work request. The next deregistration then ends the MR.
    let Pair { client: _client, server: _server, mut s, .. } = Pair::connected();
    let users = s.pd.users();
    let (page, unmapped) = mapped(PAGE);
    let mr = s.pd.register(page, Access::LOCAL_WRITE | Access::MW_BIND).expect("register");
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(1, &mut window, &mr, 0..8, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
    drop(mr);
    s.qp.post_invalidate(2, &mut window).expect("post_invalidate");
    success(polled(&mut s.cq), 2, WcOpcode::LOCAL_INV);
    assert_eq!(why(s.qp.post_invalidate(3, &mut window)), Err(PostReason::NotBound));
    assert_eq!((s.pd.users(), unmapped.load(Ordering::Relaxed)), (users + 2, 0));
    drop(s.pd.clone());
    assert_eq!((s.pd.users(), unmapped.load(Ordering::Relaxed)), (users + 1, 1));
}

/// Calls that would make a provider use objects of another PD.
pub(crate) fn foreign() {
    let Pair { client: _client, server: _server, c, mut s, .. } = Pair::connected();
    let (near, far) = (register(&s, 0, Access::MW_BIND), register(&c, 0, Access::MW_BIND));
    let (mut own, mut other) = (s.pd.alloc_mw().expect("alloc_mw"), c.pd.alloc_mw().expect("alloc_mw"));
    assert_eq!(
        why(s.qp.post_bind(1, &mut other, &near, 0..8, Access::REMOTE_READ)),
        Err(PostReason::OtherPd(OfPd::Mw))
    );
    assert_eq!(why(s.qp.post_bind(1, &mut own, &far, 0..8, Access::REMOTE_READ)), Err(PostReason::OtherPd(OfPd::Mr)));
    assert_eq!(
        why(s.qp.post_bind(1, &mut own, &near, 0..PAGE + 1, Access::REMOTE_READ)),
        Err(PostReason::OutOfRange { len: Length::new(PAGE) })
    );
    // Rights that the registration does not have.
    assert_eq!(
        why(s.qp.post_bind(1, &mut own, &near, 0..8, Access::REMOTE_WRITE)),
        Err(PostReason::LacksRight(Access::LOCAL_WRITE))
    );
    let unbindable = register(&s, 0, Access::LOCAL_WRITE);
    assert_eq!(
        why(s.qp.post_bind(1, &mut own, &unbindable, 0..8, Access::REMOTE_READ)),
        Err(PostReason::LacksRight(Access::MW_BIND))
    );
    // Bits that no window has. None reaches the provider.
    let whole = register(&s, 0, Access::LOCAL_WRITE | Access::MW_BIND);
    for access in [Access::from_bits_retain(!0), Access::LOCAL_WRITE, Access::REMOTE_READ | Access::MW_BIND] {
        assert_eq!(
            why(s.qp.post_bind(1, &mut own, &whole, 0..8, access)),
            Err(PostReason::NotOfWindow(access)),
            "{access:?}"
        );
    }
    assert!(whole.deregister().is_ok());
    // rxe would dereference null pointers.
    assert_eq!(why(s.qp.post_invalidate(1, &mut own)), Err(PostReason::NotBound));
    drop(own);
    assert!(near.deregister().is_ok());
}

/// The QP through which a window was bound is destroyed after the window: rxe's would wait for it, for about 50 s.
pub(crate) fn outlives_its_qp() {
    let Pair { client: _client, mut server, c: _c, mut s, .. } = Pair::connected();
    let mr = register(&s, 1, Access::LOCAL_WRITE | Access::MW_BIND);
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(1, &mut window, &mr, 0..64, Access::REMOTE_WRITE).expect("post_bind");
    success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
    let (users, started) = (s.pd.users(), std::time::Instant::now());
    server.device.destroy_qp(s.id).expect("destroy_qp");
    drop(s.qp);
    assert_eq!(s.pd.users(), users, "the window keeps it");
    drop(window);
    assert_eq!(s.pd.users(), users - 2, "the QP went with the window");
    assert!(mr.deregister().is_ok());
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

/// The same after a failed bind through another QP.
pub(crate) fn outlives_both() {
    let mut pair = Pair::connected();
    let (_c2, End { qp: mut second, mut cq, .. }) = pair.second();
    let Pair { client: _client, mut server, c: _c, mut s, .. } = pair;
    let mr = register(&s, 1, Access::LOCAL_WRITE | Access::MW_BIND);
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(1, &mut window, &mr, 0..64, Access::REMOTE_WRITE).expect("post_bind");
    success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
    second.post_bind(2, &mut window, &mr, 0..64, Access::REMOTE_WRITE).expect("post_bind");
    assert_ne!(polled(&mut cq).status, WcStatus::SUCCESS);
    let started = std::time::Instant::now();
    server.device.destroy_qp(s.id).expect("destroy_qp");
    drop(s.qp);
    drop(window);
    assert!(mr.deregister().is_ok());
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

/// A window is not deallocated while its bind is queued: the device would bind another one that has its key meanwhile, and its
/// block would be free. The bind waits behind an invalidation, and that behind a send for which the peer has no receive.
pub(crate) fn dropped_while_its_bind_is_queued() {
    for is_polled in [true, false] {
        let Pair { client: _client, mut server, mut c, mut s, .. } = Pair::connected();
        let (from, into) =
            (register(&s, 7, Access::LOCAL_WRITE | Access::MW_BIND), register(&c, 0, Access::LOCAL_WRITE));
        let pool = s.pd.pool(vec![0; PAGE], PAGE, Access::MW_BIND).expect("pool");
        let [mut first, mut second] = [0; 2].map(|_| s.pd.alloc_mw().expect("alloc_mw"));
        s.qp.post_bind(1, &mut first, &from, 0..8, Access::REMOTE_READ).expect("post_bind");
        success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
        s.qp.post_send(SendWr::send(2, from.sge(0..8))).expect("post_send");
        s.qp.post_invalidate(3, &mut first).expect("post_invalidate");
        let block = pool.take().expect("a block");
        s.qp.post_bind_block(4, &mut second, block, Access::REMOTE_WRITE).expect("post_bind_block");
        let users = s.pd.users();
        let ErrorWith { given: second, error: errno } = second.dealloc().map(drop).expect_err("its bind is queued");
        assert_eq!(errno, Errno::EBUSY);
        drop(second);
        assert_eq!((s.pd.users(), pool.available()), (users, 0));
        let started = std::time::Instant::now();
        if is_polled {
            c.qp.post_recv(5, into.sge(0..8)).expect("post_recv");
            for (wr_id, opcode) in [(2, WcOpcode::SEND), (3, WcOpcode::LOCAL_INV), (4, WcOpcode::BIND_MW)] {
                success(polled(&mut s.cq), wr_id, opcode);
            }
            drop(s.pd.alloc_mw().expect("alloc_mw"));
            assert_eq!((s.pd.users(), pool.available()), (users - 1, 1));
        } else {
            // The QP has no owner but the window then, and executes nothing.
            drop((first, s.qp));
            server.device.destroy_qp(s.id).expect("destroy_qp");
            assert_eq!((s.pd.users(), pool.available()), (users - 3, 1));
            assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        }
    }
}

/// Memory that is dropped before a window, both in flight, and whose owner panics when it is freed.
pub(crate) fn behind_a_panic() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as the owner of a buffer may");
        }
    }
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let into = register(&c, 0, Access::LOCAL_WRITE);
    let pool = s.pd.pool(vec![0; PAGE], PAGE, Access::MW_BIND).expect("pool");
    let memory = NonNull::from(Box::leak(vec![0_u8; PAGE].into_boxed_slice())).cast();
    // SAFETY: it is leaked, and nothing else refers to it.
    let memory = unsafe { Buffer::from_raw(memory, PAGE, Box::new(Panics)) };
    let mr = s.pd.register(memory, Access::LOCAL_WRITE).expect("register");
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    c.qp.post_recv(1, into.sge(0..PAGE)).expect("post_recv");
    // Not inline.
    s.qp.post_send(SendWr::send(2, mr.sge(0..PAGE))).expect("post_send");
    let block = pool.take().expect("a block");
    s.qp.post_bind_block(3, &mut window, block, Access::REMOTE_WRITE).expect("post_bind_block");
    drop(mr);
    drop(window);
    for (wr_id, opcode) in [(2, WcOpcode::SEND), (3, WcOpcode::BIND_MW)] {
        success(polled(&mut s.cq), wr_id, opcode);
    }
    let users = s.pd.users();
    let retried = catch_unwind(AssertUnwindSafe(|| drop(s.pd.alloc_mw())));
    assert!(retried.is_err() && s.pd.users() == users - 1, "the memory is freed");
    assert_eq!(pool.available(), 0, "the window is bound to its block");
    drop(s.pd.alloc_mw().expect("alloc_mw"));
    assert_eq!((s.pd.users(), pool.available()), (users - 2, 1));
}

/// The peer invalidates a window; a second invalidation by this side would make rxe follow a null pointer (Linux 6.12).
pub(crate) fn invalidated_by_the_peer() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let (from, into) = (register(&c, 7, Access::empty()), register(&s, 0, Access::LOCAL_WRITE));
    let mut mr = register(&s, 1, Access::REMOTE_READ | Access::MW_BIND);
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    assert_eq!(mr.slice_mut().map(|slice| slice[0]), Ok(1));
    s.qp.post_bind(1, &mut window, &mr, 0..64, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
    assert_eq!(mr.slice().map(|slice| slice[0]), Ok(1), "a peer that reads changes nothing");
    assert_eq!(mr.slice_mut().map(drop), Err(Errno::EBUSY));
    s.qp.post_recv(2, into.sge(0..8)).expect("post_recv");
    c.qp.post_send(SendWr::send_invalidate(3, from.sge(0..8), window.rkey())).expect("post_send");
    success(polled(&mut c.cq), 3, WcOpcode::SEND);
    success(polled(&mut s.cq), 2, WcOpcode::RECV);
    assert_eq!(why(s.qp.post_invalidate(4, &mut window)), Err(PostReason::NotBound));
    assert_eq!(mr.slice_mut().map(|slice| slice[0]), Ok(1));
    // It can be bound again.
    s.qp.post_bind(5, &mut window, &mr, 0..64, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 5, WcOpcode::BIND_MW);
    let ErrorWith { given: mr, error } = mr.deregister().map(drop).expect_err("a window is bound to it");
    assert_eq!(reason(error), Some(MemoryReason::WindowBound));
    s.qp.post_invalidate(6, &mut window).expect("post_invalidate");
    assert_eq!(why(s.qp.post_invalidate(7, &mut window)), Err(PostReason::NotBound), "twice");
    success(polled(&mut s.cq), 6, WcOpcode::LOCAL_INV);
    assert!(mr.deregister().is_ok());
    drop(window);
}

/// The deregistration of the earlier key waits for the packet that soft-RoCE copies.
pub(crate) fn recalled() {
    for (access, is_renewed) in [(Access::REMOTE_WRITE, true), (Access::REMOTE_READ, false)] {
        for end in ["invalidated", "deallocated", "dropped"] {
            let Pair { client: _client, server: _server, mut s, .. } = Pair::connected();
            let pool = s.pd.pool(vec![1; PAGE], PAGE, Access::MW_BIND).expect("a pool");
            let block = pool.take().expect("a block");
            let key = block.remote(0).rkey;
            let mut window = s.pd.alloc_mw().expect("alloc_mw");
            s.qp.post_bind_block(1, &mut window, block, access).expect("post_bind");
            success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
            let part = match end {
                "invalidated" => {
                    s.qp.post_invalidate(2, &mut window).expect("post_invalidate");
                    success(polled(&mut s.cq), 2, WcOpcode::LOCAL_INV);
                    window.reclaim()
                }
                "deallocated" => window.dealloc().expect("dealloc").pop(),
                _ => {
                    drop(window);
                    pool.take().map(Part::from)
                }
            };
            let block = part.and_then(Part::into_block).expect("it is back");
            assert_eq!(
                (block.remote(0).rkey != key, &block[..1], pool.available()),
                (is_renewed, &[1][..], 0),
                "{end}"
            );
        }
    }
}
