//! Behaviour 83: memory windows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use cmid_proto::datapath::{Part, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_verbs::{Access, Buffer};

use crate::data::{polled, register, success, why};
use crate::env::Pair;
use crate::memory::{PAGE, kernel_mrs, mapped};

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

/// A page whose owner panics when it is freed.
fn panics() -> Buffer {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as the owner of a buffer may");
        }
    }
    let memory = NonNull::from(Box::leak(vec![0_u8; PAGE].into_boxed_slice())).cast();
    // SAFETY: it is leaked, and nothing else refers to it.
    unsafe { Buffer::from_raw(memory, PAGE, Box::new(Panics)) }
}

/// Memory that is dropped before a window, both in flight, and whose owner panics when it is freed.
pub(crate) fn behind_a_panic() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let into = register(&c, 0, Access::LOCAL_WRITE);
    let pool = s.pd.pool(vec![0; PAGE], PAGE, Access::MW_BIND).expect("pool");
    let mr = s.pd.register(panics(), Access::LOCAL_WRITE).expect("register");
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    c.qp.post_recv(1, into.sge(0..PAGE)).expect("post_recv");
    // Not inline.
    s.qp.post_send(SendWr::send(2, mr.sge(0..PAGE))).expect("post_send");
    let block = pool.take().expect("a block");
    s.qp.post_bind_block(3, &mut window, block, Access::REMOTE_WRITE).expect("post_bind_block");
    drop(mr);
    drop(window);
    let other = register(&s, 0, Access::empty());
    for (wr_id, opcode) in [(2, WcOpcode::SEND), (3, WcOpcode::BIND_MW)] {
        success(polled(&mut s.cq), wr_id, opcode);
    }
    let (users, mrs) = (s.pd.users(), kernel_mrs());
    let retried = catch_unwind(AssertUnwindSafe(|| drop(other.deregister())));
    assert!(retried.is_err());
    assert_eq!((s.pd.users(), kernel_mrs()), (users - 2, mrs - 2), "both are deregistered");
    assert_eq!(pool.available(), 0, "the window is bound to its block");
    drop(s.pd.alloc_mw().expect("alloc_mw"));
    assert_eq!((s.pd.users(), pool.available()), (users - 3, 1));
}

/// The same of the block of a window, to which memory was bound that is dropped before.
pub(crate) fn before_a_panic() {
    let Pair { client: _client, server: _server, mut s, .. } = Pair::connected();
    let users = s.pd.users();
    let mr = register(&s, 0, Access::LOCAL_WRITE | Access::MW_BIND);
    let pool = s.pd.pool(panics(), PAGE, Access::MW_BIND).expect("a pool");
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(1, &mut window, &mr, 0..8, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 1, WcOpcode::BIND_MW);
    let block = pool.take().expect("a block");
    s.qp.post_bind_block(2, &mut window, block, Access::REMOTE_READ).expect("post_bind_block");
    assert!(!polled(&mut s.cq).is_success(), "it is bound");
    drop((mr, pool));
    assert_eq!(s.pd.users(), users + 3, "the window holds both");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(window))).is_err());
    assert_eq!(s.pd.users(), users);
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
