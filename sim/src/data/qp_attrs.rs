//! The attributes of a connected QP that a program may choose.

use cmid_proto::datapath::{AckTimeout, ModifyReason, QpAttrs, RnrTimer};
use cmid_proto::{Errno, Service, Transport};

use crate::data::pair_state::PairState;
use crate::data::queues::Pair;
use crate::fabric::world::World;
use crate::index::QpNo;

/// The code of the time-out that the kernel sets for a QP on RoCE, 0.54 s: it doubles the life time of a packet
/// (`CMA_IBOE_PACKET_LIFETIME`).
const ROCE_TIMEOUT: u8 = 17;

impl Pair {
    /// Sets the attributes of RTR and RTS: those that the program has chosen, the others as the kernel does
    /// (`cm_init_qp_rtr_attr`, `cm_init_qp_rts_attr`). `retries` are those of the connection parameters.
    pub(super) fn set_attrs(&mut self, (retry_count, rnr_retry): (u8, u8)) {
        let chosen = self.chosen;
        self.min_rnr_timer = chosen.min_rnr_timer.unwrap_or(RnrTimer::LONGEST);
        self.timeout = chosen.timeout.or(AckTimeout::of_code(ROCE_TIMEOUT)).unwrap_or(AckTimeout::NEVER);
        self.retry_count = chosen.retry_count.unwrap_or(retry_count);
        self.rnr_retry_count = chosen.rnr_retry.unwrap_or(rnr_retry);
    }

    fn attrs(&self) -> QpAttrs {
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
