//! One host of the model of the kernel, as the device of a core.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, RawEvent};

use crate::kernel::Network;

/// One host as the device of a core.
#[derive(Debug)]
pub(crate) struct HostDevice {
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) host: usize,
    rng: fastrand::Rng,
    serial: [u8; 8],
}

impl HostDevice {
    pub(crate) fn new(network: &Rc<RefCell<Network>>, host: usize, rng: &mut fastrand::Rng) -> Self {
        HostDevice { network: Rc::clone(network), host, rng: rng.fork(), serial: [0; 8] }
    }
}

/// The serial number in the private data of an event; `None` for events of the core itself.
pub(crate) fn serial(private_data: &[u8]) -> Option<u64> {
    private_data.get(..8)?.try_into().ok().map(u64::from_le_bytes)
}

impl Device for HostDevice {
    type Handle = (IdKey, ChannelKey);

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let Some((unread, id)) = self.network.borrow_mut().fetch(self.host, on, child)? else { return Ok(None) };
        self.serial = unread.serial.to_le_bytes();
        let listener = unread.from.map(|_| unread.id);
        let mut raw = RawEvent::new(id, unread.kind);
        (raw.listener, raw.status, raw.group) = (listener, unread.status, unread.group);
        raw.private_data = &self.serial;
        Ok(Some(raw))
    }

    fn call(&mut self, call: &Call, _: &[u8]) -> Outcome {
        let mut network = self.network.borrow_mut();
        let outcome = network.call(self.host, call, &mut self.rng);
        network.log.push((self.host, *call, outcome));
        outcome
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EADDRNOTAVAIL)
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EADDRNOTAVAIL)
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        Ok((id, channel))
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, (old, old_channel): Self::Handle) -> Result<(), Errno> {
        self.network.borrow_mut().rename((self.host, old), id, (old_channel, channel));
        Ok(())
    }
}
