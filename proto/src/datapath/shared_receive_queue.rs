//! The trait of a shared receive queue.

use super::{BatchError, MemoryRegion, PostError, Sge};
#[cfg(feature = "std")]
use super::{Completion, Parts, Piece, Unposted, UnpostedBatch};
use crate::errno::Errno;

/// The capacities of a shared receive queue (`struct ibv_srq_attr`).
#[doc(alias("ibv_srq_attr", "ibv_srq_init_attr"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SrqCaps {
    /// The maximum number of posted receives without a polled completion, at least 1. Each CQ
    /// that reports them needs room for all of them.
    pub max_wr: u32,
    /// The maximum number of [`Sge`]s of a receive.
    pub max_sge: u32,
}

/// A shared receive queue (SRQ): receives for several QPs, which take them as messages arrive. One thread at a time
/// posts to it.
///
/// A QP uses it if it was created by [`DataPath::create_qp_with_srq`](super::DataPath::create_qp_with_srq). The
/// completion of a receive comes in the receive CQ of the QP that took it;
/// [`Completion::qp_num`](super::Completion::qp_num) is the number of that QP. Completions come in any order. If the
/// SRQ is empty, the sender retries as if the receive queue of a QP were empty (RNR).
///
/// # Which memory is pinned
///
/// A posted receive pins its memory and occupies its place until its completion is polled. An error of a QP does not
/// flush the receives of its SRQ. Two kinds of receives never complete. A QP has taken the first kind for a message
/// that was cut off by an error or by the destruction of the QP. The second kind has completed, and the device has
/// removed its completion with the destroyed QP. Both pin their memory and occupy their places until the SRQ is
/// destroyed and the CQs of its QPs are polled empty or dropped. [`SharedReceiveQueue::unpolled`] counts them too.
///
/// To lose as few as possible, disconnect, wait for the event
/// [`QP_LAST_WQE_REACHED`](super::AsyncEventKind::QP_LAST_WQE_REACHED) of the QP, poll its CQ empty, then destroy the
/// QP (ibv_create_srq(3), IBV_EVENT_QP_LAST_WQE_REACHED of ibv_get_async_event(3)). Limit the time of the wait: some
/// devices do not have the event, such as soft-RoCE of Linux 6.1 and soft-iWARP. Others repeat it, such as soft-RoCE of
/// Linux 6.12.
///
/// Dropping the handle destroys the SRQ after the last of its QPs.
#[doc(alias("ibv_srq", "ibv_destroy_srq", "rdma_destroy_srq"))]
pub trait SharedReceiveQueue: Send {
    /// Memory regions.
    type Mr: MemoryRegion;
    /// The memory of blocks.
    #[cfg(feature = "std")]
    type Piece: Piece;

    /// Returns its number, by which an [`AsyncEvent`](super::AsyncEvent) names it.
    fn num(&self) -> u32;

    /// Returns its capacities, which the provider may have rounded up. The SRQ accepts only as many receives as were
    /// requested.
    fn caps(&self) -> SrqCaps;

    /// Returns the number of posted receives without a polled completion.
    fn unpolled(&self) -> u32;

    /// Requests one event [`SRQ_LIMIT_REACHED`](super::AsyncEventKind::SRQ_LIMIT_REACHED), when fewer than `limit`
    /// receives are left that no QP has taken (ibv_modify_srq(3) with `IBV_SRQ_LIMIT`); 0 requests none. The event
    /// comes when a QP takes a receive. This call itself causes no event.
    ///
    /// # Errors
    /// The errno of the device: `EINVAL` for a limit above the length of its queue, which may be longer than
    /// [`SharedReceiveQueue::caps`] returns.
    #[doc(alias = "ibv_modify_srq")]
    fn arm_limit(&self, limit: u32) -> Result<(), Errno>;

    /// Returns the armed limit; 0 if none is armed (ibv_query_srq(3)). A system call on hardware.
    ///
    /// # Errors
    /// The errno of the device: `EOPNOTSUPP` of soft-iWARP.
    #[doc(alias = "ibv_query_srq")]
    fn limit(&self) -> Result<u32, Errno>;

    /// Posts ranges to receive a message (ibv_post_srq_recv(3)).
    ///
    /// # Errors
    /// The receive is not posted, for one of the [reasons](super::PostReason): a range beyond the end, an MR of another
    /// PD than that of the SRQ, an MR without a valid registration or without
    /// [`Access::LOCAL_WRITE`](super::Access::LOCAL_WRITE), more ranges than the SRQ permits, and a full SRQ:
    /// [`SrqCaps::max_wr`] receives are unpolled.
    ///
    /// After [`PostReason::Device`](super::PostReason::Device) the device or its library may have queued the receive. So
    /// it stays unpolled. If it completes, its completion is not returned.
    #[doc(alias = "ibv_post_srq_recv")]
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts receives in order, with one doorbell, and returns their number. If the iterator or a check fails, none is
    /// posted.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_recv`]; [`PostReason::EmptyBatch`](super::PostReason::EmptyBatch).
    /// [`BatchError::posted`] is the number of
    /// receives that are posted nevertheless.
    #[doc(alias = "ibv_post_srq_recv")]
    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts blocks to receive a message. They move into the receive. [`SharedReceiveQueue::reclaim`] returns them after
    /// its completion. Receives of an SRQ complete in any order, so give each one in flight a `wr_id` of its own.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_recv`], with the blocks. [`PostReason::SharedBlock`](super::PostReason::SharedBlock),
    /// [`PostReason::NotReclaimed`](super::PostReason::NotReclaimed).
    #[cfg(feature = "std")]
    fn post_recv_blocks<L: Into<Parts<Self::Piece>>>(
        &mut self,
        wr_id: u64,
        blocks: L,
    ) -> Result<(), Unposted<Self::Piece>>;

    /// Posts receives of blocks in order, with one doorbell, and returns their number.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_recvs`] and [`SharedReceiveQueue::post_recv_blocks`], with the blocks.
    #[cfg(feature = "std")]
    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Self::Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Self::Piece>>;

    /// Returns the blocks of the receive of a polled completion; `None` if it has none, or if they were returned. The
    /// blocks of a receive that never completes return when the SRQ is destroyed and the CQs of its QPs are polled empty
    /// or dropped.
    #[cfg(feature = "std")]
    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Self::Piece>>;
}
