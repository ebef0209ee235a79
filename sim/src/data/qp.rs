//! Queue pairs.

use std::mem;

use cmid_proto::datapath::{Access, Caps, Lent, PostReason, Sge};

use crate::data::blocks::{LeftBlocks, Piece};
use crate::data::mr::Mr;
use crate::data::receive::RecvOf;
use crate::data::space::KeyedRange;
use crate::fabric::Fabric;
use crate::index::{PdNo, QpNo};

/// A queue pair. It is destroyed when it is detached from its id
/// ([`DataPath::destroy_qp`](cmid_proto::datapath::DataPath::destroy_qp), or the end of the id) and this handle is
/// dropped. In between it is in its error state.
#[derive(Debug)]
pub struct Qp {
    pub(crate) fabric: Fabric,
    pub(crate) no: QpNo,
    /// The blocks that its requests of sends and of receives have.
    pub(super) blocks: [Lent<Piece>; 2],
}

impl Qp {
    pub(super) fn new(fabric: Fabric, no: QpNo, caps: Caps) -> Self {
        Qp { fabric, no, blocks: [Lent::new(caps.max_send_wr), Lent::new(caps.max_recv_wr)] }
    }

    /// Returns its domain; [`PostReason::Gone`] if the QP is destroyed.
    pub(crate) fn pd(&self) -> Result<PdNo, PostReason> {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.pd)).ok_or(PostReason::Gone)
    }

    /// Returns a part of a region for a work request of this QP.
    pub(crate) fn keyed_range(&self, sge: &Sge<'_, Mr>, needs: Access) -> Result<KeyedRange, PostReason> {
        sge.mr.keyed_range(&self.fabric, self.pd()?, sge, needs)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            let Some(pair) = world.queues.pairs.get_mut(&self.no) else {
                // It was removed with its device; this removes its completions.
                return world.destroy_qp(self.no);
            };
            pair.held = false;
            if !pair.attached {
                world.destroy_qp(self.no);
            }
        });
        if self.blocks.iter().any(|lent| !lent.is_empty()) {
            let blocks = mem::replace(&mut self.blocks, [Lent::new(0), Lent::new(0)]);
            self.fabric.shared().retire(LeftBlocks { of: RecvOf::Qp(self.no), _blocks: blocks });
        }
    }
}
