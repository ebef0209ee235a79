//! The data path of a device layer: forwards to the inner device.

use super::{Caps, CreateError, DataPath};
use crate::device::Pollable;
use crate::device_layer::DeviceLayer;
use crate::drive::Attaching;
use crate::errno::Errno;
use crate::key::IdKey;

impl<L: DeviceLayer<Inner: DataPath> + Pollable + Send + ?Sized> DataPath for L {
    type Pd = <L::Inner as DataPath>::Pd;
    type Mr = <L::Inner as DataPath>::Mr;
    type Mw = <L::Inner as DataPath>::Mw;
    type Cq = <L::Inner as DataPath>::Cq;
    type CompChannel = <L::Inner as DataPath>::CompChannel;
    type Qp = <L::Inner as DataPath>::Qp;
    type Ah = <L::Inner as DataPath>::Ah;
    type Srq = <L::Inner as DataPath>::Srq;
    type Piece = <L::Inner as DataPath>::Piece;
    type Nic = <L::Inner as DataPath>::Nic;
    type AsyncEvents = <L::Inner as DataPath>::AsyncEvents;

    fn device_of(&mut self, id: IdKey) -> Result<Self::Nic, CreateError> {
        self.inner_mut().device_of(id)
    }

    fn async_events(&mut self, nic: &Self::Nic) -> Result<Self::AsyncEvents, CreateError> {
        self.inner_mut().async_events(nic)
    }

    fn alloc_pd_on(&mut self, nic: &Self::Nic) -> Result<Self::Pd, CreateError> {
        self.inner_mut().alloc_pd_on(nic)
    }

    fn create_cq_at(
        &mut self,
        nic: &Self::Nic,
        channel: Option<&Self::CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<Self::Cq, CreateError> {
        self.inner_mut().create_cq_at(nic, channel, depth, vector)
    }

    fn create_comp_channel(&mut self, nic: &Self::Nic) -> Result<Self::CompChannel, CreateError> {
        self.inner_mut().create_comp_channel(nic)
    }

    fn make_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        cqs: [&Self::Cq; 2],
        srq: Option<&Self::Srq>,
        caps: Caps,
    ) -> Result<Self::Qp, CreateError> {
        self.inner_mut().make_qp(attaching, pd, cqs, srq, caps)
    }

    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
        self.inner_mut().destroy_qp(id)
    }
}
