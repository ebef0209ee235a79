//! Creates data path resources on the device of an id.

use cmid_proto::datapath::{
    Attaching, Capacity, Caps, CreateCall, CreateError, CreateReason, DataPath, DeviceAttrs, OfDevice, PortAttrs,
    PortGid, RdmaDevice,
};
use cmid_proto::{Ece, Errno, IdKey, PortSpace, Service};

use crate::data::ah::Ah;
use crate::data::async_events::AsyncEvents;
use crate::data::blocks::Piece;
use crate::data::comp_channel::{CompChannel, Notices};
use crate::data::cq::Cq;
use crate::data::device_attrs::COMP_VECTORS;
use crate::data::fault::Resource;
use crate::data::mr::Mr;
use crate::data::mw::Mw;
use crate::data::pd::Pd;
use crate::data::pending::Order;
use crate::data::qp::Qp;
use crate::data::queues::Pair;
use crate::data::srq::Srq;
use crate::fabric::Fabric;
use crate::fabric::device::SimDevice;
use crate::fabric::world::World;
use crate::index::{DeviceNo, HostNo, IdNo, PdNo, QpNo};
use crate::kernel::gid::PORT;
use crate::kernel::id::CmState;

/// A handle of a host's device. It stays invalid after a removal, even if a device is added again.
#[derive(Clone, Debug)]
pub struct Nic {
    fabric: Fabric,
    device: DeviceNo,
}

impl Nic {
    fn on_device<T>(&self, action: impl FnOnce(&mut World) -> Result<T, Errno>) -> Result<T, Errno> {
        self.fabric.with(|world| if world.lives(self.device) { action(world) } else { Err(Errno::ENODEV) })
    }

    fn create_cq(&self, notices: Notices, depth: u32, vector: u32) -> Result<Cq, CreateReason> {
        if let Some(reason) = self.fabric.with(|world| world.maxima(self.device.host)).cq(depth, vector) {
            return Err(reason);
        }
        let no = self.on_device(|world| {
            world.grant(self.device.host, Resource::Cq)?;
            let entries_each = if world.is_iwarp(self.device.host) { 2 } else { 1 };
            Ok(world.queues.add_cq(depth, entries_each, notices.clone()))
        })?;
        Ok(Cq { fabric: self.fabric.clone(), device: self.device, no, notices })
    }
}

impl RdmaDevice for Nic {
    fn port_num(&self) -> u8 {
        PORT
    }

    /// All devices have the same number.
    fn comp_vectors(&self) -> u32 {
        COMP_VECTORS
    }

    /// Those of soft-RoCE or soft-iWARP.
    fn attrs(&self) -> Result<DeviceAttrs, Errno> {
        self.on_device(|world| Ok(world.device_attrs(self.device)))
    }

    fn port_attrs(&self, port: u8) -> Result<PortAttrs, Errno> {
        self.on_device(|world| world.port_attrs(self.device.host, port))
    }

    fn gids(&self, port: u8) -> Result<Vec<PortGid>, Errno> {
        self.on_device(|world| world.gids(self.device, port))
    }
}

impl PartialEq for Nic {
    fn eq(&self, other: &Self) -> bool {
        self.fabric.is(&other.fabric) && self.device == other.device
    }
}

impl Eq for Nic {}

impl DataPath for SimDevice {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type CompChannel = CompChannel;
    type Qp = Qp;
    type Ah = Ah;
    type Srq = Srq;
    type Piece = Piece;
    type Nic = Nic;
    type AsyncEvents = AsyncEvents;

    /// # Errors
    /// `ENODEV` while librdmacm does not know the id's device: before a bind to a specific address, before
    /// ADDR_RESOLVED is fetched, and once the device is removed.
    fn device_of(&mut self, id: IdKey) -> Result<Nic, CreateError> {
        let device = self.on_device(id, |world, no| {
            let id = world.id(no)?;
            let (host, src) = (id.host, id.src.map(|src| src.ip()));
            Ok(world.device_at(host, src))
        });
        let device = device.map_err(CreateCall::DeviceOf.failed())?;
        Ok(Nic { fabric: self.fabric().clone(), device })
    }

    fn async_events(&mut self, nic: &Nic) -> Result<AsyncEvents, CreateError> {
        let is_there = nic.on_device(|_| Ok(()));
        let opened = is_there.and_then(|()| AsyncEvents::open(&nic.fabric, nic.device));
        opened.map_err(CreateCall::AsyncEvents.failed())
    }

    fn alloc_pd_on(&mut self, nic: &Nic) -> Result<Pd, CreateError> {
        let no = nic.on_device(|world| world.alloc_pd(nic.device)).map_err(CreateCall::AllocPd.failed())?;
        Ok(Pd { fabric: nic.fabric.clone(), device: nic.device, no })
    }

    /// The vector has no effect.
    fn create_cq_at(
        &mut self,
        nic: &Nic,
        channel: Option<&CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<Cq, CreateError> {
        let notices = match channel {
            None => Notices::of_one_cq().map_err(CreateReason::from),
            Some(channel) => {
                let of = (OfDevice::CompChannel, &channel.fabric, channel.device);
                of_device(&[of], &nic.fabric, nic.device).map(|()| channel.notices.clone())
            }
        };
        notices.and_then(|notices| nic.create_cq(notices, depth, vector)).map_err(CreateCall::CreateCq.failed())
    }

    fn create_comp_channel(&mut self, nic: &Nic) -> Result<CompChannel, CreateError> {
        let granted = nic.on_device(|world| world.grant(nic.device.host, Resource::CompChannel));
        let made = granted.and_then(|()| CompChannel::create(&nic.fabric, nic.device));
        made.map_err(CreateCall::CreateCompChannel.failed())
    }

    /// A datagram QP has the Q_Key 0x01234567 of the RDMA CM.
    ///
    /// # Errors
    /// [`CreateReason::TooLarge`] for more than 32 ranges or 512 inline bytes. `EINVAL` if the connection was refused, and
    /// for a listener for connections.
    fn make_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Pd,
        [send_cq, recv_cq]: [&Cq; 2],
        srq: Option<&Srq>,
        caps: Caps,
    ) -> Result<Qp, CreateError> {
        let made = self.on_device(attaching.id(), |world, no| {
            let state = world.id(no)?;
            let host = state.host;
            // The attributes of a datagram QP do not depend on what the IB CM does (`rdma_init_qp_attr`).
            let gives_init = match &state.conn {
                _ if state.is_datagram() => true,
                Some(conn) => conn.state.gives_init(),
                None => state.state != CmState::Listen,
            };
            let (space, has_qp, src) = (state.port_space, state.qp.is_some(), state.src.map(|src| src.ip()));
            let device = world.device_at(host, src);
            if world.is_iwarp(host) && space.service() == Service::Datagram {
                return Err(Errno::EOPNOTSUPP.into()); // as siw
            }
            // The library reports a capacity that no device has, then the room, then the objects.
            if let Some(reason) = world.maxima(host).qp(&caps) {
                return Err(reason);
            }
            // `siw_create_qp`
            if world.is_iwarp(host) && caps.max_send_wr == 0 {
                return Err(CreateReason::Zero(Capacity::MaxSendWr));
            }
            let given = [
                (OfDevice::Pd, &pd.fabric, pd.device),
                (OfDevice::SendCq, &send_cq.fabric, send_cq.device),
                (OfDevice::RecvCq, &recv_cq.fabric, recv_cq.device),
            ];
            of_device(&given, self.fabric(), device)?;
            if let Some(srq) = srq {
                of_device(&[(OfDevice::Srq, &srq.fabric, srq.device)], self.fabric(), device)?;
                if srq.pd != pd.no {
                    return Err(CreateReason::OtherPd);
                }
            }
            let mut pair = Pair::new(space.service(), pd.no, send_cq.no, recv_cq.no, caps);
            pair.srq = srq.map(|srq| srq.no);
            pair.order = if world.is_iwarp(host) { Order::OfTransport } else { Order::OfPosts };
            world.queues.fits(&pair)?;
            if has_qp {
                return Err(CreateReason::HasQp);
            }
            if !gives_init {
                return Err(Errno::EINVAL.into());
            }
            // Its queue key is that of an InfiniBand group (`cma_set_default_qkey`).
            if space == PortSpace::Ipoib {
                return Err(Errno::ENODEV.into());
            }
            world.grant(host, Resource::Qp)?;
            world.add_qp(no, host, pair)
        });
        let no = made.map_err(CreateCall::CreateQp.failed())?;
        Ok(Qp::new(self.fabric().clone(), no, caps))
    }

    /// While its handle exists, the QP is in its error state, which flushes what is posted. With the handle it is
    /// destroyed: the remaining completions are lost, as with libmlx5, or stay and pin memory until they are polled, as
    /// with soft-RoCE ([`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp)). If a window is bound
    /// through the QP ([`Mw`]), it is destroyed with the window.
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
        let no = self.id_no(id)?;
        self.fabric().with(|world| {
            let qp = world.id(no)?.qp.take().ok_or(Errno::EINVAL)?;
            world.detach_qp(qp);
            Ok(())
        })
    }
}

impl SimDevice {
    fn on_device<T>(
        &self,
        id: IdKey,
        action: impl FnOnce(&mut World, IdNo) -> Result<T, CreateReason>,
    ) -> Result<T, CreateReason> {
        let no = self.id_no(id)?;
        self.fabric().with(|world| {
            let state = world.id(no)?;
            if !state.verbs || state.removed {
                return Err(Errno::ENODEV.into());
            }
            action(world, no)
        })
    }
}

/// Checks that the objects of a new one are on its device.
fn of_device(objects: &[(OfDevice, &Fabric, DeviceNo)], fabric: &Fabric, device: DeviceNo) -> Result<(), CreateReason> {
    let elsewhere = objects.iter().find(|(_, of_fabric, of)| *of != device || !of_fabric.is(fabric));
    elsewhere
        .map_or(Ok(()), |&(object, _, of)| Err(CreateReason::OtherDevice { object, of: of.name(), on: device.name() }))
}

impl World {
    fn add_qp(&mut self, no: IdNo, host: HostNo, pair: Pair) -> Result<QpNo, CreateReason> {
        let numbers = self.hosts.get_mut(host.0).ok_or(Errno::ENODEV)?;
        let qp = QpNo { host, num: numbers.next_qp_num };
        numbers.next_qp_num = numbers.next_qp_num.checked_add(1).filter(|&num| num < 1 << 24).ok_or(Errno::ENOMEM)?;
        self.id(no)?;
        self.queues.reserve(qp, &pair)?;
        if let Err(reason) = self.count_qp(host, pair.pd) {
            self.queues.leave(qp, Some(&pair), true);
            return Err(reason);
        }
        let on_srq = pair.srq.is_some();
        self.queues.pairs.insert(qp, Box::new(pair));
        let id = self.id(no)?;
        (id.qp, id.on_srq) = (Some(qp), on_srq);
        // From now on the options of the QP are used. A device like rxe has none (`init_ece`).
        id.local_ece = Ece::default();
        Ok(qp)
    }

    /// Counts a new QP as a user of a domain.
    fn count_qp(&mut self, host: HostNo, pd: PdNo) -> Result<(), CreateReason> {
        self.acquire_pd(pd)?;
        Ok(self.memory.count_user(host, pd).inspect_err(|_| self.release_pd(pd))?)
    }
}
