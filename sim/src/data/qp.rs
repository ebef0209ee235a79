//! Queue pairs.

use std::mem;

use cmid_proto::datapath::{Access, AckTimeout, Caps, Lent, ModifyReason, PostReason, QpAttrs, QpState, RnrTimer, Sge};
use cmid_proto::{Errno, Service, Transport};

use crate::data::blocks::{LeftBlocks, Piece};
use crate::data::mr::Mr;
use crate::data::pending::Order;
use crate::data::queues::Pair;
use crate::data::receive::RecvOf;
use crate::data::space::KeyedRange;
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{PdNo, QpNo};

/// The states of a QP that librdmacm uses; it creates QPs in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PairState {
    /// Receives can be posted.
    Init,
    /// Receives.
    Rtr,
    /// Receives and sends.
    Rts,
    /// In RTS, but soft-iWARP sends and takes no more.
    Suspended,
    /// After a disconnect of soft-iWARP.
    Closing,
    /// Flushes all posted work requests.
    Err,
}

impl From<PairState> for QpState {
    fn from(state: PairState) -> Self {
        match state {
            PairState::Init => QpState::INIT,
            PairState::Rtr => QpState::RTR,
            PairState::Rts | PairState::Suspended => QpState::RTS,
            PairState::Closing => QpState::SQD,
            PairState::Err => QpState::ERR,
        }
    }
}

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

impl Pair {
    /// Sets the attributes of RTR and RTS: those that the program has chosen, the others as the kernel does
    /// (`cm_init_qp_rtr_attr`, `cm_init_qp_rts_attr`): retries of the connection parameters, and the code of an ACK
    /// timeout.
    pub(super) fn set_attrs(&mut self, (retry_count, rnr_retry, timeout): (u8, u8, u8)) -> Result<(), Errno> {
        let chosen = self.chosen;
        self.min_rnr_timer = chosen.min_rnr_timer.unwrap_or(RnrTimer::LONGEST);
        self.timeout = chosen.timeout.or(AckTimeout::of_code(timeout)).ok_or(Errno::EINVAL)?;
        self.retry_count = chosen.retry_count.unwrap_or(retry_count);
        self.rnr_retry_count = chosen.rnr_retry.unwrap_or(rnr_retry);
        Ok(())
    }

    /// Before RTR they are zeros. So they are on iWARP (`siw_query_qp`), where those of TCP count.
    fn attrs(&self) -> QpAttrs {
        if self.order == Order::OfTransport {
            return QpAttrs {
                min_rnr_timer: Some(RnrTimer::LONGEST),
                timeout: Some(AckTimeout::NEVER),
                retry_count: Some(0),
                rnr_retry: Some(0),
            };
        }
        QpAttrs {
            min_rnr_timer: Some(self.min_rnr_timer),
            timeout: Some(self.timeout),
            retry_count: Some(self.retry_count),
            rnr_retry: Some(self.rnr_retry_count),
        }
    }
}

impl World {
    /// The checks of `cmid_verbs`, then `ibv_modify_qp`. The new timer is in the next answer of the QP.
    pub(super) fn modify_attrs(&mut self, qp: QpNo, attrs: QpAttrs) -> Result<(), ModifyReason> {
        let is_iwarp = self.is_iwarp(qp.host);
        let pair = self.queues.pairs.get_mut(&qp).ok_or(ModifyReason::Device(Errno::EINVAL))?;
        if pair.service == Service::Datagram {
            return Err(ModifyReason::IsDatagram);
        }
        if is_iwarp {
            return Err(ModifyReason::NotOfTransport(Transport::Iwarp));
        }
        attrs.check(pair.state.into())?;
        pair.chosen = attrs.or(pair.chosen);
        if pair.state == PairState::Rts {
            pair.min_rnr_timer = attrs.min_rnr_timer.unwrap_or(pair.min_rnr_timer);
        }
        Ok(())
    }

    pub(super) fn attrs_of(&self, qp: QpNo) -> Result<QpAttrs, Errno> {
        self.queues.pairs.get(&qp).map(|pair| pair.attrs()).ok_or(Errno::EINVAL)
    }
}
