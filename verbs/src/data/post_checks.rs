//! What the posts of the send queue refuse, and what they copy.

use core::sync::atomic::{AtomicU32, Ordering};

use cmid_proto::Transport;
use cmid_proto::datapath::{OfPd, PostReason, SendOp};

use crate::data::poster::Poster;
use crate::data::request::{destination, is_of_iwarp};
use crate::data::{Ah, Context, QpInner};

impl Poster {
    /// Refuses an operation of the other kind of QP: the provider would follow the pointer of an address handle that is
    /// not set. Refuses an address handle of another PD: the provider would use it as a handle of its own device.
    pub(super) fn check_op(&self, op: &SendOp<'_, Ah>) -> Result<(), PostReason> {
        self.check_kind(op, self.is_datagram)?;
        if self.is_iwarp {
            self.check_iwarp(op)?;
        }
        self.check_reads(op)
    }

    /// Refuses what iWARP does not have, and what would not be executed: libsiw rings the doorbell only if the request before
    /// is done, and one that was refused may never be.
    fn check_iwarp(&self, op: &SendOp<'_, Ah>) -> Result<(), PostReason> {
        if !is_of_iwarp(op) {
            return Err(PostReason::NotOfTransport(Transport::Iwarp));
        }
        if self.send.has_withdrawn() {
            return Err(PostReason::Stuck);
        }
        if op.writes_locally() && self.inner.is_unanswered() { Err(PostReason::NoReads) } else { Ok(()) }
    }

    /// Refuses a length that the operation does not have.
    #[inline(always)]
    pub(super) fn check_len(&self, op: &SendOp<'_, Ah>, len: u64) -> Result<(), PostReason> {
        if destination(op).is_some() { self.inner.check_datagram(len) } else { self.check_atomic(op, len) }
    }

    /// Refuses an atomic operation that is not on 8 aligned bytes. Libraries do not check it: libhns takes the operands
    /// of a longer one for addresses (`set_atomic_seg`), and soft-RoCE's extended calls check nothing. At a device
    /// without atomic operations libmlx5 does not ring for the requests of a list before one (`_mlx5_post_send`).
    fn check_atomic(&self, op: &SendOp<'_, Ah>, len: u64) -> Result<(), PostReason> {
        let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = op else { return Ok(()) };
        if len != 8 || remote.addr & 7 != 0 {
            return Err(PostReason::BadAtomic);
        }
        if self.inner.pd.inner().has_atomics() { Ok(()) } else { Err(PostReason::NoAtomics) }
    }

    /// The same, and an empty read on iWARP: soft-iWARP's kernel takes the range that the place in its queue had before, of a
    /// request that is over, here (`siw_activate_tx`) and for the answer of the peer (`siw_init_rresp`).
    pub(super) fn check_classic_len(&self, op: &SendOp<'_, Ah>, len: u64) -> Result<(), PostReason> {
        if self.is_iwarp && op.writes_locally() && len == 0 {
            return Err(PostReason::NotOfTransport(Transport::Iwarp));
        }
        self.check_len(op, len)
    }

    /// Refuses what the peer does not answer: soft-RoCE would wait for ever.
    pub(super) fn check_reads(&self, op: &SendOp<'_, Ah>) -> Result<(), PostReason> {
        if op.writes_locally() && self.refuses_reads { Err(PostReason::NoReads) } else { Ok(()) }
    }

    /// As `check_op`, where the kind of the QP is a constant.
    pub(super) fn check_kind(&self, op: &SendOp<'_, Ah>, is_datagram: bool) -> Result<(), PostReason> {
        match (destination(op), is_datagram) {
            (Some(_), false) => Err(PostReason::IsConnected),
            (None, true) => Err(PostReason::IsDatagram),
            (Some(to), true) if !to.ah.is_of(&self.inner.pd) => Err(PostReason::OtherPd(OfPd::Ah)),
            (Some(_), true) | (None, false) => Ok(()),
        }
    }

    /// Whether the post copies the bytes. Soft-iWARP does so for sends and writes only, and fails for others
    /// (`siw_activate_tx_from_sq`).
    pub(super) fn inlines(&self, op: &SendOp<'_, Ah>, len: u64) -> bool {
        // 0 wraps around: an empty range is not inlined.
        let is_short = len.wrapping_sub(1) < u64::from(self.max_inline);
        is_short && !op.writes_locally() && !(self.is_iwarp && matches!(op, SendOp::SendInvalidate(_)))
    }
}

/// The MTU of the port of a QP as it was known last. The port is asked again before a datagram is refused, and not before one is
/// posted: so a datagram that became too long when the MTU was lowered is lost.
pub(super) struct DatagramLimit {
    port: u8,
    /// 0 before the first question.
    mtu: AtomicU32,
}

impl DatagramLimit {
    pub(super) fn new(port: u8) -> Self {
        DatagramLimit { port, mtu: AtomicU32::new(0) }
    }

    fn permits(&self, len: u64) -> bool {
        len <= u64::from(self.mtu.load(Ordering::Relaxed))
    }

    /// Asks the port. A device that does not tell the MTU has no limit.
    fn check(&self, context: &Context, len: u64) -> Result<(), PostReason> {
        let known = context.port_attrs(self.port).map_or(0, |attrs| attrs.active_mtu);
        let mtu = if known == 0 { u32::MAX } else { known };
        self.mtu.store(mtu, Ordering::Relaxed);
        if self.permits(len) {
            return Ok(());
        }
        Err(PostReason::DatagramTooLong { len: u32::try_from(len).unwrap_or(u32::MAX), mtu })
    }
}

impl QpInner {
    /// Refuses a datagram that does not fit into one packet: the device completes it with success, and sends nothing
    /// (IBA C10-93.1.1, `rxe_requester`).
    pub(super) fn check_datagram(&self, len: u64) -> Result<(), PostReason> {
        if self.datagram_limit.permits(len) { Ok(()) } else { self.ask_port(len) }
    }

    #[cold]
    fn ask_port(&self, len: u64) -> Result<(), PostReason> {
        let [cq, _] = self.queues.cqs();
        self.datagram_limit.check(cq.context(), len)
    }
}
