//! Re-registration with other rights.

use cmid_proto::Errno;
use cmid_proto::datapath::{MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair};
use cmid_proto::memory::{Fallback, MemoryError, MemoryReason};
use cmid_verbs::{Access, Change, Mr, Policy, Remote, Way, WcStatus};

use crate::env::Pair;
use crate::fixture::{
    PAGE, READABLE, completion, facts, in_place, peer_reads, peer_writes, region, remote, reregister,
};

const ALL: Access = READABLE.union(Access::REMOTE_WRITE);

/// Returns the memory of a region, which only a deregistration gives back: soft-RoCE checks the key of a packet and copies it
/// later, and a re-registration in place does not wait.
fn bytes(mr: Mr) -> Vec<u8> {
    let returned = mr.deregister().expect("deregistered");
    returned.buffer.into_vec().expect("a Vec")
}

/// A write fails after its right was removed, as for a deposed leader.
pub(crate) fn writing() {
    let mut pair = Pair::connected();
    let mut mr = region(&pair.s.pd, 2, ALL);
    assert_eq!(peer_writes(&mut pair.c, 3, remote(&mr)), WcStatus::SUCCESS);
    in_place(&mut mr, Change::default().to_access(READABLE));
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([3; 8]));
    assert_eq!(peer_writes(&mut pair.c, 4, remote(&mr)), WcStatus::REM_ACCESS_ERR);
    assert_eq!([mr.slice().map(drop), mr.slice_mut().map(drop)], [Err(Errno::EACCES); 2]);
    // Other memory is not supported in place: it is registered anew, and then nothing lingers.
    let anew = Policy { fallback: Fallback::Anew, ..Policy::default() };
    let done = reregister(&mut mr, Change::default().to_buffer(vec![5; PAGE]), anew, 1);
    assert_eq!(done.result, Ok(Way::Anew));
    let old = done.buffer.and_then(|buffer| buffer.into_vec().ok()).expect("the device has let go of it");
    assert_eq!(old[..9], [3, 3, 3, 3, 3, 3, 3, 3, 2]);
    assert_eq!(mr.slice_mut().map(|slice| slice[0]), Ok(5));
    assert_eq!(bytes(mr), [5; PAGE]);
}

/// A bound window lets a peer write after the right was taken. So the change is refused while it may be bound.
pub(crate) fn with_a_window_bound() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let mut mr = region(&s.pd, 2, Access::LOCAL_WRITE | Access::MW_BIND);
    let mut window = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(1, &mut window, &mr, 0..PAGE, Access::REMOTE_WRITE).expect("post_bind");
    assert_eq!(completion(&mut s).status, WcStatus::SUCCESS);
    for change in [
        Change::default().to_access(Access::LOCAL_WRITE),
        Change::default().to_access(Access::LOCAL_WRITE | Access::MW_BIND),
        Change::default().to_buffer(vec![0; PAGE]),
    ] {
        let done = reregister(&mut mr, change, Policy::default(), 0);
        let refused =
            |error| matches!(error, MemoryError::Refused(refused) if refused.reason == MemoryReason::WindowBound);
        assert!(done.result.is_err_and(refused));
    }
    assert!(mr.slice().is_err());
    let at = Remote { addr: mr.addr(), rkey: window.rkey() };
    assert_eq!(peer_writes(&mut c, 3, at), WcStatus::SUCCESS);

    // It is not refused after the invalidation, and then the device refuses the peer. A packet may still be copied.
    s.qp.post_invalidate(2, &mut window).expect("post_invalidate");
    assert_eq!(completion(&mut s).status, WcStatus::SUCCESS);
    in_place(&mut mr, Change::default().to_access(Access::LOCAL_WRITE));
    assert_eq!(peer_writes(&mut c, 4, at), WcStatus::REM_ACCESS_ERR);
    assert_eq!(mr.slice().map(drop), Err(Errno::EACCES));
    assert_eq!(bytes(mr)[..9], [3, 3, 3, 3, 3, 3, 3, 3, 2]);
    drop(window);
}

/// The remote key exists from the beginning, and is usable as soon as the right is granted.
pub(crate) fn given_late() {
    let mut pair = Pair::connected();
    let mut mr = region(&pair.s.pd, 4, Access::LOCAL_WRITE);
    let before = facts(&mr);
    in_place(&mut mr, Change::default().to_access(READABLE));
    assert_eq!(facts(&mr).keys, before.keys);
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([4; 8]));
    assert_eq!(mr.slice_mut().map(|slice| slice[0]), Ok(4), "peers could never write");
}
