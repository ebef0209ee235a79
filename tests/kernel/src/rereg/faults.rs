//! The kernel's errnos, and which registration is valid after each.

use std::ptr::{self, NonNull};

use cmid_proto::datapath::{MemoryRegion, ProtectionDomain, QueuePair};
use cmid_proto::memory::{
    Code, Fallback, MemoryError, MemoryFailure, MemoryReason, MemoryStep, MrState, Provider, Valid,
};
use cmid_proto::{CmEvent, Errno};
use cmid_verbs::{Access, Buffer, Change, Policy, Way, WcStatus};

use crate::env::Pair;
use crate::fixture::{
    PAGE, READABLE, another_pd, end, facts, failure, in_place, peer_reads, region, remote, reregister,
};

const CHECKS_FIRST: Policy = Policy { fallback: Fallback::None, provider: Provider::ChecksFirst };
const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };

const fn cmd(errno: Errno, valid: Valid) -> MemoryFailure {
    MemoryFailure { step: MemoryStep::Reregister(Code::Cmd), errno, valid }
}

pub(crate) fn translation() {
    let mut pair = Pair::connected();
    let mut mr = region(&pair.s.pd, 8, READABLE);
    let before = facts(&mr);
    let done = reregister(&mut mr, Change::default().to_buffer(vec![9; 2 * PAGE]), Policy::default(), 1);
    assert_eq!(failure(&done), cmd(Errno::EOPNOTSUPP, Valid::Old));
    assert_eq!(bytes(done.buffer), vec![9; 2 * PAGE], "the new memory comes back");
    assert_eq!(facts(&mr), before);
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([8; 8]));

    // Other changes in the same call are not made either.
    let (other, users) = (another_pd(&mut pair.server, pair.s.id), pair.s.pd.users());
    let all = Change::default().to_buffer(vec![9; PAGE]).to_pd(other.clone()).to_access(Access::LOCAL_WRITE);
    let done = reregister(&mut mr, all, Policy::default(), 1);
    assert_eq!(failure(&done), cmd(Errno::EOPNOTSUPP, Valid::Old));
    assert_eq!((facts(&mr), pair.s.pd.users(), other.users()), (before, users, 0));
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([8; 8]));

    // Registering anew works; the old memory is returned.
    let old = remote(&mr);
    let done = reregister(&mut mr, Change::default().to_buffer(vec![9; 2 * PAGE]), ANEW, 1);
    assert_eq!(done.result, Ok(Way::Anew));
    assert_eq!(bytes(done.buffer), vec![8; PAGE]);
    assert_eq!((mr.way(), mr.len(), mr.access()), (Way::Anew, 2 * PAGE, Some(READABLE)));
    assert_ne!(mr.rkey(), old.rkey);
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([9; 8]));
    assert_eq!(peer_reads(&mut pair.c, old), Err(WcStatus::REM_ACCESS_ERR));

    // A fallback is used only where it is needed.
    let done = reregister(&mut mr, Change::default().to_access(Access::LOCAL_WRITE), ANEW, 1);
    assert_eq!(done.result, Ok(Way::InPlace));
}

/// The kernel pins pages according to the rights, and adds no right to write later (`ib_umem_check_rereg`). It checks
/// before it changes anything, but the errno, EACCES, does not show that.
pub(crate) fn pinned_to_be_read() {
    let mut pair = Pair::connected();
    let mut mr = region(&pair.s.pd, 5, Access::REMOTE_READ);
    let (before, at) = (facts(&mr), remote(&mr));

    let done = reregister(&mut mr, Change::default().to_access(READABLE), CHECKS_FIRST, 1);
    assert_eq!(failure(&done), cmd(Errno::EACCES, Valid::Old));
    assert_eq!(facts(&mr), before);
    assert_eq!(peer_reads(&mut pair.c, at), Ok([5; 8]));

    let done = reregister(&mut mr, Change::default().to_access(READABLE), Policy::default(), 1);
    assert_eq!(failure(&done), cmd(Errno::EACCES, Valid::Neither));
    assert_eq!((mr.state(), mr.access(), done.buffer.is_none()), (MrState::Unusable, None, true));
    assert_eq!((mr.lkey(), mr.rkey()), (0, 0), "there is no key that could be relied on");
    let refused = mr.reregister(Change::default().to_access(READABLE), Policy::default()).result;
    assert!(
        matches!(refused, Err(MemoryError::Refused(refused)) if refused.reason == MemoryReason::OnlyDeregister),
        "{refused:?}"
    );
    // The old registration is in fact valid until it is deregistered.
    assert_eq!(peer_reads(&mut pair.c, at), Ok([5; 8]));
    let returned = mr.deregister().expect("deregistered");
    assert_eq!(returned.other.map(|other| other.len()), None);
    assert_eq!(returned.buffer.len(), PAGE);
    assert_eq!(peer_reads(&mut pair.c, at), Err(WcStatus::REM_ACCESS_ERR));
}

/// A page that this process cannot write to.
struct Page(NonNull<u8>);

// SAFETY: it is only ever unmapped, which any thread may do.
unsafe impl Send for Page {}

impl Page {
    /// Makes a page with this first byte, and zeros.
    fn read_only(first: u8) -> Self {
        // SAFETY: a new private mapping, wherever there is room.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), PAGE, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast::<u8>()).expect("not at 0");
        // SAFETY: the page was mapped above for writing; from here on it is only read.
        let sealed = unsafe {
            start.write(first);
            libc::mprotect(start.as_ptr().cast(), PAGE, libc::PROT_READ)
        };
        assert_eq!(sealed, 0);
        Page(start)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `read_only`, and unmapped only here.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

pub(crate) fn read_only_mapping() {
    let mut pair = Pair::connected();
    let page = Page::read_only(0x42);
    // SAFETY: the page is initialised, stays mapped until its owner is dropped, and nothing writes to it.
    let buffer = unsafe { Buffer::from_raw_read_only(page.0, PAGE, Box::new(page)) };
    let mut mr = pair.s.pd.register(buffer, Access::REMOTE_READ).expect("registered");
    let before = facts(&mr);
    let writable = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    // The core refuses it without a call to the kernel.
    let done = reregister(&mut mr, Change::default().to_access(writable), CHECKS_FIRST, 0);
    let refused = MemoryFailure { step: MemoryStep::Reregister(Code::Input), errno: Errno::EACCES, valid: Valid::Old };
    assert_eq!(failure(&done), refused);
    assert_eq!(facts(&mr), before);
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([0x42, 0, 0, 0, 0, 0, 0, 0]));

    // Changes without that right are still possible.
    in_place(&mut mr, Change::default().to_access(Access::empty()));
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Err(WcStatus::REM_ACCESS_ERR));
    end(mr);
}

/// The device of an unusable MR is removed. This check removes a device, so it comes last.
pub(crate) fn unusable_without_its_device() {
    let mut side = crate::env::Side::new();
    let id = side.bound([10, 98, 0, 1]);
    let pd = another_pd(&mut side, id);
    let mut mr = region(&pd, 5, Access::REMOTE_READ);
    let done = reregister(&mut mr, Change::default().to_access(READABLE), Policy::default(), 1);
    assert_eq!(failure(&done), cmd(Errno::EACCES, Valid::Neither));
    let mut reason = || match mr.reregister(Change::default().to_access(READABLE), Policy::default()).result {
        Err(MemoryError::Refused(refused)) => refused.reason,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(reason(), MemoryReason::OnlyDeregister);
    // The command ends with this process, because the device is open.
    // The shim is not for it, and a sanitizer's would not load.
    let mut delete = std::process::Command::new("rdma");
    let deleting = delete.args(["link", "delete", "rxe1"]).env_remove("LD_PRELOAD").spawn().expect("rdma(8)");
    side.expect(CmEvent::DeviceRemoval);
    assert_eq!((reason(), mr.state()), (MemoryReason::DeviceGone, MrState::Unusable));
    drop(deleting);
    end(mr);
}

pub(crate) fn refused_before() {
    let mut pair = Pair::connected();
    let mut mr = region(&pair.s.pd, 1, READABLE);
    let before = facts(&mr);
    // The kernel would take the PD's number for one of rxe0's, and may find another PD under it.
    let on_rxe1 = pair.server.bound([10, 98, 0, 1]);
    let foreign = another_pd(&mut pair.server, on_rxe1);
    for (change, reason) in [
        (Change::default(), MemoryReason::NothingToChange),
        (Change::default().to_buffer(Vec::new()), MemoryReason::Empty),
        (Change::default().to_pd(foreign.clone()), MemoryReason::OtherDevice),
        (Change::default().to_access(Access::REMOTE_WRITE), MemoryReason::RemoteWithoutLocalWrite),
    ] {
        let given = change.buffer.is_some();
        let done = reregister(&mut mr, change, ANEW, 0);
        assert!(matches!(done.result, Err(MemoryError::Refused(refused)) if refused.reason == reason), "{reason}");
        assert_eq!(done.buffer.is_some(), given);
        assert_eq!((facts(&mr), foreign.users()), (before, 0));
    }
    // The work request pins the MR until its completion has been polled. Here it never is, and the QP is destroyed.
    pair.s.qp.post_recv(1, mr.sge(0..8)).expect("post_recv");
    let done = reregister(&mut mr, Change::default().to_access(Access::LOCAL_WRITE), ANEW, 0);
    assert!(matches!(done.result, Err(MemoryError::Refused(refused)) if refused.reason == MemoryReason::InFlight));
    assert_eq!(facts(&mr), before);
    let Pair { client, server, c, s, .. } = pair;
    drop((client, server, c, s));
    in_place(&mut mr, Change::default().to_access(Access::LOCAL_WRITE));
}

fn bytes(buffer: Option<Buffer>) -> Vec<u8> {
    buffer.expect("a buffer").into_vec().map_err(|_| "not of a Vec").expect("a Vec")
}
