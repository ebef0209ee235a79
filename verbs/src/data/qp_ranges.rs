//! The ranges of the work requests of a QP.

use cmid_proto::datapath::{PostReason, Sge};

use crate::data::ranges::{Sges, ranges, source, target};
use crate::data::{Mr, Qp};
use crate::ffi::ibv_sge;

impl Qp {
    pub(super) fn ranges(&self, sges: &[Sge<'_, Mr>], writes: bool, max: u32) -> Result<Sges, PostReason> {
        ranges(self.pd, sges, max, if writes { target } else { source })
    }

    /// Checks and converts a range that the device reads from, or, if `writes`, that the device or its provider writes
    /// to.
    pub(super) fn range(&self, sge: &Sge<'_, Mr>, writes: bool) -> Result<ibv_sge, PostReason> {
        if writes { self.target(sge) } else { self.source(sge) }
    }

    pub(super) fn source(&self, sge: &Sge<'_, Mr>) -> Result<ibv_sge, PostReason> {
        source(self.pd, sge)
    }

    pub(super) fn target(&self, sge: &Sge<'_, Mr>) -> Result<ibv_sge, PostReason> {
        target(self.pd, sge)
    }

    /// Checks and converts the only range of a receive.
    #[inline(always)]
    pub(super) fn recv_target(&self, sge: &Sge<'_, Mr>) -> Result<ibv_sge, PostReason> {
        // Not by `target`: the reason is not needed here, and would be computed.
        match sge.mr.ibv_sge(sge) {
            Some(range) if sge.mr.target == self.recv_pd => Ok(range),
            _ => self.recv_empty(sge),
        }
    }

    /// Checks and converts the ranges of a receive.
    pub(super) fn receive_ranges(&self, sges: &[Sge<'_, Mr>]) -> Result<Sges, PostReason> {
        let ranges = self.ranges(sges, true, self.inner.requested().max_recv_sge);
        ranges.map_err(|reason| if self.inner.srq.is_some() { PostReason::HasSrq } else { reason })
    }

    /// As `recv_target`, on a queue whose receives have no ranges: an empty range is none.
    #[cold]
    fn recv_empty(&self, sge: &Sge<'_, Mr>) -> Result<ibv_sge, PostReason> {
        match target(self.pd, sge) {
            _ if self.inner.srq.is_some() => Err(PostReason::HasSrq),
            Ok(sge) if sge.length != 0 => Err(PostReason::TooManyRanges { ranges: 1, max: 0 }),
            other => other,
        }
    }

    /// The number of ranges of a receive with one range: an empty one is none, except as in `add_empty`.
    pub(super) fn recv_ranges(&self, sge: &ibv_sge) -> i32 {
        if sge.length == 0 { i32::from(self.is_iwarp) } else { 1 }
    }
}
