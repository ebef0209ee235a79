//! The length of the longest datagram of a QP.

use core::sync::atomic::{AtomicU32, Ordering};

use cmid_proto::datapath::PostReason;

use crate::data::{Context, QpInner};

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
