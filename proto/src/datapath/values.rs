//! Values that the calls of the data path take and return.

use core::fmt;

use super::numbers::names;

/// The length of the global route header (GRH) before each datagram in the receive buffer, in bytes
/// (`struct ibv_grh`). [`Completion::byte_len`](super::Completion::byte_len) includes it. If
/// [`WcFlags::GRH`](super::WcFlags::GRH) is not set, these bytes have no meaning.
#[doc(alias = "ibv_grh")]
pub const GRH_LEN: usize = 40;

/// The most bytes of a work request: one less than InfiniBand's longest message of 2 GiB. Devices of mlx4 and mlx5 take
/// the bit of 2 GiB in the length of a range for a mark (`MLX5_INLINE_SEG`), and librxe adds the lengths in 32 bits.
pub const MESSAGE_MAX: usize = (1 << 31) - 1;

/// The capacities of a QP (`struct ibv_qp_cap`).
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// The maximum number of work requests of the send queue without a polled completion. The CQ needs room for all of
    /// them.
    pub max_send_wr: u32,
    /// The maximum number of receives without a polled completion. The CQ needs room for all of them.
    pub max_recv_wr: u32,
    /// The maximum number of [`Sge`](super::Sge)s of a request of the send queue.
    pub max_send_sge: u32,
    /// The maximum number of [`Sge`](super::Sge)s of a receive.
    pub max_recv_sge: u32,
    /// The maximum length of inline data, in bytes. Shorter sends and writes are copied into the work request: the
    /// device does not read the memory, and the request does not pin it. A provider may copy less, which
    /// [`QueuePair::caps`](super::QueuePair::caps) tells, and on iWARP no send with invalidate.
    pub max_inline: u32,
}

impl Default for Caps {
    /// 16 work requests per queue with one [`Sge`](super::Sge) each, no inline data.
    fn default() -> Self {
        Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
    }
}

/// The number of work requests of a QP that are posted and not over: each occupies its queue and pins its memory until its
/// completion is polled, an unsignaled one until that of a later one of its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unpolled {
    /// Of the send queue.
    pub sends: u32,
    /// Of the receive queue. 0 for a QP with an SRQ, whose receives
    /// [`SharedReceiveQueue::unpolled`](super::SharedReceiveQueue::unpolled) counts.
    pub receives: u32,
}

impl Unpolled {
    /// Whether nothing is left.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.sends == 0 && self.receives == 0
    }
}

impl fmt::Display for Unpolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests of the send queue and {} receives", self.sends, self.receives)
    }
}

/// The state of a QP (`enum ibv_qp_state`).
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpState(pub u32);

names! { QpState, other "QP state";
    /// Created; nothing can be posted.
    RESET = 0;
    /// Receives can be posted. The state before the connection is established.
    INIT = 1;
    /// It receives.
    RTR = 2;
    /// It receives and sends. The state of a connection.
    RTS = 3;
    /// The send queue drains (iWARP after a disconnect).
    SQD = 4;
    /// The send queue has failed.
    SQE = 5;
    /// All work requests are flushed. The state after a disconnect.
    ERR = 6;
}

/// An address in the memory of the peer, for RDMA and atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The address: [`MemoryRegion::addr`](super::MemoryRegion::addr) of the peer, and an offset.
    pub addr: u64,
    /// The remote key of the peer's MR or memory window.
    pub rkey: u32,
}

/// The destination of a datagram.
#[derive(Debug)]
pub struct To<'a, A> {
    /// The path, of the same PD as the QP.
    pub ah: &'a A,
    /// The number of the destination QP: [`Completion::src_qp`](super::Completion::src_qp) for an answer,
    /// [`Datagram::qp_num`](crate::Datagram::qp_num) of an event; 0xFFFFFF for a multicast group.
    pub qp_num: u32,
    /// The Q_Key of the destination QP. If its top bit is set, the Q_Key of the sending QP is used.
    pub qkey: u32,
}

impl<A> Clone for To<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for To<'_, A> {}
