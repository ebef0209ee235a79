//! Re-registration in another PD.

use cmid_proto::Errno;
use cmid_proto::datapath::ProtectionDomain;
use cmid_proto::memory::{MemoryError, MemoryReason, PdState};
use cmid_verbs::{Change, Pd};

use crate::env::Pair;
use crate::fixture::{READABLE, another_pd, end, facts, in_place, kernel_deallocs, region};

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
