//! Requests that are refused without a call to the device.

use cmid_proto::memory::{
    Access, Buffer, Change, MemoryOutcome, MemoryReason, MemoryRequest, MemoryTarget, MrState, Policy, Traffic,
};
use cmid_proto::{Errno, ErrorWith};

use crate::small::{Bytes, ELSEWHERE, KEYS, Region, Use, registering};

type SmallChange = Change<Use, Bytes>;

const LOCAL: Access = Access::LOCAL_WRITE;
const NONE: Access = Access::empty();

#[test]
fn the_flags_are_those_of_what_is_to_change() {
    for bits in 0..=7 {
        let of = |bit| bits & bit != 0;
        let (buffer, pd, access) = (of(1).then_some(Bytes(2)), of(2).then_some(Use(1)), of(4).then_some(NONE));
        assert_eq!(SmallChange { buffer, pd, access }.flags().bits(), bits);
    }
}

#[test]
fn a_change_takes_another_type_of_pd_or_comes_back() {
    let change: SmallChange = Change::default().to_buffer(Bytes(2)).to_pd(Use(1)).to_access(LOCAL);
    let ErrorWith { given: back, error: reason } =
        change.clone().try_map_pd(|_| Err::<u8, _>(MemoryReason::Gone)).unwrap_err();
    assert_eq!((back, reason), (change.clone(), MemoryReason::Gone));
    let mapped = change.try_map_pd(|pd| Ok::<_, MemoryReason>(pd.0)).unwrap();
    assert_eq!(mapped, Change { buffer: Some(Bytes(2)), pd: Some(1), access: Some(LOCAL) });
    // Without a PD there is nothing to convert.
    let nothing: Change<u8, Bytes> = SmallChange::default().try_map_pd(|_| Err(MemoryReason::Gone)).unwrap();
    assert_eq!(nothing, Change::default());
}

fn registered() -> Region {
    let mut region = registering();
    let ended = region.handle_outcome(MemoryOutcome::Registered(Ok((0, KEYS)))).unwrap();
    assert!(ended.is_some());
    region
}

#[test]
fn a_registration_that_cannot_be_is_refused_and_the_memory_comes_back() {
    let cases = [
        (Bytes(0), LOCAL, MemoryReason::Empty),
        (Bytes(1), Access::from_bits_retain(!0), MemoryReason::UnknownRights(!Access::all().bits())),
        (Bytes(1), Access::from_bits_retain(32), MemoryReason::UnknownRights(32)),
        (Bytes(1), Access::REMOTE_WRITE, MemoryReason::RemoteWithoutLocalWrite),
        (Bytes(1), Access::REMOTE_ATOMIC | Access::REMOTE_READ, MemoryReason::RemoteWithoutLocalWrite),
    ];
    for (buffer, access, reason) in cases {
        let ErrorWith { given: back, error: refused } = Region::register(Use(0), buffer.clone(), access).unwrap_err();
        assert_eq!((back, refused.reason, refused.errno()), (buffer, reason, Errno::EINVAL));
        assert_eq!((refused.request, refused.target), (MemoryRequest::Register, MemoryTarget::Mr(None)));
    }
    for access in [NONE, Access::REMOTE_READ, LOCAL | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC] {
        assert_eq!(Region::register(Use(0), Bytes(1), access).unwrap().state(), MrState::Registering);
    }
}

#[test]
fn a_change_that_cannot_be_is_refused_and_comes_back() {
    let unchanged = SmallChange::default;
    let cases = [
        (unchanged(), MemoryReason::NothingToChange),
        (unchanged().to_buffer(Bytes(0)), MemoryReason::Empty),
        (unchanged().to_pd(ELSEWHERE), MemoryReason::OtherDevice),
        (unchanged().to_access(Access::from_bits_retain(!0)), MemoryReason::UnknownRights(!Access::all().bits())),
        (unchanged().to_access(Access::REMOTE_WRITE), MemoryReason::RemoteWithoutLocalWrite),
        (unchanged().to_access(Access::REMOTE_ATOMIC), MemoryReason::RemoteWithoutLocalWrite),
        // A valid part does not make up for an invalid one.
        (unchanged().to_buffer(Bytes(0)).to_pd(Use(1)).to_access(LOCAL), MemoryReason::Empty),
        (unchanged().to_buffer(Bytes(2)).to_pd(ELSEWHERE).to_access(LOCAL), MemoryReason::OtherDevice),
        (
            unchanged().to_buffer(Bytes(2)).to_pd(Use(1)).to_access(Access::REMOTE_WRITE),
            MemoryReason::RemoteWithoutLocalWrite,
        ),
    ];
    for (change, reason) in cases {
        let mut region = registered();
        let before = region.clone();
        for traffic in [Traffic::Quiet, Traffic::InFlight] {
            let ErrorWith { given: back, error: refused } =
                region.reregister(change.clone(), Policy::default(), traffic).unwrap_err();
            assert_eq!((back, refused.reason, refused.errno()), (change.clone(), reason, Errno::EINVAL));
            assert_eq!(region, before);
        }
    }
}

#[test]
fn a_change_to_the_present_pd_is_legal() {
    let mut region = registered();
    region.reregister(Change::default().to_pd(Use(0)), Policy::default(), Traffic::Quiet).unwrap();
    assert_eq!(region.state(), MrState::Changing);
}

#[test]
fn a_vector_is_as_long_as_its_bytes() {
    for len in [0, 1, 3] {
        let bytes = vec![0_u8; len];
        assert_eq!((Buffer::len(&bytes), Buffer::is_empty(&bytes)), (len, len == 0));
    }
}

/// ibv_bind_mw(3): a window may have only rights that the MR allows.
#[test]
fn a_window_that_peers_write_through_needs_memory_that_can_be_written() {
    let (bind, write) = (Access::MW_BIND, Access::MW_BIND | LOCAL);
    for (lent, needed) in [
        (Access::empty(), bind),
        (Access::REMOTE_READ, bind),
        (Access::REMOTE_WRITE, write),
        (Access::REMOTE_ATOMIC, write),
    ] {
        assert_eq!(lent.needed_to_bind(), Some(needed));
    }
    // No other bit reaches a provider.
    for foreign in (0..32).map(|bit| Access::from_bits_retain(1 << bit)).chain([Access::from_bits_retain(!0)]) {
        let of_peers = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        assert_eq!(foreign.needed_to_bind().is_some(), of_peers.contains(foreign), "{foreign:?}");
        assert!((foreign | Access::REMOTE_READ).needed_to_bind().is_some() == of_peers.contains(foreign));
    }
    let writable = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, write];
    assert!(writable.into_iter().all(Access::lets_peers_write));
    let own = [Access::empty(), LOCAL, bind, Access::REMOTE_READ];
    assert!(!own.into_iter().any(Access::lets_peers_write));
}
