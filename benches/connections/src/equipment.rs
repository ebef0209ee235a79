//! What a connection needs of the data path: a QP. All of a side complete to one queue, as those of cmtime do.

use cmid_datapath::{Caps, DataPath};
use cmid_proto::{Attaching, ConnParam, Drive, Errno, Error, IdKey};

use crate::args::Plan;
use crate::backend::Backend;

/// As cmtime's QPs are.
const CAPS: Caps = Caps { max_send_wr: 1, max_recv_wr: 1 };
/// QP numbers have 24 bits.
const QPN_MASK: u32 = 0xff_ffff;
/// A CQ must have room for what each QP of a side might post, though nothing ever is.
const CQ_DEPTH_EACH: u32 = CAPS.max_send_wr + CAPS.max_recv_wr;
/// A server may have more connections at a time than it waits for.
const LEAST_CONNECTIONS: u64 = 1024;

/// What all connections of a side have in common.
pub(crate) struct Equipment<D: DataPath> {
    retries: u8,
    cq_depth: u32,
    /// The next QP number where there are no QPs.
    next_qpn: Option<u32>,
    common: Option<(D::Pd, D::Cq)>,
}

impl<D: DataPath> Equipment<D> {
    /// `above`: how much higher this side's own QP numbers are. Those of two ends of a connection must differ where both
    /// are on one host.
    pub(crate) fn new(plan: &Plan, above: u32) -> Self {
        let next_qpn = plan.base_qpn.map(|base| base.wrapping_add(above) & QPN_MASK);
        let cq_depth =
            u32::try_from(plan.connections.max(LEAST_CONNECTIONS)).unwrap_or(u32::MAX).saturating_mul(CQ_DEPTH_EACH);
        Equipment { retries: plan.retries, cq_depth, next_qpn, common: None }
    }

    /// Puts a QP on an id, if there are to be any.
    pub(crate) fn attach<W: Backend<Path = D>>(
        &mut self,
        drive: &mut Drive<W>,
        id: IdKey,
    ) -> Result<Option<D::Qp>, Error> {
        if self.next_qpn.is_some() {
            return Ok(None);
        }
        drive.attach_qp(id, |device, attaching| self.make(device.path(), attaching)).map(Some)
    }

    fn make(&mut self, device: &mut D, attaching: Attaching<'_>) -> Result<D::Qp, Errno> {
        let id = attaching.id();
        let (pd, cq) = match &mut self.common {
            Some(common) => common,
            none => none.insert((device.alloc_pd(id)?, device.create_cq(id, self.cq_depth)?)),
        };
        device.create_qp(attaching, pd, cq, cq, CAPS)
    }

    /// Takes it off again.
    pub(crate) fn detach<W: Backend<Path = D>>(
        drive: &mut Drive<W>,
        id: IdKey,
        qp: Option<D::Qp>,
    ) -> Result<(), Error> {
        let Some(qp) = qp else { return Ok(()) };
        // Before it is taken off: one with a handle would be stopped first, which is a system call.
        drop(qp);
        drive.detach_qp(id, |device, id| device.path().destroy_qp(id))
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
