//! When peers may be able to write although the rights do not include it.

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Change, Ended, Fallback, Keys, MemoryOutcome, Policy, Reply, Settled, Traffic, Way};

use crate::small::{Bytes, ELSEWHERE, KEYS, Region, Use};

/// Rights by which peers may write.
const WRITTEN: [Access; 3] = [
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
    Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC),
    Access::LOCAL_WRITE.union(Access::MW_BIND),
];
const OWN: Access = Access::LOCAL_WRITE;
const DONE: Reply = Reply { code: 0, errno: Errno(0), keys: KEYS };
const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: cmid_proto::memory::Provider::Unknown };

fn registered(pd: &Use, access: Access) -> Region {
    let mut region = Region::register(pd.clone(), Bytes(1), access).unwrap();
    let _: Option<Ended<_>> = region.handle_outcome(MemoryOutcome::Registered(Ok((1, KEYS)))).unwrap();
    region
}

fn reregistered(region: &mut Region, change: Change<Use, Bytes>, replies: &[MemoryOutcome<u8>]) -> Settled<Bytes> {
    region.reregister(change, ANEW, Traffic::Quiet).unwrap();
    let ended = replies.iter().filter_map(|reply| region.handle_outcome(*reply).unwrap()).last();
    let Some(Ended::Reregistered(settled)) = ended else { panic!("{ended:?}") };
    settled
}

/// By `ibv_rereg_mr`.
fn in_place(region: &mut Region, change: Change<Use, Bytes>) -> Settled<Bytes> {
    reregistered(region, change, &[MemoryOutcome::Reregistered(DONE)])
}

/// By the fallback.
fn anew(region: &mut Region, change: Change<Use, Bytes>) -> Settled<Bytes> {
    let unsupported = Reply { code: -4, errno: Errno::EOPNOTSUPP, keys: KEYS };
    let keys = Keys { lkey: 3, rkey: 4 };
    let made = [MemoryOutcome::Registered(Ok((2, keys))), MemoryOutcome::Deregistered(Ok(()))];
    reregistered(region, change, &[&[MemoryOutcome::Reregistered(unsupported)], &made[..]].concat())
}

fn to(access: Access) -> Change<Use, Bytes> {
    Change::default().to_access(access)
}

/// Only a deregistration waits for the packet whose key was checked.
#[test]
fn a_right_that_is_taken_away_in_place_lingers_where_the_device_copies_late() {
    for (pd, is_late) in [(ELSEWHERE, true), (Use(0), false)] {
        for access in WRITTEN {
            let mut region = registered(&pd, access);
            assert!(!region.is_exposed());
            assert_eq!(in_place(&mut region, to(OWN)).result, Ok(Way::InPlace));
            assert_eq!((region.is_exposed(), region.access()), (is_late, Some(OWN)), "{access:?}");
            // Another one does not wait either.
            assert_eq!(in_place(&mut region, to(Access::empty())).result, Ok(Way::InPlace));
            assert_eq!(region.is_exposed(), is_late, "{access:?}");
            assert_eq!(anew(&mut region, to(OWN)).result, Ok(Way::Anew));
            assert!(!region.is_exposed());
        }
        for access in [OWN | Access::REMOTE_READ, Access::MW_BIND, Access::empty()] {
            let mut region = registered(&pd, access);
            assert_eq!(in_place(&mut region, to(OWN)).result, Ok(Way::InPlace));
            assert!(!region.is_exposed(), "nobody could write by {access:?}");
        }
    }
}

#[test]
fn memory_that_is_replaced_in_place_is_kept_where_the_device_copies_late() {
    for (pd, is_late) in [(ELSEWHERE, true), (Use(0), false)] {
        for access in [WRITTEN[0], OWN] {
            let is_kept = is_late && access != OWN;
            let mut region = registered(&pd, access);
            let settled = in_place(&mut region, to(OWN).to_buffer(Bytes(2)));
            assert_eq!(
                (settled.buffer, region.in_doubt()),
                match is_kept {
                    true => (None, Some(&Bytes(1))),
                    false => (Some(Bytes(1)), None),
                }
            );
            region.deregister(Traffic::Quiet).unwrap();
            let ended = region.handle_outcome(MemoryOutcome::Deregistered(Ok(()))).unwrap();
            let Some(Ended::Deregistered(returned)) = ended else { panic!("{ended:?}") };
            assert_eq!((returned.buffer, returned.other), (Bytes(2), is_kept.then_some(Bytes(1))));
        }
    }
}

/// The provider has refused before any change, or has failed, and then the peer may have the right.
#[test]
fn a_right_that_was_asked_for_counts_after_a_failure() {
    for (errno, is_exposed) in [(Errno::EOPNOTSUPP, false), (Errno::EINVAL, true)] {
        let mut region = registered(&Use(0), OWN);
        let failed = MemoryOutcome::Reregistered(Reply { code: -4, errno, keys: KEYS });
        region.reregister(to(WRITTEN[0]), Policy::default(), Traffic::Quiet).unwrap();
        let _: Option<Ended<_>> = region.handle_outcome(failed).unwrap();
        assert_eq!((region.is_exposed(), region.access()), (is_exposed, Some(OWN)));
        assert_eq!(in_place(&mut region, Change::default().to_pd(Use(1))).result, Ok(Way::InPlace));
        assert_eq!(region.is_exposed(), is_exposed, "the rights are what they were");
        assert_eq!(in_place(&mut region, to(OWN)).result, Ok(Way::InPlace));
        assert!(!region.is_exposed());
    }
}
