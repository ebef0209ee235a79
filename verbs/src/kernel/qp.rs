//! The QP of an id: its state follows the connection, as librdmacm does it.

use std::sync::Arc;

use cmid_proto::{Ece, Errno, Outcome};

use crate::kernel::abi::{self, QpAttr};
use crate::kernel::calls::Id;
use crate::kernel::channel::{Channel, Scratch};
use crate::kernel::queue_pair::QueuePair;

/// `enum ib_qp_state`.
pub(crate) const INIT: u32 = 1;
pub(crate) const RTR: u32 = 2;
pub(crate) const RTS: u32 = 3;
/// `IB_QP_STATE`, `IB_QP_ACCESS_FLAGS` and `IB_QP_SQ_PSN` of `enum ib_qp_attr_mask`.
pub(crate) const MASK_STATE: u32 = 1;
pub(crate) const MASK_ACCESS_FLAGS: u32 = 1 << 3;
pub(crate) const MASK_SQ_PSN: u32 = 1 << 16;

impl Id {
    /// Puts a new QP on the id (`rdma_create_qp`): one for datagrams is ready to send, another is in INIT.
    ///
    /// # Errors
    /// `EINVAL` if the id has a QP; what the kernel or the provider answers, and the QP is not on the id.
    #[inline]
    pub(crate) fn attach(&mut self, channel: &Channel, qp: Arc<dyn QueuePair>) -> Outcome {
        if self.qp.is_some() {
            return Err(Errno::EINVAL);
        }
        let offered = qp.ece()?;
        if self.remote_ece.vendor_id != 0 {
            let same_vendor = self.remote_ece.vendor_id == offered.vendor_id;
            let options = if same_vendor { self.remote_ece.options } else { 0 };
            qp.set_ece(Ece { vendor_id: offered.vendor_id, options })?;
        }
        let mut attr = QpAttr::default();
        self.qp_attr(channel, INIT, &mut attr)?;
        qp.modify(&attr)?;
        if self.datagrams {
            qp.modify(&QpAttr { qp_attr_mask: MASK_STATE, qp_state: RTR, ..QpAttr::default() })?;
            qp.modify(&QpAttr { qp_attr_mask: MASK_STATE | MASK_SQ_PSN, qp_state: RTS, ..QpAttr::default() })?;
        }
        let agreed = if self.remote_ece.vendor_id == 0 { offered } else { qp.ece()? };
        self.local_ece = Ece { vendor_id: offered.vendor_id, options: agreed.options };
        self.qp = Some(qp);
        Ok(())
    }

    /// Takes the QP off the id. The QP is destroyed if no handle of it is left. Otherwise it goes to the error state.
    pub(crate) fn detach(&mut self) -> Outcome {
        let qp = self.qp.take().ok_or(Errno::EINVAL)?;
        for group in self.groups.iter_mut().filter_map(|membership| membership.attached.take()) {
            qp.detach_group(group);
        }
        // Only an owner makes another owner: a count of 1 does not grow.
        if Arc::strong_count(&qp) > 1 {
            qp.stop();
        }
        Ok(())
    }

    /// The attributes that the kernel names for a state (`rdma_init_qp_attr`).
    #[inline]
    fn qp_attr(&self, channel: &Channel, state: u32, attr: &mut QpAttr) -> Outcome {
        channel.read(abi::InitQpAttr { response: 0, id: self.handle, qp_state: state }, attr)?;
        attr.qp_state = state;
        Ok(())
    }

    /// INIT to RTR to RTS on the passive side, with these numbers of RDMA reads and atomics.
    pub(crate) fn prepare(&self, channel: &Channel, resources: u8, depth: u8) -> Outcome {
        let Some(qp) = &self.qp else { return Ok(()) };
        let mut attr = QpAttr::default();
        self.qp_attr(channel, RTR, &mut attr)?;
        attr.max_dest_rd_atomic = resources;
        qp.modify(&attr)?;
        self.qp_attr(channel, RTS, &mut attr)?;
        attr.max_rd_atomic = depth;
        qp.modify(&attr)
    }

    /// What CONNECT_RESPONSE starts on an id with a QP: INIT to RTR to RTS, and the third message of the handshake.
    ///
    /// # Errors
    /// The QP is in the error state.
    pub(crate) fn complete(&mut self, channel: &Channel, scratch: &mut Scratch, answered: Ece) -> Outcome {
        let Some(qp) = self.qp.clone() else { return Err(Errno::EINVAL) };
        let completed = self.complete_with(channel, scratch, &*qp, answered);
        if completed.is_err() {
            qp.stop();
            self.connect_error = true;
        }
        completed
    }

    #[inline]
    fn complete_with(
        &mut self,
        channel: &Channel,
        scratch: &mut Scratch,
        qp: &dyn QueuePair,
        answered: Ece,
    ) -> Outcome {
        if answered.vendor_id != 0 && answered.vendor_id != self.local_ece.vendor_id {
            return Err(Errno::EINVAL);
        }
        let options = if answered.vendor_id == 0 { 0 } else { answered.options };
        self.remote_ece.vendor_id = answered.vendor_id;
        // Without a vendor the QP has no options.
        let has_options = self.local_ece.vendor_id != 0;
        if has_options {
            qp.set_ece(Ece { vendor_id: self.local_ece.vendor_id, options })?;
        }
        // What the peer may access follows from the answer. The kernel names it for INIT; the next change of state sets it.
        let mut attr = QpAttr::default();
        self.qp_attr(channel, INIT, &mut attr)?;
        let access = attr.qp_access_flags;
        self.qp_attr(channel, RTR, &mut attr)?;
        attr.qp_access_flags = access;
        attr.qp_attr_mask |= MASK_ACCESS_FLAGS;
        qp.modify(&attr)?;
        self.qp_attr(channel, RTS, &mut attr)?;
        qp.modify(&attr)?;
        self.establish(channel, scratch)?;
        if has_options {
            self.local_ece.options = qp.ece()?.options;
        }
        Ok(())
    }
}
