//! A QP on an id of the kernel's connection manager.

use core::sync::atomic::Ordering;

use cmid_proto::{Ece, Errno, Outcome};

use crate::data::QpInner;
use crate::errno;
use crate::ffi::{
    self, ibv_ah_attr, ibv_ece, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_state,
};
use crate::kernel::{Group, KernelAhAttr, QpAttr, QueuePair};
use crate::sign::signed;

impl QueuePair for QpInner {
    fn num(&self) -> u32 {
        // SAFETY: the QP is alive, and its number does not change.
        unsafe { (*self.as_ptr()).qp_num }
    }

    fn uses_srq(&self) -> bool {
        self.srq.is_some()
    }

    fn modify(&self, attr: &QpAttr) -> Outcome {
        let mut c = ibv_qp_attr_of(attr);
        self.chosen.put_into(&mut c, attr.qp_attr_mask);
        self.modify_by(&mut c, attr.qp_attr_mask)?;
        // On iWARP the kernel moves the QP, and the mask is empty.
        if attr.qp_state == ibv_qp_state::IBV_QPS_RTS && !self.is_iwarp {
            self.note_sends(attr.max_rd_atomic);
        }
        Ok(())
    }

    fn stop(&self) {
        if self.to_error() {
            self.note_stopped();
        }
    }

    fn fail(&self) {
        self.to_error();
    }

    fn note_depth(&self, depth: u8) {
        if self.is_iwarp {
            self.initiator_depth.store(depth, Ordering::Relaxed);
            self.sends.store(true, Ordering::Release);
        }
    }

    fn note_removal(&self) {
        self.pd.inner().set_gone();
    }

    fn shut_down(&self) -> Outcome {
        self.set_state(if self.is_iwarp { ibv_qp_state::IBV_QPS_SQD } else { ibv_qp_state::IBV_QPS_ERR })
    }

    fn attach_group(&self, group: Group) -> Outcome {
        let gid = ibv_gid { raw: group.gid };
        // SAFETY: the QP is alive, and the GID is read during the call.
        errno::of_call(|| unsafe { ffi::ibv_attach_mcast(self.as_ptr(), &raw const gid, group.lid) })
    }

    fn detach_group(&self, group: Group) {
        if self.is_inherited() {
            return;
        }
        let gid = ibv_gid { raw: group.gid };
        // SAFETY: as in `attach_group`. If it fails, the device is gone.
        let _ = unsafe { ffi::ibv_detach_mcast(self.as_ptr(), &raw const gid, group.lid) };
    }

    fn ece(&self) -> Result<Ece, Errno> {
        let mut ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the QP is alive, and the result has a place.
        match errno::of_call(|| unsafe { ffi::ibv_query_ece(self.as_ptr(), &raw mut ece) }) {
            Ok(()) => Ok(Ece { vendor_id: ece.vendor_id, options: ece.options }),
            Err(Errno(libc::EOPNOTSUPP)) => Ok(Ece::default()),
            Err(errno) => Err(errno),
        }
    }

    fn set_ece(&self, ece: Ece) -> Outcome {
        let mut ece = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: 0 };
        // SAFETY: the QP is alive, and the options are read during the call.
        match errno::of_call(|| unsafe { ffi::ibv_set_ece(self.as_ptr(), &raw mut ece) }) {
            Err(Errno(libc::EOPNOTSUPP)) => Ok(()),
            outcome => outcome,
        }
    }
}

impl QpInner {
    /// Moves it to the error state. Returns whether it is there, or gone with its device.
    pub(super) fn to_error(&self) -> bool {
        // A failure means that the device is gone, and the QP with it; or that the kernel takes no commands of this thread,
        // which has other credentials than the one that opened the device.
        !self.is_inherited() && (self.set_state(ibv_qp_state::IBV_QPS_ERR).is_ok() || self.pd.inner().is_gone())
    }

    fn set_state(&self, state: u32) -> Outcome {
        let mut attr = ibv_qp_attr_of(&QpAttr { qp_state: state, ..QpAttr::default() });
        self.modify_by(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0)
    }

    /// Sets the attributes that `mask` names.
    pub(super) fn modify_by(&self, attr: &mut ibv_qp_attr, mask: u32) -> Outcome {
        // SAFETY: the QP is alive, and the attributes are read during the call.
        errno::of_call(|| unsafe { ffi::ibv_modify_qp(self.as_ptr(), attr, signed(mask)) })
    }
}

/// Converts attributes to libibverbs' form.
pub(crate) fn ibv_qp_attr_of(attr: &QpAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state,
        cur_qp_state: attr.cur_qp_state,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: attr.max_send_wr,
            max_recv_wr: attr.max_recv_wr,
            max_send_sge: attr.max_send_sge,
            max_recv_sge: attr.max_recv_sge,
            max_inline_data: attr.max_inline_data,
        },
        ah_attr: ah_attr(&attr.ah_attr),
        alt_ah_attr: ah_attr(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify,
        sq_draining: attr.sq_draining,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        // The kernel's structure has none.
        rate_limit: 0,
    }
}

fn ah_attr(attr: &KernelAhAttr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: attr.dgid },
            flow_label: attr.flow_label,
            sgid_index: attr.sgid_index,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
        },
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global,
        port_num: attr.port_num,
    }
}
