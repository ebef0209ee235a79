//! Section 10.4 on a device with a provider that cannot re-register.

use std::sync::atomic::Ordering;

use cmid_proto::Errno;
use cmid_proto::datapath::{DataPath, MemoryRegion, ProtectionDomain, QueuePair, SendWr, WcOpcode};
use cmid_proto::memory::{Code, Fallback, MemoryError, MemoryFailure, MemoryStep, MrState, Policy, Valid, Way};
use cmid_verbs::{Access, Change, Mr, QpState, Remote, Reregistered, WcStatus};

use crate::data::{bytes, polled, register, success};
use crate::env::{End, Pair, Side};
use crate::memory::{PAGE, kernel_mrs, mapped, mapped_read_only, unmapped};

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: cmid_verbs::Provider::Unknown };
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// All values that would show a change.
fn looks(mr: &Mr) -> impl PartialEq + core::fmt::Debug + use<> {
    let pd = mr.pd().expect("registered");
    (mr.addr(), mr.len(), mr.lkey(), mr.rkey(), mr.access(), mr.state(), mr.way(), pd.users(), pd.state(), kernel_mrs())
}

fn remote(mr: &Mr) -> Remote {
    Remote { addr: mr.addr(), rkey: mr.rkey() }
}

/// Writes from the client to the server's memory.
fn write(c: &mut End, from: &Mr, to: Remote) -> WcStatus {
    c.qp.post_send(SendWr::write(1, from.sge(0..8), to)).expect("post_write");
    let done = polled(&mut c.cq);
    assert_eq!(done.wr_id, 1);
    done.status
}

pub(crate) fn anew() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let source = register(&c, 7, Access::empty());
    let (page, gone) = mapped(PAGE);
    let mut mr = s.pd.register(page, ALL).expect("register");
    let (old, mrs, users) = (remote(&mr), kernel_mrs(), s.pd.users());
    assert_eq!(write(&mut c, &source, old), WcStatus::SUCCESS);

    // Everything but the memory: no buffer is returned.
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_access(ALL), ANEW);
    assert_eq!((result, buffer.is_none()), (Ok(Way::Anew), true));
    assert_ne!(mr.rkey(), old.rkey);
    assert_eq!((mr.addr(), mr.len(), mr.lkey(), bytes(&mr, 7)), (old.addr, PAGE, mr.rkey(), [7, 0]));

    // The memory too: the old buffer is returned, with the peer's write.
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_buffer(vec![1; 2 * PAGE]), ANEW);
    assert_eq!((result, mr.way(), mr.state()), (Ok(Way::Anew), Way::Anew, MrState::Registered));
    assert_eq!((kernel_mrs(), s.pd.users()), (mrs, users));
    assert_eq!((mr.len(), bytes(&mr, PAGE)), (2 * PAGE, [1; 8]));
    let buffer = buffer.expect("the device has let go of it");
    assert_eq!((buffer.len(), gone.load(Ordering::Relaxed)), (PAGE, 0));
    drop(buffer);
    assert_eq!(gone.load(Ordering::Relaxed), 1);

    // Posts use the new key, and the peer must use it too.
    s.qp.post_recv(2, mr.sge(PAGE..2 * PAGE)).expect("post_recv");
    c.qp.post_send(SendWr::send(3, source.sge(0..64))).expect("post_send");
    success(polled(&mut c.cq), 3, WcOpcode::SEND);
    success(polled(&mut s.cq), 2, WcOpcode::RECV);
    assert_eq!(bytes(&mr, PAGE + 63), [7, 1]);
    assert_eq!(write(&mut c, &source, remote(&mr)), WcStatus::SUCCESS);
    assert_eq!(write(&mut c, &source, old), WcStatus::REM_ACCESS_ERR);
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
}

pub(crate) fn anew_fails() {
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let source = register(&c, 7, Access::empty());
    let mut mr = register(&s, 1, ALL);
    let before = looks(&mr);
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_buffer(unmapped()), ANEW);
    let failure = MemoryFailure { step: MemoryStep::RegisterAnew, errno: Errno::EFAULT, valid: Valid::Old };
    assert_eq!(result, Err(MemoryError::Failed(failure)));
    assert_eq!(buffer.map(|buffer| buffer.len()), Some(PAGE));
    assert_eq!(looks(&mr), before);
    assert_eq!(write(&mut c, &source, remote(&mr)), WcStatus::SUCCESS);
    assert_eq!(bytes(&mr, 7), [7, 1]);
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
