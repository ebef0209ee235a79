//! The kernel's connection manager, with QPs of libibverbs.

use core::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::datapath::{CreateReason, QpState};
use cmid_proto::{Call, ChannelKey, ConnParam, Device, Ece, Errno, IdKey, Outcome, Pollable, RawEvent, Transport};

use crate::data::{Context, Devices, Pd, QpDevice, QpInit, QpInner, QpPlace, ibv_qp_attr_of};
use crate::kernel::{KernelCm, KernelHandle, Location, OpenError};
use crate::raw;
use crate::sign::signed;

/// An id outside of any device.
pub(crate) type Handle = KernelHandle;

/// [`KernelCm`], and the devices of its ids.
pub(crate) struct KernelVerbs {
    cm: KernelCm,
    /// Shared with the siblings of the device.
    devices: Devices,
}

impl KernelVerbs {
    pub(crate) fn open() -> Result<Self, OpenError> {
        // The depth is not used: the limits of each device are set before a call needs them.
        Ok(KernelVerbs { cm: KernelCm::open(u8::MAX)?, devices: Devices::new().map_err(OpenError::Failed)? })
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        self.cm.counts()
    }

    pub(crate) fn set_aside(&self) -> (usize, usize) {
        self.cm.set_aside()
    }

    fn location(&mut self, id: IdKey) -> Result<Location, Errno> {
        self.cm.locate(id)?.copied().ok_or(Errno::ENODEV)
    }

    /// Returns the context of the id's device, and the port of the id.
    pub(crate) fn context(&mut self, id: IdKey) -> Result<(Arc<Context>, u8), Errno> {
        let location = self.location(id)?;
        Ok((self.devices.open(location)?, location.port))
    }

    pub(crate) fn qp_attr(&mut self, id: IdKey, state: QpState) -> Result<raw::QpAttr, Errno> {
        self.location(id)?;
        let attr = self.cm.init_qp_attr(id, state.0)?;
        Ok(raw::QpAttr::new(ibv_qp_attr_of(&attr), signed(attr.qp_attr_mask)))
    }

    pub(crate) fn create_qp(&mut self, id: IdKey, init: &QpInit<'_>) -> Result<Arc<QpInner>, Errno> {
        self.cm.create_qp(id, |location, datagrams| {
            let context = init.pd.context();
            if !context.is_at(location) {
                return Err(Errno::EINVAL);
            }
            let qp = QpInner::create_alone(QpPlace { verbs: context.verbs(), datagrams }, init)?;
            Ok((qp, context.limits()))
        })
    }

    /// Returns the device of an id, for the error of a QP on it.
    pub(crate) fn qp_device(&mut self, id: IdKey, pd: &Pd) -> Option<QpDevice> {
        let location = self.location(id).ok()?;
        let verbs = pd.context().is_at(&location).then(|| pd.context().verbs());
        Some(QpDevice { name: Devices::name(location)?, verbs, datagrams: self.cm.is_datagram(id) })
    }

    /// Returns the reason if an errno of [`KernelVerbs::context`] is that of the device's node.
    pub(crate) fn node_error(&mut self, id: IdKey, errno: Errno) -> Option<CreateReason> {
        Devices::node_error(self.location(id).ok()?, errno)
    }

    pub(crate) fn has_qp(&self, id: IdKey) -> bool {
        self.cm.has_qp(id)
    }

    pub(crate) fn destroy_qp(&mut self, id: IdKey) -> Outcome {
        self.cm.detach(id)
    }

    fn connect(&mut self, id: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let KernelVerbs { cm, devices } = self;
        cm.connect_within(id, param, private_data, |location| devices.limits(location))
    }

    fn accept(&mut self, id: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let KernelVerbs { cm, devices } = self;
        cm.accept_within(id, param, private_data, |location| devices.limits(location))
    }
}

impl Device for KernelVerbs {
    type Handle = Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let devices = &self.devices;
        self.cm.fetch_next(on, child, |location| devices.removed(location))
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Call::Connect { id, ref param } = *call {
            return self.connect(id, param, private_data);
        }
        if let Call::Accept { id, ref param } = *call {
            return self.accept(id, param, private_data);
        }
        self.cm.call(call, private_data)
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.cm.local_addr(id)
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.cm.peer_addr(id)
    }

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        self.cm.transport(id)
    }

    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        self.cm.remote_ece(id)
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Handle, Errno> {
        self.cm.release(id, channel)
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Handle) -> Result<(), Errno> {
        self.cm.adopt(id, channel, handle)
    }
}

impl Pollable for KernelVerbs {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.cm.fd(on)
    }

    fn sibling(&self) -> Self {
        KernelVerbs { cm: self.cm.sibling(), devices: self.devices.clone() }
    }
}
