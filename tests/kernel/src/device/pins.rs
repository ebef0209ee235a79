//! Work in flight pins its memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use cmid_proto::datapath::{Attaching, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_proto::memory::{Fallback, MemoryError, MemoryReason, Policy, Provider};
use cmid_proto::{Call, Errno, ErrorWith, Transport};
use cmid_verbs::{Access, Caps, Change, Completion, Mr, Remote, WcStatus};
use rdma_sys::{ibv_atomic_cap, ibv_context, ibv_device_attr};

use crate::data::{polled, register, success, why};
use crate::env::Pair;
use crate::memory::{PAGE, kernel_mrs};
use crate::refused_posts::is_iwarp;

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };

/// Checks that the MR can be neither re-registered nor deregistered. Everything is returned, and nothing changes.
fn pinned(mut mr: Mr) -> Mr {
    let before = (mr.rkey(), mr.addr(), mr.state(), kernel_mrs());
    let outcome = mr.reregister(Change::default().to_buffer(vec![3; 8]), ANEW);
    let reason = |error| match error {
        MemoryError::Refused(refused) => Some((refused.reason, refused.errno())),
        MemoryError::Register { .. } | MemoryError::Failed(_) | MemoryError::Dealloc(_) | MemoryError::Fault(_) => None,
    };
    assert_eq!(outcome.result.map_err(reason), Err(Some((MemoryReason::InFlight, Errno::EBUSY))));
    assert_eq!(outcome.buffer.and_then(|buffer| buffer.into_vec().ok()), Some(vec![3; 8]));
    let ErrorWith { given: mr, error } = mr.deregister().map(drop).expect_err("it is pinned");
    assert_eq!(reason(error), Some((MemoryReason::InFlight, Errno::EBUSY)));
    assert_eq!((mr.rkey(), mr.addr(), mr.state(), kernel_mrs()), before);
    mr
}

/// Checks that the MR can be re-registered and then deregistered.
fn free(mut mr: Mr) {
    let outcome = mr.reregister(Change::default().to_buffer(vec![3; 8]), ANEW);
    assert!(outcome.result.is_ok(), "{outcome:?}");
    assert!(mr.deregister().is_ok());
}

/// Memory without the right to write locally cannot be the target of a receive or a read of any length.
pub(crate) fn read_only() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let mut memory = register(&c, 1, Access::REMOTE_READ);
    let remote = register(&s, 2, Access::LOCAL_WRITE | Access::REMOTE_READ);
    let at = Remote { addr: remote.addr(), rkey: remote.rkey() };
    for range in [0..8, 3..3] {
        assert_eq!(why(c.qp.post_recv(1, memory.sge(range.clone()))), Err(PostReason::ReadOnly));
        assert_eq!(why(c.qp.post_send(SendWr::read(1, memory.sge(range), at))), Err(PostReason::ReadOnly));
    }
    // The current access rights count, in both directions.
    let mut to = |access| memory.reregister(Change::default().to_access(access), ANEW).result.map(drop);
    assert_eq!(to(Access::LOCAL_WRITE), Ok(()));
    c.qp.post_send(SendWr::read(2, memory.sge(0..8), at)).expect("post_read");
    success(polled(&mut c.cq), 2, WcOpcode::RDMA_READ);
    let mut to = |access| memory.reregister(Change::default().to_access(access), ANEW).result.map(drop);
    assert_eq!(to(Access::empty()), Ok(()));
    assert_eq!(why(c.qp.post_send(SendWr::read(3, memory.sge(0..8), at))), Err(PostReason::ReadOnly));
    s.qp.post_recv(4, remote.sge(0..64)).expect("post_recv");
    c.qp.post_send(SendWr::send(5, memory.sge(0..64))).expect("post_send");
    success(polled(&mut s.cq), 4, WcOpcode::RECV);
    success(polled(&mut c.cq), 5, WcOpcode::SEND);
    free(memory);
}

/// The bookkeeping of work requests is allocated at the first post to a queue. A QP without posts returns its room in
/// the CQ at once, because it has left no completions.
pub(crate) fn first_post() {
    const EACH: u32 = 2048;
    /// Lower bound: a number and a key for each work request.
    const RING: usize = 12 * EACH as usize;
    let mut side = crate::env::Side::new();
    let (_listener, addr) = side.listener();
    let (warm, id) = (side.resolved(addr), side.resolved(addr));
    let pd = side.device.alloc_pd(id).expect("alloc_pd");
    let mut cq = side.device.create_cq(id, 4 * EACH).expect("create_cq");
    let memory = pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("register");
    let caps = Caps { max_send_wr: EACH, max_recv_wr: EACH, ..Caps::default() };
    let other = side.device.create_qp(Attaching::bare(warm), &pd, &cq, &cq, caps).expect("create_qp");

    let before = crate::heap::allocated();
    let mut qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, caps).expect("create_qp");
    let made = crate::heap::allocated().saturating_sub(before);
    assert!(made < RING, "{made} bytes for a QP that nothing is posted to");
    qp.post_recv(1, memory.sge(0..8)).expect("post_recv");
    let one = crate::heap::allocated().saturating_sub(before + made);
    assert!((RING..2 * RING).contains(&one), "{one} bytes for the first queue that something is posted to");
    qp.post_recv(2, memory.sge(0..8)).expect("post_recv");
    let memory = pinned(memory);

    assert_eq!(cq.room().reserved(), 4 * EACH);
    side.device.destroy_qp(warm).expect("destroy_qp");
    drop(other);
    assert_eq!(cq.room().reserved(), 2 * EACH);
    // One of the two queues of this QP may have left completions.
    side.device.destroy_qp(id).expect("destroy_qp");
    drop(qp);
    assert_eq!(cq.room().reserved(), EACH);
    let memory = pinned(memory);
    assert_eq!(cq.poll(&mut [Completion::default(); 4]), Ok(0));
    assert_eq!(cq.room().reserved(), 0);
    free(memory);
    let left = crate::heap::allocated().saturating_sub(before);
    assert!(left < RING, "{left} bytes are left");
}

/// A completion in error does not identify its queue, and here both queues use one CQ and the same numbers.
pub(crate) fn failed() {
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let (sends, receives) = (register(&c, 1, Access::LOCAL_WRITE), register(&c, 2, Access::LOCAL_WRITE));
    let (later, private) = (register(&c, 3, Access::empty()), register(&s, 2, Access::LOCAL_WRITE));
    c.qp.post_recv(0, receives.sge(0..64)).expect("post_recv");
    let nowhere = Remote { addr: private.addr(), rkey: private.rkey() };
    c.qp.post_send(SendWr::read(0, sends.sge(0..64), nowhere)).expect("post_read");
    c.qp.post_send(SendWr::send(0, later.sge(0..64))).expect("post_send");
    let mut waiting = [Some(sends), Some(receives), Some(later)];
    let mut order = Vec::new();
    for left in (0..3).rev() {
        let done = polled(&mut c.cq);
        assert!(done.wr_id == 0 && done.status != WcStatus::SUCCESS, "{done:?}");
        // Each completion unpins exactly one.
        let mut freed = None;
        for (at, place) in waiting.iter_mut().enumerate() {
            match place.take().map(Mr::deregister) {
                Some(Ok(_)) => assert_eq!(freed.replace(at), None),
                Some(Err(ErrorWith { given: mr, .. })) => *place = Some(pinned(mr)),
                None => {}
            }
        }
        order.push((freed.expect("one is free"), done.status, done.opcode));
        assert_eq!(waiting.iter().flatten().count(), left);
    }
    println!("             read, receive and send failed as (which, status, opcode) {order:?}");
    assert_eq!(order.iter().map(|&(at, ..)| at).filter(|&at| at != 1).collect::<Vec<_>>(), [0, 2]);
}

pub(crate) fn dropped() {
    [false, true].into_iter().for_each(dropped_and);
}

fn dropped_and(polls: bool) {
    let Pair { client: _client, mut server, mut c, mut s, .. } = Pair::connected();
    let from = register(&c, 1, Access::empty());
    let (users, mrs) = (s.pd.users(), kernel_mrs());
    let to = register(&s, 2, Access::LOCAL_WRITE);
    s.qp.post_recv(7, to.sge(0..PAGE)).expect("post_recv");
    drop(to);
    assert_eq!((s.pd.users(), kernel_mrs()), (users + 1, mrs + 1), "it stays until it is quiet");
    assert_eq!(s.pd.dealloc().map_err(|error| error.errno()), Err(Errno::EBUSY));
    // The message still arrives.
    c.qp.post_send(SendWr::send(8, from.sge(0..PAGE))).expect("post_send");
    assert_eq!(success(polled(&mut s.cq), 7, WcOpcode::RECV).byte_len as usize, PAGE);
    success(polled(&mut c.cq), 8, WcOpcode::SEND);
    assert_eq!(kernel_mrs(), mrs + 1);
    let next = register(&s, 3, Access::LOCAL_WRITE);
    assert_eq!((s.pd.users(), kernel_mrs()), (users + 1, mrs + 1), "the next registration has found it quiet");

    // Memory pinned when the QP is destroyed is freed when the CQ was polled empty after that, or is dropped.
    s.qp.post_recv(9, next.sge(0..PAGE)).expect("post_recv");
    drop(next);
    assert_eq!((s.pd.users(), kernel_mrs()), (users + 1, mrs + 1));
    server.ok(&Call::Destroy { id: s.id });
    assert_eq!(s.pd.users(), users + 1);
    drop(s.qp);
    assert_eq!((s.pd.users(), kernel_mrs()), (1, mrs + 1));
    if polls {
        assert_eq!(s.cq.poll(&mut [Completion::default(); 4]), Ok(0));
    } else {
        drop(s.cq);
    }
    assert_eq!((s.pd.users(), kernel_mrs()), (0, mrs));
    assert_eq!(s.pd.dealloc(), Ok(()));
}

/// Whether devices report that they have no atomic operations.
static HIDES_ATOMICS: AtomicBool = AtomicBool::new(false);

type QueryDevice = unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;

/// Takes precedence over the library's function, as in removal.rs.
///
/// # Safety
/// As for the library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the name is null-terminated; libibverbs' function of this name has this type, and the caller keeps its
    // rules.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"ibv_query_device".as_ptr());
        assert!(!real.is_null());
        let failed = std::mem::transmute::<*mut libc::c_void, QueryDevice>(real)(context, attr);
        if failed == 0 && HIDES_ATOMICS.load(Ordering::SeqCst) {
            (*attr).atomic_cap = ibv_atomic_cap::IBV_ATOMIC_NONE;
        }
        failed
    }
}

/// An atomic operation is refused at a device that has none (hazard P104).
pub(crate) fn no_atomics() {
    HIDES_ATOMICS.store(true, Ordering::SeqCst);
    let Pair { client: _client, mut server, mut c, s, .. } = Pair::connected();
    HIDES_ATOMICS.store(false, Ordering::SeqCst);
    let (memory, remote) = (register(&c, 0, Access::LOCAL_WRITE), Remote { addr: 0, rkey: 0 });
    let reason =
        if is_iwarp(&mut server, &s) { PostReason::NotOfTransport(Transport::Iwarp) } else { PostReason::NoAtomics };
    let to = memory.sge(0..8);
    for wr in [SendWr::fetch_add(1, to, remote, 1), SendWr::compare_swap(2, to, remote, 0, 1)] {
        assert_eq!(why(c.qp.post_send(wr)), Err(reason));
    }
    free(memory);
}

/// One thread posts work and drops its memory at once, one polls, one registers and deregisters other memory, which
/// also frees dropped memory. Nothing is deregistered too early, and nothing is left.
pub(crate) fn threads() {
    const ROUNDS: u64 = 300;
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let target = register(&s, 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let at = Remote { addr: target.addr(), rkey: target.rkey() };
    let (users, mrs) = (c.pd.users(), kernel_mrs());
    let most = std::thread::scope(|scope| {
        let (posting, registering) = (c.pd.clone(), c.pd.clone());
        let (qp, cq) = (&mut c.qp, &mut c.cq);
        let poller = scope.spawn(move || {
            for wr_id in 0..ROUNDS {
                success(polled(cq), wr_id, WcOpcode::RDMA_WRITE);
            }
        });
        let poster = scope.spawn(move || {
            for wr_id in 0..ROUNDS {
                let memory = posting.register(vec![7; PAGE], Access::empty()).expect("register");
                while let Err(error) = qp.post_send(SendWr::write(wr_id, memory.sge(0..64), at)) {
                    assert_eq!(error.errno(), Errno::ENOMEM, "the queue is full");
                    std::thread::yield_now();
                }
            }
        });
        let mut most = 0;
        while !poster.is_finished() {
            let other = registering.register(vec![8; PAGE], Access::LOCAL_WRITE).expect("register");
            most = most.max(registering.users());
            assert!(other.deregister().is_ok(), "nobody posts it");
        }
        poster.join().expect("the poster");
        poller.join().expect("the poller");
        most
    });
    println!("             at most {most} users of the PD");
    register(&c, 0, Access::empty()).deregister().expect("quiet");
    assert_eq!((c.pd.users(), kernel_mrs()), (users, mrs));
}
