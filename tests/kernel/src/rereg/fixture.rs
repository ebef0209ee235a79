//! Helpers of the checks.

use std::time::{Duration, Instant};

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_proto::memory::{Keys, MemoryError, MemoryFailure, MrState};
use cmid_proto::{Errno, IdKey};
use cmid_verbs::{Access, Change, Completion, Mr, Pd, Policy, Remote, Reregistered, Way, WcStatus};

use crate::env::{End, Side};
use crate::shim;

pub(crate) const PAGE: usize = 4096;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const READABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);

/// Registers a region filled with one byte.
pub(crate) fn region(pd: &Pd, fill: u8, access: Access) -> Mr {
    pd.register(vec![fill; PAGE], access).expect("registered")
}

/// Another PD on the device of an id.
pub(crate) fn another_pd(side: &mut Side, id: IdKey) -> Pd {
    side.device.alloc_pd(id).expect("alloc_pd")
}

/// Re-registers. Checks the number of requests to the kernel.
pub(crate) fn reregister(mr: &mut Mr, change: Change, policy: Policy, calls: u32) -> Reregistered {
    let before = shim::count();
    let done = mr.reregister(change, policy);
    match &done.result {
        Ok(way) => print!("   re-registered {way:?}"),
        Err(error) => print!("   {error}"),
    }
    println!("{}", if done.buffer.is_some() { "; a buffer comes back" } else { "" });
    assert_eq!(shim::count() - before, calls, "the number of re-registrations");
    done
}

/// Re-registers, which must succeed in place, without a returned buffer.
pub(crate) fn in_place(mr: &mut Mr, change: Change) {
    let done = reregister(mr, change, Policy::default(), 1);
    assert_eq!(done.result, Ok(Way::InPlace));
    assert!(done.buffer.is_none());
    assert_eq!((mr.state(), mr.way()), (MrState::Registered, Way::InPlace));
}

/// The device's failure of a re-registration.
pub(crate) fn failure(done: &Reregistered) -> MemoryFailure {
    match done.result {
        Err(MemoryError::Failed(failure)) => failure,
        ref other => panic!("no failure of the device: {other:?}"),
    }
}

/// The observable fields of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) keys: Keys,
    pub(crate) access: Option<Access>,
    pub(crate) state: MrState,
    pub(crate) way: Way,
}

pub(crate) fn facts(mr: &Mr) -> Facts {
    let keys = Keys { lkey: mr.lkey(), rkey: mr.rkey() };
    Facts { addr: mr.addr(), len: mr.len(), keys, access: mr.access(), state: mr.state(), way: mr.way() }
}

/// The remote address and key of a region.
pub(crate) fn remote(mr: &Mr) -> Remote {
    Remote { addr: mr.addr(), rkey: mr.rkey() }
}

/// Reads 8 bytes of the peer's memory. Returns them, or the status of a failure.
pub(crate) fn peer_reads(end: &mut End, from: Remote) -> Result<[u8; 8], WcStatus> {
    let into = region(&end.pd, 0xaa, Access::LOCAL_WRITE);
    end.qp.post_send(SendWr::read(1, into.sge(0..8), from)).expect("post_read");
    let done = completion(end);
    assert_eq!(done.wr_id, 1);
    let mut bytes = [0; 8];
    into.read(0, &mut bytes).expect("inside");
    println!("   an RDMA read: {}", words(done.status));
    if done.status == WcStatus::SUCCESS { Ok(bytes) } else { Err(done.status) }
}

/// Writes 8 bytes into the peer's memory.
pub(crate) fn peer_writes(end: &mut End, fill: u8, to: Remote) -> WcStatus {
    let from = region(&end.pd, fill, Access::empty());
    end.qp.post_send(SendWr::write(2, from.sge(0..8), to)).expect("post_write");
    let done = completion(end);
    assert_eq!(done.wr_id, 2);
    println!("   an RDMA write: {}", words(done.status));
    done.status
}

/// A status in words.
fn words(status: WcStatus) -> String {
    match status {
        WcStatus::SUCCESS => "success".to_owned(),
        WcStatus::REM_ACCESS_ERR => "remote access error".to_owned(),
        WcStatus::WR_FLUSH_ERR => "flushed".to_owned(),
        WcStatus(other) => format!("status {other}"),
    }
}

/// Returns the next completion, by busy polling.
pub(crate) fn completion(end: &mut End) -> Completion {
    let started = Instant::now();
    let mut one = [Completion::default()];
    while end.cq.poll(&mut one).expect("poll") == 0 {
        assert!(started.elapsed() < LIMIT, "no completion");
    }
    one[0]
}

/// Deregisters a region, which must succeed.
pub(crate) fn end(mr: Mr) {
    mr.deregister().expect("deregistered");
}

/// The errno of the kernel itself for a deallocation of the PD of the last moved MR.
pub(crate) fn kernel_deallocs() -> Errno {
    let errno = Errno(shim::dealloc_pd());
    println!("   deallocation of the new PD without cmid: {errno}");
    errno
}
