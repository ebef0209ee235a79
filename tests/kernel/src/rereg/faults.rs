//! The kernel's errnos, and which registration is valid after each.

use cmid_proto::datapath::MemoryRegion;
use cmid_proto::memory::{
    Code, Fallback, MemoryError, MemoryFailure, MemoryReason, MemoryStep, MrState, Provider, Valid,
};
use cmid_proto::{CmEvent, Errno};
use cmid_verbs::{Access, Change, Policy, WcStatus};

use crate::env::Pair;
use crate::fixture::{PAGE, READABLE, another_pd, end, facts, failure, peer_reads, region, remote, reregister};

const CHECKS_FIRST: Policy = Policy { fallback: Fallback::None, provider: Provider::ChecksFirst };

const fn cmd(errno: Errno, valid: Valid) -> MemoryFailure {
    MemoryFailure { step: MemoryStep::Reregister(Code::Cmd), errno, valid }
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
