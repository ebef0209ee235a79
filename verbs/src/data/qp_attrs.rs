//! The attributes of a connected QP that a program may choose.

use cmid_proto::datapath::{AckTimeout, ModifyReason, QpAttrs, QpState, RnrTimer};
use cmid_proto::{Errno, Transport};
use parking_lot::Mutex;

use crate::data::{QpInner, ibv_qp_attr_of};
use crate::ffi::{ibv_qp_attr, ibv_qp_attr_mask as Mask};
use crate::kernel::QpAttr;

/// What a program has chosen for RTR and RTS, until the connection manager of this crate moves the QP there.
#[derive(Default)]
pub(super) struct Chosen {
    attrs: Mutex<QpAttrs>,
    /// Whether librdmacm moves the QP, and nothing can be chosen.
    by_library: bool,
}

impl Chosen {
    /// Of a QP that librdmacm moves.
    pub(super) fn by_library() -> Self {
        Chosen { by_library: true, ..Chosen::default() }
    }

    /// Replaces what has been chosen among the attributes that `mask` names: `IB_QP_MIN_RNR_TIMER` belongs to RTR, the others to
    /// RTS.
    pub(super) fn put_into(&self, attr: &mut ibv_qp_attr, mask: u32) {
        let chosen = *self.attrs.lock();
        let fields = [
            (Mask::IBV_QP_MIN_RNR_TIMER, chosen.min_rnr_timer.map(RnrTimer::code), &mut attr.min_rnr_timer),
            (Mask::IBV_QP_TIMEOUT, chosen.timeout.map(AckTimeout::code), &mut attr.timeout),
            (Mask::IBV_QP_RETRY_CNT, chosen.retry_count, &mut attr.retry_cnt),
            (Mask::IBV_QP_RNR_RETRY, chosen.rnr_retry, &mut attr.rnr_retry),
        ];
        for (bit, value, field) in fields {
            if let Some(value) = value.filter(|_| mask & bit.0 != 0) {
                *field = value;
            }
        }
    }
}

impl QpInner {
    /// See [`QueuePair::modify`](cmid_proto::datapath::QueuePair::modify).
    pub(super) fn modify_attrs(&self, attrs: QpAttrs) -> Result<(), ModifyReason> {
        if self.is_datagram {
            return Err(ModifyReason::IsDatagram);
        }
        if self.is_iwarp {
            return Err(ModifyReason::NotOfTransport(Transport::Iwarp));
        }
        let state = self.query_state().map_err(ModifyReason::Device)?;
        attrs.check(state)?;
        if state != QpState::RTS {
            if self.chosen.by_library {
                return Err(ModifyReason::ByLibrary(state));
            }
            let mut chosen = self.chosen.attrs.lock();
            *chosen = attrs.or(*chosen);
            return Ok(());
        }
        attrs.min_rnr_timer.map_or(Ok(()), |timer| self.set_rnr_timer(timer)).map_err(ModifyReason::Device)
    }

    /// Sets the only one of the attributes that the kernel permits in RTS (`qp_state_table`).
    fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), Errno> {
        let mut attr = ibv_qp_attr_of(&QpAttr { min_rnr_timer: timer.code(), ..QpAttr::default() });
        self.modify_by(&mut attr, Mask::IBV_QP_MIN_RNR_TIMER.0)
    }

    /// See [`QueuePair::attrs`](cmid_proto::datapath::QueuePair::attrs).
    pub(super) fn query_attrs(&self) -> Result<QpAttrs, Errno> {
        let bits = [Mask::IBV_QP_MIN_RNR_TIMER, Mask::IBV_QP_TIMEOUT, Mask::IBV_QP_RETRY_CNT, Mask::IBV_QP_RNR_RETRY];
        let attr = self.query(bits.iter().fold(0, |mask, bit| mask | bit.0))?;
        Ok(QpAttrs {
            min_rnr_timer: RnrTimer::of_code(attr.min_rnr_timer),
            timeout: AckTimeout::of_code(attr.timeout),
            retry_count: Some(attr.retry_cnt),
            rnr_retry: Some(attr.rnr_retry),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_replaces_what_the_connection_manager_sets_in_that_state() {
        let chosen = Chosen::default();
        *chosen.attrs.lock() = QpAttrs {
            min_rnr_timer: RnrTimer::of_code(14),
            timeout: Some(AckTimeout::NEVER),
            retry_count: None,
            rnr_retry: Some(1),
        };
        let rts = Mask::IBV_QP_TIMEOUT.0 | Mask::IBV_QP_RETRY_CNT.0 | Mask::IBV_QP_RNR_RETRY.0;
        for (mask, expected) in
            [(0, [0, 18, 7, 7]), (Mask::IBV_QP_MIN_RNR_TIMER.0, [14, 18, 7, 7]), (rts, [0, 0, 7, 1])]
        {
            // SAFETY: zeros are a value of it.
            let mut attr: ibv_qp_attr = unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
            (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (18, 7, 7);
            chosen.put_into(&mut attr, mask);
            assert_eq!([attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry], expected, "{mask:x}");
        }
    }
}
