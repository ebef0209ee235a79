//! Section 10.2 and 10.3: registrations and PDs.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_proto::memory::{Fallback, MemoryError, MemoryReason, MemoryRefused, Policy, RegisterCause, Way};
use cmid_proto::{Errno, ErrorWith};
use cmid_verbs::{Access, Buffer, Change, Mr, Pd, Remote};
use rdma_sys::{ibv_qp, ibv_qp_attr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::env::{Pair, SERVER, Side};
use crate::memory::{PAGE, kernel_mrs, mapped, mapped_read_only, mislabelled, unmapped};
use crate::refused_posts::is_iwarp;

fn side_with_pd() -> (Side, Pd) {
    let mut side = Side::new();
    let id = side.bound(SERVER);
    let pd = side.device.alloc_pd(id).expect("alloc_pd");
    (side, pd)
}

/// Checks that a registration fails, returns the buffer and leaves nothing behind, and that another one then
/// succeeds.
fn fails(pd: &Pd, buffer: impl Into<Buffer>, access: Access) -> (Buffer, MemoryError) {
    let buffer = buffer.into();
    let (len, before) = (buffer.len(), (pd.users(), kernel_mrs()));
    let ErrorWith { given: buffer, error } =
        pd.register(buffer, access).map(drop).expect_err("it cannot be registered");
    assert_eq!(buffer.len(), len);
    assert_eq!((pd.users(), kernel_mrs()), before, "after {error}");
    let other = pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("something else can");
    assert_eq!((pd.users(), kernel_mrs()), (before.0 + 1, before.1 + 1));
    end(other);
    (buffer, error)
}

fn end(mr: Mr) -> Buffer {
    mr.deregister().expect("deregistered").buffer
}

fn refused(error: MemoryError) -> MemoryReason {
    match error {
        MemoryError::Refused(MemoryRefused { reason, .. }) => reason,
        MemoryError::Register { .. } | MemoryError::Failed(_) | MemoryError::Dealloc(_) | MemoryError::Fault(_) => {
            panic!("not refused: {error}")
        }
    }
}

pub(crate) fn bad_memory() {
    let (_side, pd) = side_with_pd();
    assert_eq!(refused(fails(&pd, Vec::new(), Access::LOCAL_WRITE).1), MemoryReason::Empty);
    assert_eq!(fails(&pd, unmapped(), Access::LOCAL_WRITE).1, MemoryError::register(Errno::EFAULT, PAGE, None));
    assert_eq!(fails(&pd, unmapped(), Access::empty()).1, MemoryError::register(Errno::EFAULT, PAGE, None));

    // Read-only memory can be registered for reading.
    assert_eq!(fails(&pd, mislabelled(), Access::LOCAL_WRITE).1, MemoryError::register(Errno::EFAULT, PAGE, None));
    let (page, gone) = mapped_read_only(PAGE);
    let (page, error) = fails(&pd, page, Access::LOCAL_WRITE);
    assert_eq!(error, MemoryError::Register { errno: Errno::EACCES, cause: Some(RegisterCause::ReadOnly) });
    let mut mr = pd.register(page, Access::REMOTE_READ).expect("readable");
    assert_eq!((mr.len(), mr.access(), mr.lkey()), (PAGE, Some(Access::REMOTE_READ), mr.rkey()));
    assert_eq!(mr.write(0, &[1]), Err(Errno::EACCES));
    let mut byte = [1];
    assert_eq!((mr.read(PAGE - 1, &mut byte), byte), (Ok(()), [0]));
    let page = end(mr).into_vec().expect_err("it was not a Vec");
    assert_eq!(gone.load(Ordering::Relaxed), 0);
    drop(page);
    assert_eq!(gone.load(Ordering::Relaxed), 1);

    // Dropping an MR frees what it owns.
    let (page, gone) = mapped(PAGE);
    drop(pd.register(page, Access::LOCAL_WRITE).expect("mapped"));
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    assert_eq!(pd.dealloc(), Ok(()));
}

/// The kernel's results depend on its version: 6.1 does not support flushes and ignores two rights.
pub(crate) fn bad_rights() {
    let (_side, pd) = side_with_pd();
    let old = std::env::var("CMID_KERNEL").is_ok_and(|kernel| kernel.starts_with("6.1."));
    let by_age = |on_old, on_new| if old { on_old } else { on_new };
    for (access, answer) in [
        (Access::ON_DEMAND, by_age(Some(Errno::EINVAL), Some(Errno::EOPNOTSUPP))),
        (Access::HUGETLB, by_age(None, Some(Errno::EOPNOTSUPP))),
        (Access::FLUSH_GLOBAL, by_age(Some(Errno::EINVAL), None)),
        (Access::FLUSH_PERSISTENT, Some(Errno::EINVAL)),
    ] {
        let access = access | Access::LOCAL_WRITE;
        match answer {
            Some(errno) => {
                assert_eq!(
                    fails(&pd, vec![0; PAGE], access).1,
                    MemoryError::Register { errno, cause: None },
                    "{access:?}"
                )
            }
            None => drop(end(pd.register(vec![0; PAGE], access).expect("not looked at, or granted"))),
        }
    }
    assert_eq!(pd.dealloc(), Ok(()));
}

/// Registers on a thread with a limit on locked memory.
pub(crate) fn lock_limit() {
    let (_side, pd) = side_with_pd();
    let before = getrlimit(Resource::Memlock);
    let tried = thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut sets = capabilities(None).expect("capget");
                sets.effective -= CapabilitySet::IPC_LOCK;
                set_capabilities(None, sets).expect("capset");
                let limit = Rlimit { current: Some(64 << 10), ..before };
                setrlimit(Resource::Memlock, limit).expect("setrlimit");
                let (buffer, error) = fails(&pd, vec![0; 1 << 20], Access::LOCAL_WRITE);
                let cause = |len| Some(RegisterCause::LockLimit { len, limit: 64 << 10 });
                let no_memory = |len| MemoryError::Register { errno: Errno::ENOMEM, cause: cause(len) };
                assert_eq!((buffer.len(), error), (1 << 20, no_memory(1 << 20)));
                // Registered memory counts: the second half does not fit any more, and fits again after the first is
                // deregistered.
                let first = pd.register(vec![0; 10 * PAGE], Access::LOCAL_WRITE).expect("within the limit");
                let (second, error) = fails(&pd, vec![0; 10 * PAGE], Access::LOCAL_WRITE);
                assert_eq!(error, no_memory(10 * PAGE as u64));
                end(first);
                end(pd.register(second, Access::LOCAL_WRITE).expect("within the limit again"));
                buffer
            })
            .join()
    });
    setrlimit(Resource::Memlock, before).expect("setrlimit");
    let buffer = tried.expect("the thread");
    end(pd.register(buffer, Access::LOCAL_WRITE).expect("no limit"));
    assert_eq!(pd.dealloc(), Ok(()));
}

/// A peer's write of many segments is under way while its memory is deregistered: nothing of it arrives afterwards
/// (hazard P71: siw does not wait for a copy by itself).
pub(crate) fn under_a_write() {
    const LEN: usize = 256 * PAGE;
    const ROUNDS: u32 = 200;
    for round in 0..ROUNDS {
        let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
        let source = c.pd.register(vec![7; LEN], Access::empty()).expect("register");
        let target = s.pd.register(vec![0; LEN], Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("register");
        let to = Remote { addr: target.addr(), rkey: target.rkey() };
        let end = Instant::now() + Duration::from_secs(5);
        thread::scope(|scope| {
            scope.spawn(|| c.qp.post_send(SendWr::write(1, source.sge(0..LEN), to)).expect("post_write"));
            // The first segments have arrived.
            let at = round as usize * LEN / ROUNDS as usize;
            while target.load_relaxed::<u32>(at & !3).expect("inside") == 0 {
                assert!(Instant::now() < end, "nothing arrives");
                thread::yield_now();
            }
            let bytes = target.deregister().expect("deregistered").buffer.into_vec().expect("a Vec");
            // Segments arrive in order, so that a few looks find the end of what has arrived.
            let arrived = || std::hint::black_box(&bytes).partition_point(|&byte| byte == 7);
            let first = arrived();
            thread::sleep(Duration::from_millis(2));
            assert_eq!(arrived(), first, "bytes of the peer that the owner has at once and later, in round {round}");
        });
    }
}

/// A peer of soft-iWARP may still be writing where the change fails that waits for it: the memory is lost, or it is no slice
/// until another registration of it has ended.
pub(crate) fn while_peers_write() {
    let mut pair = Pair::connected();
    if !is_iwarp(&mut pair.server, &pair.s) {
        return;
    }
    let register = || pair.s.pd.register(vec![0; PAGE], Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("register");
    let (gone, mut kept, mut moved, mut lost) = (register(), register(), register(), register());
    let other = pair.server.device.alloc_pd(pair.s.id).expect("alloc_pd");
    let anew =
        |mr: &mut Mr, change: Change| mr.reregister(change, Policy { fallback: Fallback::Anew, ..Policy::default() });
    let own = || Change::default().to_access(Access::LOCAL_WRITE);
    let away = || own().to_pd(other.clone());
    CHANGES_FAIL.store(true, Ordering::SeqCst);
    assert!(gone.deregister().is_err(), "its memory is lost");
    assert_eq!(anew(&mut kept, own()).result, Ok(Way::Anew));
    // The new memory is valid, and the old one lost.
    let replaced = anew(&mut lost, away().to_buffer(vec![0; PAGE]));
    assert_eq!((replaced.result, replaced.buffer.is_none()), (Ok(Way::Anew), true));
    // No QP of the other PD writes. Those of the first may.
    assert_eq!(anew(&mut moved, away()).result, Ok(Way::Anew));
    for mr in [&mut kept, &mut moved] {
        assert_eq!([mr.slice().map(drop), mr.slice_mut().map(drop)], [Err(Errno::EACCES); 2]);
    }
    assert!(lost.deregister().is_err(), "it waits for the first PD too");
    assert_eq!(anew(&mut moved, own()).result, Ok(Way::Anew));
    assert_eq!(moved.slice().map(drop), Err(Errno::EACCES));
    CHANGES_FAIL.store(false, Ordering::SeqCst);
    for mr in [&mut kept, &mut moved] {
        assert_eq!((anew(mr, own()).result, mr.slice().map(drop)), (Ok(Way::Anew), Ok(())));
    }
    assert!(moved.deregister().is_ok());
}

/// The change that waits for the peers of soft-iWARP leaves bytes unread that arrive meanwhile (hazard P72), so it is made
/// only for memory that peers could write to.
pub(crate) fn of_own_memory() {
    let mut pair = Pair::connected();
    let waits = is_iwarp(&mut pair.server, &pair.s);
    let register = |access| pair.s.pd.register(vec![0; PAGE], Access::LOCAL_WRITE | access).expect("register");
    let changed = |deregister: &dyn Fn()| {
        let before = CHANGES.load(Ordering::SeqCst);
        deregister();
        CHANGES.load(Ordering::SeqCst) - before
    };
    for (access, changes) in [
        (Access::empty(), 0),
        (Access::REMOTE_READ, 0),
        (Access::REMOTE_WRITE, usize::from(waits)),
        (Access::REMOTE_ATOMIC, usize::from(waits)),
    ] {
        let deregister = || assert!(register(access).deregister().is_ok());
        assert_eq!(changed(&deregister), changes, "{access:?}");
    }
    // That a right was given and taken back counts.
    let taken = || {
        let mut mr = register(Access::REMOTE_WRITE);
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let changed = mr.reregister(Change::default().to_access(Access::LOCAL_WRITE), policy);
        assert!(changed.result.is_ok() && mr.deregister().is_ok());
    };
    assert_eq!(changed(&taken), 2 * usize::from(waits));
}

/// The changes of QPs.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Whether no change of a QP succeeds.
static CHANGES_FAIL: AtomicBool = AtomicBool::new(false);

type ModifyQp = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;

/// Takes precedence over the library's function, as in removal.rs.
///
/// # Safety
/// As for the library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    if CHANGES_FAIL.load(Ordering::SeqCst) {
        return libc::ENOMEM;
    }
    // SAFETY: the name is null-terminated; libibverbs' function of this name has this type, and the caller keeps its rules.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"ibv_modify_qp".as_ptr());
        assert!(!real.is_null());
        std::mem::transmute::<*mut libc::c_void, ModifyQp>(real)(qp, attr, mask)
    }
}
