//! Address handles: where a datagram goes.

use cmid_proto::{AhAttr, Errno, GlobalRoute};

use crate::data::cq::Completion;
use crate::data::datagram::{GRH_LEN, route_back};
use crate::data::memory::PdNo;
use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::gid::PORT;
use crate::host::{HostNo, HostState};

/// An address handle of a protection domain (ibv_create_ah(3)).
#[derive(Debug)]
pub struct Ah {
    pub(crate) host: HostNo,
    pub(crate) pd: PdNo,
    pub(crate) route: GlobalRoute,
}

/// The addressee of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct To<'a> {
    /// The way there.
    pub ah: &'a Ah,
    /// The QP there; 0xFFFFFF for all of a multicast group.
    pub qp_num: u32,
    /// The queue key of that QP: of one of the RDMA CM's, 0x01234567.
    pub qkey: u32,
}

impl Pd {
    /// An address handle for a path, such as that of an ESTABLISHED or a MULTICAST_JOIN event (ibv_create_ah(3)). Whether
    /// somebody is there is not asked.
    ///
    /// # Errors
    /// `EINVAL` for a path without a global route, from a port that there is not, or from a GID that there is not;
    /// `ENODEV` once the device is removed.
    pub fn create_ah(&self, path: &AhAttr) -> Result<Ah, Errno> {
        let route = path.grh.filter(|_| path.port_num == PORT).ok_or(Errno::EINVAL)?;
        self.fabric.with(|world| {
            if !world.hosts.get(self.host.0).is_some_and(HostState::has_device) {
                return Err(Errno::ENODEV);
            }
            world.address_at(self.host, route.sgid_index).ok_or(Errno::EINVAL)?;
            Ok(Ah { host: self.host, pd: self.no, route })
        })
    }

    /// An address handle for the sender of a datagram, from the completion of its receive and the header that stands at
    /// `offset` of the region (ibv_create_ah_from_wc(3)).
    ///
    /// # Errors
    /// As [`Pd::create_ah`]; `EINVAL` also if the completion is not that of a datagram, if no header is there, and if the
    /// datagram was sent to a group: the own address is not known then (`ibv_init_ah_from_wc`).
    pub fn create_ah_from(&self, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, Errno> {
        if completion.src_qp == 0 {
            return Err(Errno::EINVAL);
        }
        let mut header = [0; GRH_LEN];
        mr.read(offset, &mut header)?;
        let (own, sender) = route_back(&header).ok_or(Errno::EINVAL)?;
        let sgid_index = self.fabric.with(|world| {
            let host = world.hosts.get(self.host.0).ok_or(Errno::ENODEV)?;
            if host.rdma.contains(&own) { Ok(world.gid_index(self.host, own)) } else { Err(Errno::EINVAL) }
        })?;
        self.create_ah(&crate::gid::path(sgid_index, sender))
    }
}
