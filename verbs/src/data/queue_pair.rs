//! A QP on an id of the kernel's connection manager.

use core::mem::MaybeUninit;
use std::sync::Arc;

use cmid_proto::{Ece, Errno, Outcome};

use crate::data::QpInner;
use crate::data::qp::QP_MEMORY;
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

    #[inline]
    fn modify(&self, attr: &QpAttr) -> Outcome {
        let mut c = MaybeUninit::uninit();
        convert(attr, &mut c);
        // SAFETY: the QP is alive. The attributes are read during the call: only those that the mask names
        // (ibv_modify_qp(3); librdmacm passes no others either), and `convert` has written those.
        errno::of_ibv(unsafe { ffi::ibv_modify_qp(self.as_ptr(), c.as_mut_ptr(), signed(attr.qp_attr_mask)) })?;
        // On iWARP the kernel moves the QP, and the mask is empty.
        if attr.qp_state == ibv_qp_state::IBV_QPS_RTS && !self.is_iwarp {
            self.note_sends(attr.max_rd_atomic);
        }
        Ok(())
    }

    fn stop(&self) {
        if self.is_inherited() {
            return;
        }
        // A failure means that the device is gone, and the QP with it.
        let _ = self.set_state(ibv_qp_state::IBV_QPS_ERR);
    }

    fn destroy(self: Arc<Self>) {
        if self.is_inherited() {
            return;
        }
        QP_MEMORY.reclaim(self);
    }

    fn shut_down(&self) -> Outcome {
        self.set_state(if self.is_iwarp { ibv_qp_state::IBV_QPS_SQD } else { ibv_qp_state::IBV_QPS_ERR })
    }

    fn attach_group(&self, group: Group) -> Outcome {
        let gid = ibv_gid { raw: group.gid };
        // SAFETY: the QP is alive, and the GID is read during the call.
        errno::of_ibv(unsafe { ffi::ibv_attach_mcast(self.as_ptr(), &raw const gid, group.lid) })
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
        let context = self.pd.inner().context();
        if context.lacks_ece() {
            return Ok(Ece::default());
        }
        let mut ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the QP is alive, and the result has a place.
        match errno::of_ibv(unsafe { ffi::ibv_query_ece(self.as_ptr(), &raw mut ece) }) {
            Ok(()) => Ok(Ece { vendor_id: ece.vendor_id, options: ece.options }),
            Err(Errno(libc::EOPNOTSUPP)) => {
                context.set_lacks_ece();
                Ok(Ece::default())
            }
            Err(errno) => Err(errno),
        }
    }

    fn set_ece(&self, ece: Ece) -> Outcome {
        let mut ece = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: 0 };
        // SAFETY: the QP is alive, and the options are read during the call.
        match errno::of_ibv(unsafe { ffi::ibv_set_ece(self.as_ptr(), &raw mut ece) }) {
            Err(Errno(libc::EOPNOTSUPP)) => Ok(()),
            outcome => outcome,
        }
    }
}

impl QpInner {
    #[inline]
    pub(crate) fn set_state(&self, state: u32) -> Outcome {
        let mut attr = MaybeUninit::<ibv_qp_attr>::uninit();
        let mask = signed(ibv_qp_attr_mask::IBV_QP_STATE.0);
        // SAFETY: the QP is alive. Only the state is read, because the mask names no more.
        errno::of_ibv(unsafe {
            (*attr.as_mut_ptr()).qp_state = state;
            ffi::ibv_modify_qp(self.as_ptr(), attr.as_mut_ptr(), mask)
        })
    }
}

/// Converts attributes to libibverbs' form. Paths and capacities that the mask does not name are zeros.
pub(crate) fn ibv_qp_attr_of(attr: &QpAttr) -> ibv_qp_attr {
    let mut c = MaybeUninit::<ibv_qp_attr>::zeroed();
    convert(attr, &mut c);
    // SAFETY: all fields are integers, also in the nested structures and unions; zeros are a value of those.
    unsafe { c.assume_init() }
}

/// Converts the attributes that the mask names to libibverbs' form. It also writes the other attributes, except paths
/// and capacities: one store is cheaper than a comparison.
#[inline(always)]
fn convert(attr: &QpAttr, into: &mut MaybeUninit<ibv_qp_attr>) {
    let c = into.as_mut_ptr();
    // SAFETY: `c` points to `into`, which is valid for writes.
    unsafe {
        (*c).qp_state = attr.qp_state;
        (*c).cur_qp_state = attr.cur_qp_state;
        (*c).path_mtu = attr.path_mtu;
        (*c).path_mig_state = attr.path_mig_state;
        (*c).qkey = attr.qkey;
        (*c).rq_psn = attr.rq_psn;
        (*c).sq_psn = attr.sq_psn;
        (*c).dest_qp_num = attr.dest_qp_num;
        (*c).qp_access_flags = attr.qp_access_flags;
        (*c).pkey_index = attr.pkey_index;
        (*c).alt_pkey_index = attr.alt_pkey_index;
        (*c).en_sqd_async_notify = attr.en_sqd_async_notify;
        (*c).sq_draining = attr.sq_draining;
        (*c).max_rd_atomic = attr.max_rd_atomic;
        (*c).max_dest_rd_atomic = attr.max_dest_rd_atomic;
        (*c).min_rnr_timer = attr.min_rnr_timer;
        (*c).port_num = attr.port_num;
        (*c).timeout = attr.timeout;
        (*c).retry_cnt = attr.retry_cnt;
        (*c).rnr_retry = attr.rnr_retry;
        (*c).alt_port_num = attr.alt_port_num;
        // The kernel's structure has no rate limit, but its mask could name one.
        (*c).rate_limit = 0;
        if attr.qp_attr_mask & ibv_qp_attr_mask::IBV_QP_AV.0 != 0 {
            (*c).ah_attr = ah_attr(&attr.ah_attr);
        }
    }
    let rare = ibv_qp_attr_mask::IBV_QP_ALT_PATH.0 | ibv_qp_attr_mask::IBV_QP_CAP.0;
    if attr.qp_attr_mask & rare != 0 {
        convert_rare(attr, into);
    }
}

/// Converts the attributes that a connection manager rarely sets or never.
#[cold]
fn convert_rare(attr: &QpAttr, into: &mut MaybeUninit<ibv_qp_attr>) {
    let c = into.as_mut_ptr();
    // SAFETY: as in `convert`.
    unsafe {
        (*c).alt_ah_attr = ah_attr(&attr.alt_ah_attr);
        (*c).alt_timeout = attr.alt_timeout;
        (*c).cap = ibv_qp_cap {
            max_send_wr: attr.max_send_wr,
            max_recv_wr: attr.max_recv_wr,
            max_send_sge: attr.max_send_sge,
            max_recv_sge: attr.max_recv_sge,
            max_inline_data: attr.max_inline_data,
        };
    }
}

#[inline]
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
