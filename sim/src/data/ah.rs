//! Address handles: destinations of datagrams.

use cmid_proto::Errno;
use cmid_proto::datapath::{AhAttr, Completion, CreateReason, GRH_LEN, GlobalRoute, MemoryRegion};

use crate::data::datagram::route_back;
use crate::data::fault::Resource;
use crate::data::mr::Mr;
use crate::data::pd::{Pd, PdUse};
use crate::fabric::Fabric;
use crate::kernel::gid::PORT;

/// An address handle of a protection domain (ibv_create_ah(3)).
#[derive(Debug)]
pub struct Ah {
    pub(crate) fabric: Fabric,
    pub(crate) pd: PdUse,
    pub(crate) route: GlobalRoute,
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.fabric.with(|world| world.memory.discount_user(self.pd.no));
    }
}

impl Ah {
    pub(crate) fn create(pd: &Pd, path: &AhAttr) -> Result<Ah, CreateReason> {
        let route = path.grh.filter(|_| path.port_num == PORT).ok_or(Errno::EINVAL)?;
        let host = pd.device.host;
        if !pd.fabric.with(|world| world.lives(pd.device)) {
            return Err(Errno::ENODEV.into());
        }
        let used = pd.acquire()?;
        pd.fabric.with(|world| {
            world.address_at(host, route.sgid_index).ok_or(Errno::EINVAL)?;
            world.grant(host, Resource::Ah)?;
            world.memory.count_user(host, used.no)
        })?;
        Ok(Ah { fabric: pd.fabric.clone(), pd: used, route })
    }

    pub(crate) fn create_from(pd: &Pd, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, CreateReason> {
        if completion.src_qp == 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut header = [0; GRH_LEN];
        mr.read(offset, &mut header)?;
        let (own, sender) = route_back(&header).ok_or(Errno::EPROTONOSUPPORT)?;
        let sgid_index = pd.fabric.with(|world| {
            let host = world.hosts.get(pd.device.host.0).ok_or(Errno::ENODEV)?;
            if host.rdma.contains(&own) { Ok(world.gid_index(pd.device.host, own)) } else { Err(Errno::EINVAL) }
        })?;
        Ah::create(pd, &crate::kernel::gid::path(sgid_index, sender))
    }
}
