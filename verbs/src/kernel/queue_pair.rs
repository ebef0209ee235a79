//! The interface of the kernel backend to a QP.

use cmid_proto::datapath::AhAttr;
use cmid_proto::{Ece, Errno, Outcome};

use crate::kernel::abi::QpAttr;

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
