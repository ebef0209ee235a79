//! The ranges of a work request.

use cmid_proto::datapath::{Length, MESSAGE_MAX, OfPd, Part, PostReason, SendFlags, Sge};
use smallvec::SmallVec;

use crate::accounting::wr_ring::{Filing, NO_KEY};
use crate::data::{Mr, Piece};
use crate::ffi::ibv_sge;

/// Memory that a work request names: a range of an MR, or a part of a block.
pub(super) trait Named {
    /// Whether a request pins it. Otherwise the request has it until it is over.
    const IS_PINNED: bool;

    /// Checks and converts it for a queue of a PD ([`PdUse::name`](crate::data::pd::PdUse::name)). The device reads from
    /// it; if `writes`, the device or its provider writes to it.
    fn range(&self, pd: usize, writes: bool) -> Result<ibv_sge, PostReason>;
}

/// What keeps the memory that the requests of a batch name, as lists of one type.
pub(super) trait Keeper<L, N: Named> {
    /// Keeps the memory of the next request, and returns it.
    fn keep(&mut self, filing: &Filing<'_>, wr_id: u64, flags: SendFlags, list: L) -> Result<&[N], PostReason>;
}

/// The list of the last request: its MRs are borrowed.
pub(super) struct Borrowed<L>(pub(super) Option<L>);

impl<'a, L: AsRef<[Sge<'a, Mr>]>> Keeper<L, Sge<'a, Mr>> for Borrowed<L> {
    fn keep(&mut self, _: &Filing<'_>, _: u64, _: SendFlags, list: L) -> Result<&[Sge<'a, Mr>], PostReason> {
        let list: &L = self.0.insert(list);
        Ok(list.as_ref())
    }
}

/// The non-empty ranges of a work request (some devices interpret a length of 0 as 2 GiB), or the empty one. Never none: a
/// provider may take the first one whatever their number is (`irdma_uk_post_receive`), and would take memory of an earlier
/// request.
pub(super) type Sges = SmallVec<[ibv_sge; 4]>;

/// The range of a work request without memory.
pub(super) const EMPTY: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

impl Named for Sge<'_, Mr> {
    const IS_PINNED: bool = true;

    /// It must be of the PD of the queue, so that work in flight there pins it (in_flight.rs). One that is written to must
    /// be writable: not every provider checks the key.
    #[inline(always)]
    fn range(&self, pd: usize, writes: bool) -> Result<ibv_sge, PostReason> {
        let own = if writes { self.mr.target } else { self.mr.source };
        match self.mr.ibv_sge(self) {
            Some(range) if own == pd => Ok(range),
            _ => Err(reason(self.mr, self.offset, self.len, pd, writes)),
        }
    }
}

impl Named for Part<Piece> {
    /// The request has the block, and so the registrations of its memory.
    const IS_PINNED: bool = false;

    fn range(&self, pd: usize, writes: bool) -> Result<ibv_sge, PostReason> {
        let (piece, range) = self.place(writes)?;
        piece.range(range, pd)
    }
}

/// Returns the reason why a range cannot be posted. It takes the fields of the range: a pointer to it would keep it out
/// of registers in a post that succeeds.
#[cold]
fn reason(mr: &Mr, offset: usize, len: Option<usize>, pd: usize, writes: bool) -> PostReason {
    if mr.source == 0 {
        PostReason::NotRegistered
    } else if mr.source != pd {
        PostReason::OtherPd(OfPd::Mr)
    } else if writes && mr.target != pd {
        PostReason::ReadOnly
    } else {
        match len {
            None => PostReason::ReversedRange,
            Some(len) if offset <= mr.len && len <= mr.len - offset => {
                PostReason::RangesTooLong { len: Length::new(len) }
            }
            Some(_) => PostReason::OutOfRange { len: Length::new(mr.len) },
        }
    }
}

/// Converts the ranges that are not empty, or returns the empty one.
pub(super) fn ranges(pd: usize, named: &[impl Named], max: u32, writes: bool) -> Result<Sges, PostReason> {
    let (mut list, mut len) = (Sges::new(), 0_usize);
    for one in named {
        let sge = one.range(pd, writes)?;
        if sge.length != 0 {
            len = len.saturating_add(sge.length as usize);
            list.push(sge);
        }
    }
    if len > MESSAGE_MAX {
        return Err(PostReason::RangesTooLong { len: Length::new(len) });
    }
    if list.len() > max as usize {
        return Err(PostReason::TooManyRanges { ranges: list.len() as u32, max });
    }
    if list.is_empty() {
        list.push(EMPTY);
    }
    Ok(list)
}

/// The number of ranges for the provider. An empty one is none, but for a receive on iWARP: libsiw refuses one without
/// (`push_recv_wqe`).
pub(super) fn count(sges: &[ibv_sge], is_iwarp_receive: bool) -> i32 {
    if let [ibv_sge { length: 0, .. }] = sges { i32::from(is_iwarp_receive) } else { sges.len() as i32 }
}

/// Returns the key that a range pins; [`NO_KEY`] for an empty or inline range, and for a part of a block.
pub(super) fn pinned_key<N: Named>(sge: &ibv_sge, is_inline: bool) -> u32 {
    if !N::IS_PINNED || sge.length == 0 || is_inline { NO_KEY } else { sge.lkey }
}

/// Returns the keys that several ranges pin.
pub(super) fn pinned_keys<N: Named>(sges: &[ibv_sge], is_inline: bool) -> SmallVec<[u32; 4]> {
    sges.iter().map(|sge| pinned_key::<N>(sge, is_inline)).collect()
}

#[cfg(test)]
mod tests {
    use cmid_proto::datapath::MemoryRegion as _;

    use super::*;

    const PD: usize = 64;

    fn why(found: Result<ibv_sge, PostReason>) -> Option<PostReason> {
        found.err()
    }

    #[test]
    fn a_range_that_cannot_be_posted_has_a_reason() {
        let (own, read_only) = (Mr::scripted(8, PD, PD), Mr::scripted(8, PD, 0));
        let (foreign, gone) = (Mr::scripted(8, 128, 128), Mr::scripted(8, 0, 0));
        assert_eq!((why(own.sge(0..8).range(PD, false)), why(own.sge(0..8).range(PD, true))), (None, None));
        assert_eq!(why(read_only.sge(0..8).range(PD, false)), None);
        assert_eq!(why(read_only.sge(0..8).range(PD, true)), Some(PostReason::ReadOnly));
        for (mr, reason) in [(&foreign, PostReason::OtherPd(OfPd::Mr)), (&gone, PostReason::NotRegistered)] {
            assert_eq!(
                (why(mr.sge(0..8).range(PD, false)), why(mr.sge(3..3).range(PD, true))),
                (Some(reason), Some(reason))
            );
        }
        let beyond = Some(PostReason::OutOfRange { len: Length::new(8) });
        for outside in [0..9, 9..9, 1..usize::MAX, usize::MAX..usize::MAX] {
            assert_eq!(
                (why(own.sge(outside.clone()).range(PD, false)), why(own.sge(outside).range(PD, true))),
                (beyond, beyond)
            );
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let reversed = own.sge(2..1);
        assert_eq!(why(reversed.range(PD, false)), Some(PostReason::ReversedRange));
        let long = Mr::scripted(usize::MAX, PD, PD);
        let too_long = |len| Some(PostReason::RangesTooLong { len: Length::new(len) });
        assert_eq!(why(long.sge(0..MESSAGE_MAX).range(PD, false)), None);
        assert_eq!(why(long.sge(0..1 << 31).range(PD, false)), too_long(1 << 31));
        // The lengths of two ranges are added in 32 bits.
        let half = || long.sge(0..MESSAGE_MAX);
        assert_eq!(ranges(PD, &[half(), half()], 2, false).err(), too_long(2 * MESSAGE_MAX));
    }

    #[test]
    fn a_range_of_an_mr_is_pinned_and_a_block_is_owned() {
        let sge = |length| ibv_sge { addr: 0, length, lkey: 5 };
        let keys = [(8, false), (8, true), (0, false)].map(|(length, is_inline)| {
            let sge = sge(length);
            (pinned_key::<Sge<'_, Mr>>(&sge, is_inline), pinned_key::<Part<Piece>>(&sge, is_inline))
        });
        assert_eq!(keys, [(5, NO_KEY), (NO_KEY, NO_KEY), (NO_KEY, NO_KEY)]);
    }

    #[test]
    fn only_ranges_that_are_not_empty_count() {
        let own = Mr::scripted(8, PD, PD);
        let counted =
            |max| ranges(PD, &[own.sge(0..1), own.sge(1..1), own.sge(2..3)], max, false).map(|list| list.len());
        assert_eq!(counted(2), Ok(2));
        assert_eq!(counted(1), Err(PostReason::TooManyRanges { ranges: 2, max: 1 }));
    }

    /// A provider takes the first range of a request that has none: it must be there, and name no memory.
    #[test]
    fn a_request_without_memory_has_the_empty_range() {
        let own = Mr::scripted(8, PD, PD);
        for named in [&[][..], &[own.sge(1..1)], &[own.sge(1..1), own.sge(2..2)]] {
            let list = ranges(PD, named, 0, true).expect("no range");
            assert_eq!(list.iter().map(|sge| (sge.addr, sge.length, sge.lkey)).collect::<Vec<_>>(), [(0, 0, 0)]);
            assert_eq!((count(&list, false), count(&list, true)), (0, 1));
        }
        let two = ranges(PD, &[own.sge(0..1), own.sge(2..3)], 2, true).expect("two ranges");
        assert_eq!((count(&two, true), count(&two, false)), (2, 2));
    }
}
