//! The data path: protection domains, memory, completion queues, queue pairs and address handles.
//!
//! Every handle holds, by `Arc`, what it stands on, so that things go in the right order whoever drops them when:
//! a [`Qp`] before its [`Cq`]s and its [`Pd`], an [`Mr`] or an [`Ah`] before its [`Pd`], and all of them before the
//! device's context. An [`Mr`] that is dropped while work in flight names it is kept by its PD (parked.rs). Where the
//! kernel refuses to destroy something (it should not, in that order), the library's object is leaked, and never used
//! again.

mod ah;
mod anchor;
mod buffer;
mod bytes;
mod completion;
mod context;
mod cq;
mod cq_slots;
mod create_qp;
mod in_flight;
mod mr;
mod mw;
mod notifications;
mod parked;
mod pd;
mod post;
mod qp;
mod registration;
mod rereg;
mod sync;
#[cfg(test)]
mod track_tests;
mod words;
mod work_queue;
mod wr_ring;

use std::sync::Arc;

use cmid_proto::memory::Access;
use cmid_proto::{Attaching, Device as _, Errno, IdKey};

pub(crate) use ah::path_from_c;
pub use ah::{Ah, GRH_LEN, To};
pub use buffer::Buffer;
pub use bytes::View;
pub use completion::{Completion, WcStatus};
pub(crate) use context::{Context, Contexts};
pub use cq::Cq;
pub use mr::Mr;
pub use mw::Mw;
pub use pd::Pd;
pub use post::Remote;
pub(crate) use qp::QpInner;
pub use qp::{Caps, Qp, QpState};
pub use rereg::{Change, Reregistered};

use crate::Verbs;

impl Verbs {
    /// A protection domain on the id's device (ibv_alloc_pd(3)). No other device is opened, and no descriptor is
    /// needed: the device is kept open by an id that is bound to it, at a free port of the space `RDMA_PS_IB`, on the
    /// channel that [`Verbs::open`] has opened. (Only if no address can be bound to, on the loopback address of
    /// InfiniBand for example, rdma_get_devices(3) is used, with the consequences that [`devices`](crate::devices)
    /// describes.) For datagrams it matters on which of the device's ports the id is: see [`Pd::create_ah_from`].
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `ENODEV` while the id has no device: before a specific address is bound or
    /// ADDR_RESOLVED is read; else what ibv_alloc_pd leaves.
    pub fn alloc_pd(&mut self, id: IdKey) -> Result<Pd, Errno> {
        let context = self.context(id)?;
        Pd::alloc(context, self.id(id)?.port_num())
    }

    /// A completion queue for at least `depth` completions on the id's device, with a non-blocking completion channel
    /// of its own (ibv_create_comp_channel(3), ibv_create_cq(3)).
    ///
    /// # Errors
    /// `ENOENT` and `ENODEV` as for [`Verbs::alloc_pd`]; `EINVAL` for a depth that is 0 or more than the device can;
    /// `EMFILE`, `ENOMEM`.
    pub fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Cq, Errno> {
        Cq::create(self.context(id)?, depth)
    }

    /// A queue pair on the id (rdma_create_qp(3)): reliable connected, or for datagrams where the id's port space is
    /// for them. librdmacm takes the first through its states as the connection goes; the second is ready to send at
    /// once, and attached to the multicast groups whose MULTICAST_JOIN is read while the id has it.
    ///
    /// The device keeps it for as long as it is on the id; the handle that is returned posts to it, on any thread.
    ///
    /// # Errors
    /// `ENOENT` and `ENODEV` as for [`Verbs::alloc_pd`]; `EINVAL` if the id has a QP already, if the PD or a CQ is of
    /// another device, if the device cannot do `caps`, and for an id whose connection has ended; `EOVERFLOW` if a CQ
    /// has no room for the completions of all work requests that `caps` allows, beside those of the QPs that report
    /// to it already ([`Cq::room`] says how much it has); `ENOMEM`, also where one of
    /// the CQs has 65,536 work queues already: a QP that has one CQ for sends and receives is two of them. A QP that
    /// is destroyed keeps its room and its places until every completion is polled that it may have left.
    pub fn create_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        caps: Caps,
    ) -> Result<Qp, Errno> {
        let id = self.id_mut(attaching.id())?;
        let verbs = id.verbs().ok_or(Errno::ENODEV)?;
        let qp = QpInner::create(verbs, id, pd, send_cq, recv_cq, caps)?;
        id.qp = Some(Arc::clone(&qp));
        Ok(Qp::new(qp))
    }

    /// Takes the QP off the id. If its [`Qp`] handle is left, the QP goes to the error state (what is posted
    /// completes with [`WcStatus::WR_FLUSH_ERR`]) and is destroyed with the handle; otherwise it is destroyed now.
    /// Drain its CQs before it is destroyed: the completions that they hold of it are lost then, with some providers
    /// at once (`__mlx5_cq_clean`), else when [`Cq::poll`] comes upon them. Until the CQs have been polled empty
    /// after that, the memory that its work requests name stays pinned.
    /// Either way it receives nothing from multicast groups any more; the id stays in them.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` if it has no QP.
    pub fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
        self.ids.get_mut(id).ok_or(Errno::ENOENT)?.detach_qp()
    }

    /// The context of the id's device, shared by everything that is made on it.
    fn context(&self, id: IdKey) -> Result<Arc<Context>, Errno> {
        let record = self.id(id)?;
        let verbs = record.verbs().ok_or(Errno::ENODEV)?;
        self.contexts.open(verbs, record.port_num(), self.local_addr(id).ok())
    }
}
