//! Section 10.4 on a device with a provider that cannot re-register.

use cmid_proto::Errno;
use cmid_proto::datapath::prelude::*;
use cmid_proto::memory::{Code, Fallback, MemoryFailure, MemoryStep, Policy, Valid, Way};
use cmid_verbs::{Access, Change, Mr};

use crate::env::Side;
use crate::memory::{PAGE, kernel_mrs, mapped_read_only};

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: cmid_verbs::Provider::Unknown };
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// All values that would show a change.
fn looks(mr: &Mr) -> impl PartialEq + core::fmt::Debug + use<> {
    let pd = mr.pd().expect("registered");
    (mr.addr(), mr.len(), mr.lkey(), mr.rkey(), mr.access(), mr.state(), mr.way(), pd.users(), pd.state(), kernel_mrs())
}

/// Read-only memory gets no right to write, and cannot replace the memory of an MR with that right.
pub(crate) fn read_only() {
    let mut side = Side::new();
    let id = side.bound(crate::env::SERVER);
    let pd = side.device.alloc_pd(id).expect("alloc_pd");
    let eacces = MemoryFailure { step: MemoryStep::Reregister(Code::Input), errno: Errno::EACCES, valid: Valid::Old };
    let mut mr = pd.register(mapped_read_only(PAGE).0, Access::REMOTE_READ).expect("register");
    let before = looks(&mr);
    let outcome = mr.reregister(Change::default().to_access(ALL), ANEW);
    assert_eq!((outcome.result, looks(&mr)), (Err(eacces.into()), before));
    // The right can be added together with other memory.
    let outcome = mr.reregister(Change::default().to_access(ALL).to_buffer(vec![1; 2 * PAGE]), ANEW);
    assert_eq!(outcome.result, Ok(Way::Anew));
    assert_eq!(mr.write(0, &[2]), Ok(()));
    let (before, page) = (looks(&mr), outcome.buffer.expect("the device has let go of it"));
    let outcome = mr.reregister(Change::default().to_buffer(page), ANEW);
    assert_eq!((outcome.result, looks(&mr)), (Err(eacces.into()), before));
    let page = outcome.buffer.expect("it comes back");
    let outcome = mr.reregister(Change::default().to_buffer(page).to_access(Access::REMOTE_READ), ANEW);
    assert_eq!((outcome.result, mr.write(0, &[2])), (Ok(Way::Anew), Err(Errno::EACCES)));
}
