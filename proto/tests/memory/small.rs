//! Regions of small values, so that all regions can be visited.

use cmid_proto::memory::{self, Access, Buffer, Change, Fallback, Keys, Pd, Policy, Provider, Region as Any};

/// A PD. All are of one device, except [`ELSEWHERE`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Use(pub(crate) u8);

/// A PD of another device.
pub(crate) const ELSEWHERE: Use = Use(100);

impl Pd for Use {
    fn same_device(&self, other: &Self) -> bool {
        (self == &ELSEWHERE) == (other == &ELSEWHERE)
    }

    fn copies_late(&self) -> bool {
        self == &ELSEWHERE
    }
}

/// Memory of this many bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bytes(pub(crate) u8);

impl Buffer for Bytes {
    fn len(&self) -> usize {
        usize::from(self.0)
    }
}

pub(crate) type Region = Any<Use, Bytes, u8>;
pub(crate) type Call<'a> = memory::MemoryCall<'a, Use, Bytes, u8>;

pub(crate) const KEYS: Keys = Keys { lkey: 1, rkey: 2 };

/// A region with memory 1 in PD 0 and `ibv_reg_mr` under way.
pub(crate) fn registering() -> Region {
    Region::register(Use(0), Bytes(1), Access::LOCAL_WRITE).unwrap()
}

/// All valid changes: each combination of the other memory, the other PD and the other rights.
pub(crate) fn changes(region: &Region) -> impl Iterator<Item = Change<Use, Bytes>> {
    let buffer = region.buffer().map_or(1, |buffer| buffer.0);
    let pd = region.pd().map_or(0, |pd| pd.0);
    let access = region.access().unwrap_or(Access::empty());
    (1..=7).map(move |flags| Change {
        buffer: (flags & 1 != 0).then_some(Bytes(3 - buffer)),
        pd: (flags & 2 != 0).then_some(Use(1 - pd)),
        access: (flags & 4 != 0).then_some(access ^ Access::LOCAL_WRITE),
    })
}

pub(crate) fn policies() -> impl Iterator<Item = Policy> {
    [Fallback::None, Fallback::Anew].into_iter().flat_map(|fallback| {
        [Provider::Unknown, Provider::ChecksFirst].map(move |provider| Policy { fallback, provider })
    })
}
