//! Queue pairs.

use cmid_proto::datapath::{Access, PostReason, Sge};

use crate::data::mr::Mr;
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
}

impl Qp {
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
    }
}
