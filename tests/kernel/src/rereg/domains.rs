//! Re-registration in another PD.

use cmid_proto::Errno;
use cmid_proto::datapath::{CompletionQueue, MemoryRegion, OfPd, PostReason, ProtectionDomain, QueuePair, SendWr};
use cmid_proto::memory::{MemoryError, MemoryReason, PdState};
use cmid_verbs::{Access, Change, Completion, Pd, QpState, WcStatus};

use crate::env::{CAPS, Pair, connect};
use crate::fixture::{
    READABLE, another_pd, completion, end, facts, in_place, kernel_deallocs, peer_reads, region, remote,
};

/// The number of users of a PD, from the refusal of its deallocation.
fn in_use(pd: &Pd) -> u32 {
    let refused = pd.dealloc();
    let users = pd.users();
    assert!(
        matches!(refused, Err(MemoryError::Refused(refused)) if refused.reason == MemoryReason::InUse(users)),
        "{refused:?}"
    );
    users
}

/// Behaviour 82.
pub(crate) fn moved() {
    let mut pair = Pair::connected();
    let (old, new) = (another_pd(&mut pair.server, pair.s.id), another_pd(&mut pair.server, pair.s.id));
    let mut mr = region(&old, 1, READABLE);
    let before = facts(&mr);
    assert_eq!((old.users(), new.users(), in_use(&old)), (1, 0, 1));

    in_place(&mut mr, Change::default().to_pd(new.clone()));
    let after = facts(&mr);
    println!(
        "   keys before {:?}, after {:?}; users: old PD {}, new PD {}",
        before.keys,
        after.keys,
        old.users(),
        new.users()
    );
    assert_eq!((after.addr, after.len, after.access), (before.addr, before.len, before.access));
    // Other devices may change the keys; rxe does not.
    assert_eq!(after.keys, before.keys);
    assert_eq!((old.users(), new.users()), (0, 1));

    // The kernel's counts agree with the core's: it deallocates the old PD and keeps the new one.
    assert_eq!(old.dealloc(), Ok(()));
    assert_eq!(old.state(), PdState::Gone);
    assert_eq!(in_use(&new), 1);
    assert_eq!(kernel_deallocs(), Errno::EBUSY);
    assert_eq!(new.state(), PdState::Live);

    end(mr);
    assert_eq!(new.users(), 0);
    assert_eq!(new.dealloc(), Ok(()));
}

/// The peer's QP still works, but the memory does not belong to the PD of its partner any more.
pub(crate) fn away_from_the_peer() {
    let mut pair = Pair::connected();
    let other = another_pd(&mut pair.server, pair.s.id);
    let mut mr = region(&pair.s.pd, 7, READABLE);
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([7; 8]));
    in_place(&mut mr, Change::default().to_pd(other.clone()));
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Err(WcStatus::REM_ACCESS_ERR));

    // A QP of the new PD gives access, with the same key.
    let (mut c, s) = connect(&mut pair.client, &mut pair.server, pair.addr);
    in_place(&mut mr, Change::default().to_pd(s.pd.clone()));
    assert_eq!(other.users(), 0);
    assert_eq!(peer_reads(&mut c, remote(&mr)), Ok([7; 8]));
}

/// A work request with memory of another PD than its QP's is refused before it is posted.
pub(crate) fn away_from_the_own_qp() {
    let mut pair = Pair::connected();
    let other = another_pd(&mut pair.client, pair.c.id);
    let inbox = region(&pair.s.pd, 0, Access::LOCAL_WRITE);
    let mut mr = region(&pair.c.pd, 5, Access::LOCAL_WRITE);
    let len = CAPS.max_inline as usize + 1; // inlined, the copy would be made without a look at the key
    pair.s.qp.post_recv(3, inbox.sge(0..len)).expect("post_recv");
    pair.c.qp.post_send(SendWr::send(4, mr.sge(0..len))).expect("post_send");
    assert_eq!(completion(&mut pair.c).status, WcStatus::SUCCESS);
    assert_eq!(completion(&mut pair.s).status, WcStatus::SUCCESS);

    in_place(&mut mr, Change::default().to_pd(other));
    let refused = pair.c.qp.post_send(SendWr::send(6, mr.sge(0..len)));
    assert_eq!(refused.map_err(|error| error.reason()), Err(PostReason::OtherPd(OfPd::Mr)));
    assert_eq!(pair.c.qp.state(), Ok(QpState::RTS));
    // Nothing has reached the peer.
    assert_eq!(pair.s.cq.poll(&mut [Completion::default()]), Ok(0));
}
