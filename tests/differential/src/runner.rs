//! The runner of one side, and what both kinds of runners use.

use cmid_proto::ConnParam;
use cmid_proto::datapath::{Attaching, Caps, CreateError, DataPath};

use crate::address::Numbers;
use crate::program::{Action, ChannelNo, Offer, Slot};
use crate::trace::SideTrace;

/// Counts of a runner that are not part of its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Migrations after which the new channel became readable, because unread events moved along.
    pub moved_unread: u32,
}

/// One side of a run.
pub trait Runner {
    /// Makes the call, or reads the events, and records the result.
    fn perform(&mut self, at: usize, action: &Action);
    /// Reads all events of all channels.
    fn drain(&mut self, at: usize);
    /// Records the states of the ids, and what else there is.
    fn note_state(&mut self, at: usize);
    /// The existing ids.
    fn ids(&self) -> Vec<Slot>;
    /// Whether an id has listened, or is of a request.
    fn is_passive(&self, id: Slot) -> bool;
    /// The open channels.
    fn channels(&self) -> Vec<ChannelNo>;
    /// Drops the QPs of ids whose destruction had to wait.
    fn drop_qps(&mut self);
    /// The recorded trace.
    fn trace(&self) -> &SideTrace;
    /// The counts that are not part of the trace.
    fn observed(&self) -> Observed;
}

/// Called before each read of a channel.
pub type BeforeRead = std::rc::Rc<dyn Fn()>;

/// A QP with its CQ and PD, dropped in this order.
pub(crate) struct Path<D: DataPath> {
    pub(crate) qp: D::Qp,
    _cq: D::Cq,
    _pd: D::Pd,
}

impl<D: DataPath> Path<D> {
    /// Attaches a QP to an id.
    pub(crate) fn attach(device: &mut D, attaching: Attaching<'_>, max_send_wr: u32) -> Result<Self, CreateError> {
        let id = attaching.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 4)?;
        let qp = device.create_qp(attaching, &pd, &cq, &cq, Caps { max_send_wr, max_recv_wr: 1, ..Caps::default() })?;
        Ok(Path { qp, _cq: cq, _pd: pd })
    }
}

/// More work requests than soft-RoCE supports (`RXE_MAX_QP_WR`).
pub(crate) const HUGE: u32 = 4_000_000;

/// The parameters of an offer.
pub(crate) fn param(offer: Offer, numbers: Numbers) -> ConnParam {
    ConnParam {
        responder_resources: offer.serves,
        initiator_depth: offer.starts,
        rnr_retry_count: offer.rnr,
        qp_num: numbers.qp_num + u32::from(offer.qp),
        ..ConnParam::default()
    }
}

/// Private data that identifies its sender and the step, without zero bytes.
pub(crate) fn data(at: usize, id: Slot, len: u8) -> Vec<u8> {
    (0..len).map(|index| (index ^ id.wrapping_mul(17) ^ (at as u8).wrapping_mul(29)) | 1).collect()
}

/// The name of a slot.
pub(crate) fn name(id: Slot) -> String {
    if id < crate::program::CHILDREN { format!("id{id}") } else { format!("child{}", id - crate::program::CHILDREN) }
}
