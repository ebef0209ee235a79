//! Re-registration with other rights.

use cmid_proto::Errno;
use cmid_proto::datapath::MemoryRegion;
use cmid_proto::memory::Fallback;
use cmid_verbs::{Access, Change, Policy, Way, WcStatus};

use crate::env::Pair;
use crate::fixture::{PAGE, READABLE, in_place, peer_reads, peer_writes, region, remote, reregister};

const ALL: Access = READABLE.union(Access::REMOTE_WRITE);

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
}
