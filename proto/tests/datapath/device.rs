//! The simulator behind a layer that changes nothing.

use std::os::fd::BorrowedFd;

use cmid_proto::{Acks, ChannelKey, DeviceLayer, Drive, IdKey, Limits, Pollable, PortSpace};
use cmid_sim::{Config, Fabric, SimDevice};

pub(crate) struct Layer(pub(crate) SimDevice);

impl DeviceLayer for Layer {
    cmid_proto::layer_on!(0: SimDevice);
}

impl Pollable for Layer {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.0.fd(on)
    }

    fn sibling(&self) -> Self {
        Layer(self.0.sibling())
    }
}

/// A drive on a host with an id that is bound.
pub(crate) fn bound() -> (Drive<Layer>, IdKey) {
    let host = Fabric::new(Config::default()).host(&["10.0.0.1".parse().unwrap()]);
    let mut drive = Drive::new(Layer(host.device()), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(id, "10.0.0.1:1".parse().unwrap()).unwrap();
    (drive, id)
}
