//! Work requests.

use core::ops::Range;
use core::slice;

use super::{Remote, To};

/// A range of an MR in a work request (`struct ibv_sge`), made by [`MemoryRegion::sge`](super::MemoryRegion::sge). The
/// range is checked when the request is posted. An empty range pins nothing.
#[doc(alias = "ibv_sge")]
#[derive(Debug)]
pub struct Sge<'a, M> {
    /// The MR.
    pub mr: &'a M,
    /// The first byte, as an offset into the MR.
    pub offset: usize,
    /// The length in bytes; `None` for a reversed range, which a post refuses.
    pub len: Option<usize>,
}

impl<'a, M> Sge<'a, M> {
    /// Returns a range of `mr`, in bytes.
    pub const fn new(mr: &'a M, range: Range<usize>) -> Self {
        Sge { mr, offset: range.start, len: range.end.checked_sub(range.start) }
    }
}

impl<M> Clone for Sge<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Sge<'_, M> {}

/// One range is a list of ranges.
impl<'a, M> AsRef<[Sge<'a, M>]> for Sge<'a, M> {
    fn as_ref(&self) -> &[Sge<'a, M>] {
        slice::from_ref(self)
    }
}

/// The operation of a request of the send queue (`enum ibv_wr_opcode`). `A` is the type of address handles.
#[doc(alias = "ibv_wr_opcode")]
#[derive(Debug)]
pub enum SendOp<'a, A> {
    /// Sends a message (`IBV_WR_SEND`).
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// Sends a message with immediate data (`IBV_WR_SEND_WITH_IMM`).
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImm(u32),
    /// Sends a message and invalidates this remote key at the peer (`IBV_WR_SEND_WITH_INV`).
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInvalidate(u32),
    /// Sends a datagram (`IBV_WR_SEND` on a datagram QP).
    SendTo(To<'a, A>),
    /// Sends a datagram with immediate data (`IBV_WR_SEND_WITH_IMM` on a datagram QP).
    SendToImm(To<'a, A>, u32),
    /// Writes to the memory of the peer (`IBV_WR_RDMA_WRITE`).
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write(Remote),
    /// Writes to the memory of the peer and consumes one of its receives (`IBV_WR_RDMA_WRITE_WITH_IMM`).
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImm(Remote, u32),
    /// Reads the memory of the peer (`IBV_WR_RDMA_READ`). On iWARP into one range, which is not empty.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read(Remote),
    /// Replaces 8 bytes of the peer by `swap` if they equal `compare` (`IBV_WR_ATOMIC_CMP_AND_SWP`). The old value goes
    /// into one range of 8 bytes.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// The 8 bytes, aligned to 8.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer (`IBV_WR_ATOMIC_FETCH_AND_ADD`). The old value goes into one range of 8 bytes.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// The 8 bytes, aligned to 8.
        remote: Remote,
        /// The number that is added, modulo 2^64.
        add: u64,
    },
}

impl<A> Clone for SendOp<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for SendOp<'_, A> {}

impl<A> SendOp<'_, A> {
    /// Whether the operation writes to the local memory.
    #[must_use]
    pub const fn writes_locally(&self) -> bool {
        matches!(self, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether it is an atomic operation.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether the operation is for datagram QPs.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        matches!(self, SendOp::SendTo(_) | SendOp::SendToImm(..))
    }
}

bitflags::bitflags! {
    /// Flags of a request of the send queue (`enum ibv_send_flags`). A post ignores other bits.
    #[doc(alias = "ibv_send_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SendFlags: u32 {
        /// The request waits for earlier reads and atomic operations.
        #[doc(alias = "IBV_SEND_FENCE")]
        const FENCE = 1;
        /// The request has a completion also if it succeeds. Set by default.
        #[doc(alias = "IBV_SEND_SIGNALED")]
        const SIGNALED = 1 << 1;
        /// The completion of the peer's receive notifies a CQ that is armed for solicited completions.
        #[doc(alias = "IBV_SEND_SOLICITED")]
        const SOLICITED = 1 << 2;
    }
}

/// A request of the send queue (`struct ibv_send_wr`). `L` is a list of [`Sge`]s: one, an array, a slice or a vector.
///
/// The completion has its `wr_id`. A request is signaled unless [`SendWr::unsignaled`] is called. An unsignaled request
/// has a completion only if it fails. It occupies its queue and pins its memory until the completion of a later request
/// of the same queue is polled; on iWARP until its own, which the poll drops. A queue that is full of unsignaled requests
/// stays full, but on iWARP.
#[doc(alias = "ibv_send_wr")]
#[derive(Debug)]
#[must_use]
pub struct SendWr<'a, L, A> {
    /// The number that the completion returns.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp<'a, A>,
    /// The local memory: the source of a send or write, the target of a read or of the old value of an atomic
    /// operation.
    pub sges: L,
    /// The flags.
    pub flags: SendFlags,
}

/// Address handles need not be `Clone`: the request refers to one.
impl<L: Clone, A> Clone for SendWr<'_, L, A> {
    fn clone(&self) -> Self {
        SendWr { wr_id: self.wr_id, op: self.op, sges: self.sges.clone(), flags: self.flags }
    }
}

impl<L: Copy, A> Copy for SendWr<'_, L, A> {}

impl<'a, L, A> SendWr<'a, L, A> {
    /// Returns a signaled request.
    pub const fn new(wr_id: u64, op: SendOp<'a, A>, sges: L) -> Self {
        SendWr { wr_id, op, sges, flags: SendFlags::SIGNALED }
    }

    /// Sends a message ([`SendOp::Send`]).
    pub const fn send(wr_id: u64, sges: L) -> Self {
        Self::new(wr_id, SendOp::Send, sges)
    }

    /// Sends a message with immediate data ([`SendOp::SendImm`]).
    pub const fn send_imm(wr_id: u64, sges: L, imm: u32) -> Self {
        Self::new(wr_id, SendOp::SendImm(imm), sges)
    }

    /// Sends a message and invalidates a remote key of the peer ([`SendOp::SendInvalidate`]).
    pub const fn send_invalidate(wr_id: u64, sges: L, rkey: u32) -> Self {
        Self::new(wr_id, SendOp::SendInvalidate(rkey), sges)
    }

    /// Sends a datagram ([`SendOp::SendTo`]).
    pub const fn send_to(wr_id: u64, sges: L, to: To<'a, A>) -> Self {
        Self::new(wr_id, SendOp::SendTo(to), sges)
    }

    /// Sends a datagram with immediate data ([`SendOp::SendToImm`]).
    pub const fn send_to_imm(wr_id: u64, sges: L, to: To<'a, A>, imm: u32) -> Self {
        Self::new(wr_id, SendOp::SendToImm(to, imm), sges)
    }

    /// Writes to the memory of the peer ([`SendOp::Write`]).
    pub const fn write(wr_id: u64, sges: L, remote: Remote) -> Self {
        Self::new(wr_id, SendOp::Write(remote), sges)
    }

    /// Writes to the memory of the peer and consumes one of its receives ([`SendOp::WriteImm`]).
    pub const fn write_imm(wr_id: u64, sges: L, remote: Remote, imm: u32) -> Self {
        Self::new(wr_id, SendOp::WriteImm(remote, imm), sges)
    }

    /// Reads the memory of the peer ([`SendOp::Read`]).
    pub const fn read(wr_id: u64, sges: L, remote: Remote) -> Self {
        Self::new(wr_id, SendOp::Read(remote), sges)
    }

    /// Compares and swaps 8 bytes of the peer; the old value goes to the local memory ([`SendOp::CompareSwap`]).
    pub const fn compare_swap(wr_id: u64, sges: L, remote: Remote, compare: u64, swap: u64) -> Self {
        Self::new(wr_id, SendOp::CompareSwap { remote, compare, swap }, sges)
    }

    /// Adds to 8 bytes of the peer; the old value goes to the local memory ([`SendOp::FetchAdd`]).
    pub const fn fetch_add(wr_id: u64, sges: L, remote: Remote, add: u64) -> Self {
        Self::new(wr_id, SendOp::FetchAdd { remote, add }, sges)
    }

    /// Makes the request unsignaled: no completion if it succeeds.
    pub fn unsignaled(mut self) -> Self {
        self.flags = self.flags.difference(SendFlags::SIGNALED);
        self
    }

    /// Makes the request wait for earlier reads and atomic operations ([`SendFlags::FENCE`]).
    pub fn fenced(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::FENCE);
        self
    }

    /// Makes the completion at the peer a solicited one ([`SendFlags::SOLICITED`]).
    pub fn solicited(mut self) -> Self {
        self.flags = self.flags.union(SendFlags::SOLICITED);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reversed_range_has_no_length() {
        let mr = ();
        let range = |range| Sge::new(&mr, range).len;
        #[expect(clippy::reversed_empty_ranges, reason = "the test is about a reversed range")]
        let reversed = range(2..1);
        assert_eq!((range(1..4), range(3..3), reversed), (Some(3), Some(0), None));
    }

    #[test]
    fn flags_are_added_and_taken_off() {
        let mr = ();
        let wr = SendWr::<_, ()>::send(7, Sge::new(&mr, 0..1));
        assert_eq!(wr.flags, SendFlags::SIGNALED);
        assert_eq!(wr.unsignaled().fenced().solicited().flags, SendFlags::FENCE | SendFlags::SOLICITED);
        assert_eq!(wr.sges.as_ref().len(), 1);
    }

    #[test]
    fn a_request_to_an_address_handle_that_is_not_clone_is_copied() {
        struct Ah;
        let mr = ();
        let wr = SendWr::send_to(7, Sge::new(&mr, 0..1), To { ah: &Ah, qp_num: 1, qkey: 2 });
        let copy = wr;
        assert_eq!((copy.wr_id, copy.flags), (wr.wr_id, wr.flags));
        // A list that is not `Copy` is cloned.
        let wr = SendWr::<_, Ah>::send(8, [Sge::new(&mr, 0..1), Sge::new(&mr, 2..5)].to_vec());
        let clone = wr.clone().unsignaled();
        assert_eq!((clone.wr_id, clone.sges.len(), clone.flags), (8, 2, SendFlags::empty()));
        assert_eq!((wr.sges.len(), wr.flags), (2, SendFlags::SIGNALED));
    }

    #[test]
    fn reads_and_atomics_write_to_local_memory() {
        let remote = Remote { addr: 0, rkey: 0 };
        let to = To { ah: &(), qp_num: 1, qkey: 2 };
        let ops = [
            (SendOp::Send, false, false),
            (SendOp::SendImm(1), false, false),
            (SendOp::SendInvalidate(1), false, false),
            (SendOp::SendTo(to), false, true),
            (SendOp::SendToImm(to, 1), false, true),
            (SendOp::Write(remote), false, false),
            (SendOp::WriteImm(remote, 1), false, false),
            (SendOp::Read(remote), true, false),
            (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, true, false),
            (SendOp::FetchAdd { remote, add: 1 }, true, false),
        ];
        for (op, writes, datagram) in ops {
            assert_eq!((op.writes_locally(), op.is_datagram()), (writes, datagram), "{op:?}");
        }
    }
}
