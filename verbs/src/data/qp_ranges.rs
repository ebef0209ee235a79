//! The ranges of the work requests of a QP.

use cmid_proto::datapath::PostReason;

use crate::data::poster::Poster;
use crate::data::ranges::{Named, Sges, ranges};
use crate::ffi::ibv_sge;

impl Poster {
    /// Checks and converts the only range of a receive.
    pub(super) fn recv_range(&self, named: &impl Named) -> Result<ibv_sge, PostReason> {
        match named.range(self.pd, true) {
            Ok(sge) if sge.length == 0 || self.inner.requested().max_recv_sge > 0 => Ok(sge),
            other => Err(self.recv_refused(other)),
        }
    }

    /// Returns the reason why a range cannot be that of a receive: without ranges, an empty one is none.
    #[cold]
    fn recv_refused(&self, range: Result<ibv_sge, PostReason>) -> PostReason {
        match range {
            _ if self.inner.srq.is_some() => PostReason::HasSrq,
            Ok(_) => PostReason::TooManyRanges { ranges: 1, max: 0 },
            Err(reason) => reason,
        }
    }

    /// Checks and converts the ranges of a receive.
    pub(super) fn recv_ranges(&self, named: &[impl Named]) -> Result<Sges, PostReason> {
        let ranges = ranges(self.pd, named, self.inner.requested().max_recv_sge, true);
        ranges.map_err(|reason| if self.inner.srq.is_some() { PostReason::HasSrq } else { reason })
    }
}
