//! A QP, as the kernel backend sees it, and the QP of an id. Its state follows the connection, as in librdmacm.

use std::sync::Arc;

use cmid_proto::datapath::AhAttr;
use cmid_proto::{Ece, Errno, Outcome, Transport};

use crate::kernel::abi::{self, QpAttr};
use crate::kernel::calls::Id;
use crate::kernel::channel::Scratch;

/// A QP whose state follows the connection of its id.
pub(crate) trait QueuePair: Send + Sync {
    fn num(&self) -> u32;

    /// Whether it takes its receives from a shared receive queue.
    fn uses_srq(&self) -> bool;

    /// ibv_modify_qp(3) with the attributes that `qp_attr_mask` names.
    fn modify(&self, attr: &QpAttr) -> Outcome;

    /// Moves the QP, which leaves its id, to the error state: it executes nothing any more. Does nothing if the device is gone.
    fn stop(&self);

    /// Moves the QP, which stays on its id, to the error state, as librdmacm does (`ucma_modify_qp_err`).
    fn fail(&self);

    /// Notes the `responder_resources` of ESTABLISHED: on iWARP the number of reads that the peer answers at a time, and that
    /// the QP is in RTS.
    fn note_depth(&self, depth: u8);

    /// Notes that its device is removed.
    fn note_removal(&self);

    /// Moves the QP to the first state of a disconnect: the error state, or SQD on iWARP.
    fn shut_down(&self) -> Outcome;

    /// ibv_attach_mcast(3).
    fn attach_group(&self, group: Group) -> Outcome;

    /// ibv_detach_mcast(3).
    fn detach_group(&self, group: Group);

    /// ibv_query_ece(3); zeros if the provider has no options.
    fn ece(&self) -> Result<Ece, Errno>;

    /// ibv_set_ece(3); a provider without options ignores it.
    fn set_ece(&self, ece: Ece) -> Outcome;
}

/// The address of a multicast group in libibverbs.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
}

impl Group {
    /// The group of a MULTICAST_JOIN.
    pub(crate) fn at(path: &AhAttr) -> Self {
        Group { gid: path.grh.unwrap_or_default().dgid, lid: path.dlid }
    }
}

/// `enum ib_qp_state`.
pub(crate) const INIT: u32 = 1;
pub(crate) const RTR: u32 = 2;
pub(crate) const RTS: u32 = 3;
/// `IB_QP_STATE`, `IB_QP_ACCESS_FLAGS`, `IB_QP_PKEY_INDEX` and `IB_QP_SQ_PSN` of `enum ib_qp_attr_mask`.
pub(crate) const MASK_STATE: u32 = 1;
pub(crate) const MASK_ACCESS_FLAGS: u32 = 1 << 3;
const MASK_PKEY_INDEX: u32 = 1 << 4;
pub(crate) const MASK_SQ_PSN: u32 = 1 << 16;

/// The status of the errors that librdmacm makes itself.
pub(super) const LIBRARY_ERROR: i32 = -1;

/// The reason why a connection is not completed.
pub(super) enum Incomplete {
    /// The handshake is over, for example because the peer has rejected, or the answer is of another vendor.
    Refused,
    /// A change of the QP failed.
    Qp(Errno),
}

impl Incomplete {
    /// The status of CONNECT_ERROR. librdmacm gives -1 for both.
    pub(super) fn status(&self) -> i32 {
        match self {
            Incomplete::Refused => LIBRARY_ERROR,
            Incomplete::Qp(errno) => -errno.0,
        }
    }
}

/// The errnos of the QP.
impl From<Errno> for Incomplete {
    fn from(errno: Errno) -> Self {
        Incomplete::Qp(errno)
    }
}

impl Id {
    /// Attaches a new QP to the id (`rdma_create_qp`). A datagram QP goes to RTS, another one to INIT.
    ///
    /// # Errors
    /// The errno of the kernel or the provider; the QP is not attached.
    pub(super) fn attach(&mut self, attr: &mut QpAttr, qp: Arc<dyn QueuePair>) -> Outcome {
        let offered = qp.ece()?;
        if self.remote_ece.vendor_id != 0 {
            let same_vendor = self.remote_ece.vendor_id == offered.vendor_id;
            let options = if same_vendor { self.remote_ece.options } else { 0 };
            qp.set_ece(Ece { vendor_id: offered.vendor_id, options })?;
        }
        self.qp_attr(INIT, attr)?;
        qp.modify(attr)?;
        if self.datagrams {
            qp.modify(&QpAttr { qp_attr_mask: MASK_STATE, qp_state: RTR, ..QpAttr::default() })?;
            qp.modify(&QpAttr { qp_attr_mask: MASK_STATE | MASK_SQ_PSN, qp_state: RTS, ..QpAttr::default() })?;
        }
        let agreed = if self.remote_ece.vendor_id == 0 { offered } else { qp.ece()? };
        self.local_ece = Ece { vendor_id: offered.vendor_id, options: agreed.options };
        self.qp = Some(qp);
        Ok(())
    }

    /// Detaches the QP from the id. The QP is destroyed if no handle of it is left. Otherwise it goes to the error
    /// state.
    pub(crate) fn detach(&mut self) -> Outcome {
        let qp = self.qp.take().ok_or(Errno::EINVAL)?;
        for group in self.groups.iter_mut().filter_map(|membership| membership.attached.take()) {
            qp.detach_group(group);
        }
        // Only an owner can create another owner, so a count of 1 stays 1.
        if Arc::strong_count(&qp) > 1 {
            qp.stop();
        }
        Ok(())
    }

    /// Queries the attributes for a state (`rdma_init_qp_attr`).
    pub(super) fn qp_attr(&self, state: u32, attr: &mut QpAttr) -> Outcome {
        self.fd.read(abi::InitQpAttr { response: 0, id: self.handle, qp_state: state }, attr)?;
        attr.qp_state = state;
        Ok(())
    }

    /// Asks the kernel for the transport of the id's device: on InfiniBand and RoCE the attributes for INIT have a P_Key index,
    /// on iWARP they have none (`rdma_init_qp_attr`). `None` once the connection has ended, when the kernel refuses.
    pub(super) fn transport(&self, attr: &mut QpAttr) -> Option<Transport> {
        self.qp_attr(INIT, attr).ok()?;
        let has_pkey = attr.qp_attr_mask & MASK_PKEY_INDEX != 0;
        Some(if has_pkey { Transport::InfiniBand } else { Transport::Iwarp })
    }

    /// Moves the QP from INIT to RTR to RTS on the passive side, with these numbers of RDMA reads and atomics.
    pub(crate) fn prepare(&self, attr: &mut QpAttr, resources: u8, depth: u8) -> Outcome {
        let Some(qp) = &self.qp else { return Ok(()) };
        self.qp_attr(RTR, attr)?;
        attr.max_dest_rd_atomic = resources;
        qp.modify(attr)?;
        self.qp_attr(RTS, attr)?;
        attr.max_rd_atomic = depth;
        qp.modify(attr)
    }

    /// Handles a CONNECT_RESPONSE on an id with a QP: moves the QP from INIT to RTR to RTS, and sends the third
    /// message of the handshake.
    ///
    /// # Errors
    /// The QP is then in the error state.
    pub(super) fn complete(&mut self, scratch: &mut Scratch, answered: Ece) -> Result<(), Incomplete> {
        let Some(qp) = self.qp.clone() else { return Err(Incomplete::Refused) };
        let completed = self.complete_with(scratch, &*qp, answered);
        if completed.is_err() {
            qp.fail();
            self.connect_error = true;
        }
        completed
    }

    fn complete_with(&mut self, scratch: &mut Scratch, qp: &dyn QueuePair, answered: Ece) -> Result<(), Incomplete> {
        let refused = |_| Incomplete::Refused;
        if answered.vendor_id != 0 && answered.vendor_id != self.local_ece.vendor_id {
            return Err(Incomplete::Refused);
        }
        let options = if answered.vendor_id == 0 { 0 } else { answered.options };
        self.remote_ece.vendor_id = answered.vendor_id;
        // Without a vendor the QP has no options.
        let has_options = self.local_ece.vendor_id != 0;
        if has_options {
            qp.set_ece(Ece { vendor_id: self.local_ece.vendor_id, options })?;
        }
        // The peer's access rights follow from the answer. The kernel returns them for INIT; the next change of state
        // sets them.
        let attr = &mut scratch.qp_attr;
        self.qp_attr(INIT, attr).map_err(refused)?;
        let access = attr.qp_access_flags;
        self.qp_attr(RTR, attr).map_err(refused)?;
        attr.qp_access_flags = access;
        attr.qp_attr_mask |= MASK_ACCESS_FLAGS;
        qp.modify(attr)?;
        self.qp_attr(RTS, attr).map_err(refused)?;
        qp.modify(attr)?;
        self.confirm(scratch).map_err(refused)?;
        if has_options {
            self.local_ece.options = qp.ece()?.options;
        }
        Ok(())
    }
}
