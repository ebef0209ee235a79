//! Address handles: destinations of datagrams.

use cmid_proto::{AhAttr, Errno, GlobalRoute};

use crate::data::completion::Completion;
use crate::data::datagram::{GRH_LEN, route_back};
use crate::data::mr::Mr;
use crate::data::pd::{Pd, PdUse};
use crate::fabric::Fabric;
use crate::kernel::gid::PORT;

/// An address handle of a protection domain (ibv_create_ah(3)).
#[derive(Debug)]
pub struct Ah {
    fabric: Fabric,
    pub(crate) pd: PdUse,
    pub(crate) route: GlobalRoute,
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.fabric.with(|world| world.memory.discount_user(self.pd.no));
    }
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct To<'a> {
    /// The path to the destination.
    pub ah: &'a Ah,
    /// The QP number at the destination; 0xFFFFFF for all members of a multicast group.
    pub qp_num: u32,
    /// The queue key of the destination QP; 0x01234567 for QPs of the RDMA CM.
    pub qkey: u32,
}

impl Pd {
    /// Creates an address handle for a path, for example that of an ESTABLISHED or a MULTICAST_JOIN event
    /// (ibv_create_ah(3)). Does not check that the destination exists.
    ///
    /// # Errors
    /// `EINVAL` for a path without a global route, for a port or a GID that does not exist, or if the domain is
    /// deallocated; `ENODEV` once the device is removed.
    pub fn create_ah(&self, path: &AhAttr) -> Result<Ah, Errno> {
        let route = path.grh.filter(|_| path.port_num == PORT).ok_or(Errno::EINVAL)?;
        let host = self.device.host;
        if !self.fabric.with(|world| world.lives(self.device)) {
            return Err(Errno::ENODEV);
        }
        let pd = self.acquire().map_err(|refused| refused.errno())?;
        self.fabric.with(|world| {
            world.address_at(host, route.sgid_index).ok_or(Errno::EINVAL)?;
            world.memory.count_user(host, pd.no)
        })?;
        Ok(Ah { fabric: self.fabric.clone(), pd, route })
    }

    /// Creates an address handle for the sender of a datagram, from the completion of its receive and the header at
    /// `offset` of the region (ibv_create_ah_from_wc(3)).
    ///
    /// # Errors
    /// As [`Pd::create_ah`]; `EINVAL` also if the completion is not that of a datagram, if there is no header at
    /// `offset`, and if the datagram was sent to a group, because the local address is not known then
    /// (`ibv_init_ah_from_wc`).
    pub fn create_ah_from(&self, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, Errno> {
        if completion.src_qp == 0 {
            return Err(Errno::EINVAL);
        }
        let mut header = [0; GRH_LEN];
        mr.read(offset, &mut header)?;
        let (own, sender) = route_back(&header).ok_or(Errno::EINVAL)?;
        let sgid_index = self.fabric.with(|world| {
            let host = world.hosts.get(self.device.host.0).ok_or(Errno::ENODEV)?;
            if host.rdma.contains(&own) { Ok(world.gid_index(self.device.host, own)) } else { Err(Errno::EINVAL) }
        })?;
        self.create_ah(&crate::kernel::gid::path(sgid_index, sender))
    }
}
