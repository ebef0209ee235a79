//! A connection's objects of the data path: a QP. The QPs of a side use one CQ, as in cmtime, up to its largest depth.

use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{Caps, CreateError, DataPath};
use cmid_proto::{ConnParam, Drive, Error, IdKey, Poller};

use crate::args::Plan;

/// The capacities of cmtime's QPs.
const CAPS: Caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
/// QP numbers have 24 bits.
const QPN_MASK: u32 = 0xff_ffff;
/// A CQ must have room for the work requests that each QP of a side could post, though none is posted.
const CQ_DEPTH_EACH: u32 = CAPS.max_send_wr + CAPS.max_recv_wr;
/// The largest depth of a CQ on soft-RoCE.
const CQ_DEPTH_MAX: u32 = (1 << 15) - 1;
/// A server may have more concurrent connections than it waits for.
const LEAST_CONNECTIONS: u64 = 1024;

/// The objects that all connections of a side share.
pub(crate) struct Equipment<D: DataPath> {
    retries: u8,
    cq_depth: u32,
    /// The number of QPs that the last CQ still has room for.
    room: u32,
    /// The next QP number if no QPs are made.
    next_qpn: Option<u32>,
    common: Option<(D::Pd, D::Cq)>,
}

impl<D: DataPath> Equipment<D> {
    /// `above`: the offset of this side's own QP numbers. Those of the two ends of a connection must differ if both
    /// are on one host.
    pub(crate) fn new(plan: &Plan, above: u32) -> Self {
        let next_qpn = plan.base_qpn.map(|base| base.wrapping_add(above) & QPN_MASK);
        let all = u32::try_from(plan.connections.max(LEAST_CONNECTIONS)).unwrap_or(u32::MAX);
        let cq_depth = all.saturating_mul(CQ_DEPTH_EACH).min(CQ_DEPTH_MAX);
        Equipment { retries: plan.retries, cq_depth, room: cq_depth / CQ_DEPTH_EACH, next_qpn, common: None }
    }

    /// Attaches a QP to an id, if QPs are made.
    pub(crate) fn attach<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, id: IdKey) -> Result<Option<D::Qp>, Error> {
        if self.next_qpn.is_some() {
            return Ok(None);
        }
        drive.attach_qp(id, |device, attaching| self.make(device, attaching)).map(Some)
    }

    fn make(&mut self, device: &mut D, attaching: Attaching<'_>) -> Result<D::Qp, CreateError> {
        let id = attaching.id();
        let (pd, cq) = match &mut self.common {
            Some(common) => common,
            none => none.insert((device.alloc_pd(id)?, device.create_cq(id, self.cq_depth)?)),
        };
        if self.room == 0 {
            *cq = device.create_cq(id, self.cq_depth)?;
            self.room = self.cq_depth / CQ_DEPTH_EACH;
        }
        self.room -= 1;
        device.create_qp(attaching, pd, cq, cq, CAPS)
    }

    /// Detaches the QP.
    pub(crate) fn detach<P: Poller<D>>(drive: &mut Drive<D, P>, id: IdKey, qp: Option<D::Qp>) -> Result<(), Error> {
        let Some(qp) = qp else { return Ok(()) };
        // Dropped before the detach, which would first stop a QP with a handle, by a system call.
        drop(qp);
        drive.detach_qp(id, |device, id| device.destroy_qp(id))
    }

    /// cmtime's connection parameters.
    pub(crate) fn param(&mut self) -> ConnParam {
        let qp_num = self.next_qpn.unwrap_or(0);
        self.next_qpn = self.next_qpn.map(|last| last.wrapping_add(1) & QPN_MASK);
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: self.retries.min(7),
            rnr_retry_count: 0,
            srq: false,
            qp_num,
        }
    }
}
