//! Where the data path begins: what an id's device gives out.

use std::sync::Arc;

use cmid_proto::{Attaching, Ece, Errno, IdKey, PortSpace};

use crate::data::cq::Cq;
use crate::data::pd::Pd;
use crate::data::qp::Qp;
use crate::data::queues::{Caps, Pair};
use crate::fabric::device::SimDevice;
use crate::fabric::world::World;
use crate::index::{HostNo, IdNo, PdNo, QpNo};
use crate::kernel::channel::new_eventfd;
use crate::kernel::id::CmState;

/// The most work requests of a queue (`RXE_MAX_QP_WR`).
const MAX_QP_WR: u32 = 1 << 20;

impl SimDevice {
    /// A protection domain on the device of an id.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `ENODEV` while the id has no device that the library knows of: before a bind to a
    /// specific address, before ADDR_RESOLVED is fetched, and once the device is removed.
    pub fn alloc_pd(&self, id: IdKey) -> Result<Pd, Errno> {
        let (_, (device, no)) = self.on_device(id, |world, no| {
            let host = world.id(no)?.host;
            let device = world.device_of(host);
            Ok((device, world.alloc_pd(device)?))
        })?;
        Ok(Pd { fabric: self.fabric().clone(), device, no })
    }

    /// A completion queue for `depth` completions, with a descriptor of its own.
    ///
    /// # Errors
    /// As [`SimDevice::alloc_pd`]; `EINVAL` for depth 0; what the system says when it gives no descriptor.
    pub fn create_cq(&self, id: IdKey, depth: u32) -> Result<Cq, Errno> {
        if depth == 0 {
            return Err(Errno::EINVAL);
        }
        let fd = Arc::new(new_eventfd()?);
        let shared = Arc::clone(&fd);
        let (host, no) = self.on_device(id, |world, _| Ok(world.queues.add_cq(depth, shared)))?;
        Ok(Cq { fabric: self.fabric().clone(), host, no, fd })
    }

    /// Creates a QP on an id (rdma_create_qp(3)). That of a connection starts in INIT, and from now on librdmacm moves
    /// it along; that of a datagram id works at once, with the RDMA CM's queue key 0x01234567.
    ///
    /// # Errors
    /// As [`SimDevice::alloc_pd`]; `EINVAL` if the id has a QP, if the domain is gone, if it or a queue is another
    /// device's, for more than 1,048,576 work requests, if the connection is over or refused, and for a listener for
    /// connections; `EOVERFLOW` if a CQ has no room for
    /// the completions of all work requests that `caps` allows, beside those of the QPs that report to it already
    /// ([`Cq::room`](crate::Cq::room) says how much it has).
    pub fn create_qp(
        &self,
        attaching: Attaching<'_>,
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        caps: Caps,
    ) -> Result<Qp, Errno> {
        let (_, no) = self.on_device(attaching.id(), |world, no| {
            let state = world.id(no)?;
            let host = state.host;
            // The attributes of a datagram QP do not depend on what the IB CM does (`rdma_init_qp_attr`).
            let gives_init = match &state.conn {
                _ if state.is_datagram() => true,
                Some(conn) => conn.state.gives_init(),
                None => state.state != CmState::Listen,
            };
            let foreign = [send_cq.host, recv_cq.host].iter().any(|&other| other != host);
            let (space, has_qp) = (state.port_space, state.qp.is_some());
            let foreign = foreign || pd.device != world.device_of(host) || !pd.fabric.is(self.fabric());
            let pair = Pair::new(space.service(), pd.no, send_cq.no, recv_cq.no, caps);
            // The library looks at that first.
            world.queues.fits(&pair)?;
            let too_many = caps.max_send_wr.max(caps.max_recv_wr) > MAX_QP_WR;
            if has_qp || foreign || too_many || !gives_init {
                return Err(Errno::EINVAL);
            }
            // Its queue key is that of a group of InfiniBand's (`cma_set_default_qkey`).
            if space == PortSpace::Ipoib {
                return Err(Errno::ENODEV);
            }
            world.add_qp(no, host, pair)
        })?;
        Ok(Qp { fabric: self.fabric().clone(), no })
    }

    /// Takes the QP off an id and destroys it (rdma_destroy_qp(3)). What was posted never completes. Drain its CQs first: what they
    /// hold of it is lost, as with libmlx5, or stays there and pins memory until it is polled, as with soft-RoCE
    /// ([`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp)). If a window was bound
    /// through it ([`Mw`](crate::Mw)), it goes to its error state instead, and with the window.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` if it has no QP.
    pub fn destroy_qp(&self, id: IdKey) -> Result<(), Errno> {
        let no = self.id_no(id)?;
        self.fabric().with(|world| {
            let qp = world.id(no)?.qp.take().ok_or(Errno::EINVAL)?;
            world.destroy_qp(qp);
            Ok(())
        })
    }

    fn on_device<T>(
        &self,
        id: IdKey,
        action: impl FnOnce(&mut World, IdNo) -> Result<T, Errno>,
    ) -> Result<(HostNo, T), Errno> {
        let no = self.id_no(id)?;
        self.fabric().with(|world| {
            let state = world.id(no)?;
            let host = state.host;
            if !state.verbs || state.removed {
                return Err(Errno::ENODEV);
            }
            Ok((host, action(world, no)?))
        })
    }
}

impl World {
    fn add_qp(&mut self, no: IdNo, host: HostNo, pair: Pair) -> Result<QpNo, Errno> {
        let numbers = self.hosts.get_mut(host.0).ok_or(Errno::ENODEV)?;
        let qp = QpNo { host, num: numbers.next_qp_num };
        numbers.next_qp_num = numbers.next_qp_num.checked_add(1).filter(|&num| num < 1 << 24).ok_or(Errno::ENOMEM)?;
        self.id(no)?;
        self.queues.reserve(qp, &pair)?;
        if let Err(errno) = self.count_qp(host, pair.pd) {
            self.queues.leave(qp, Some(&pair), true);
            return Err(errno);
        }
        self.queues.pairs.insert(qp, Box::new(pair));
        let id = self.id(no)?;
        id.qp = Some(qp);
        // The options are those of the QP from now on, and a device like rxe has none (`init_ece`).
        id.local_ece = Ece::default();
        Ok(qp)
    }

    /// A QP is to belong to a domain.
    fn count_qp(&mut self, host: HostNo, pd: PdNo) -> Result<(), Errno> {
        self.acquire_pd(pd).map_err(|refused| refused.errno())?;
        self.memory.count_user(host, pd).inspect_err(|_| self.release_pd(pd))
    }
}
