//! Asynchronous events of a simulated device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEvent, AsyncEventQueue};

use crate::fabric::Fabric;
use crate::index::DeviceNo;
use crate::kernel::channel::new_eventfd;

/// The asynchronous events of a host's device: PORT_ERR and PORT_ACTIVE of [`Host::set_link`](crate::Host::set_link),
/// CQ_ERR of an overrun, SRQ_LIMIT_REACHED, QP_LAST_WQE_REACHED of a QP with an SRQ, DEVICE_FATAL of a removal. Each
/// reader of a device gets all of them.
#[derive(Debug)]
pub struct AsyncEvents {
    fabric: Fabric,
    no: u64,
    fd: Arc<OwnedFd>,
}

impl AsyncEvents {
    pub(crate) fn open(fabric: &Fabric, device: DeviceNo) -> Result<Self, Errno> {
        let fd = Arc::new(new_eventfd()?);
        let no = fabric.with(|world| world.async_readers.add(device, Arc::clone(&fd)));
        Ok(AsyncEvents { fabric: fabric.clone(), no, fd })
    }
}

impl AsyncEventQueue for AsyncEvents {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// # Errors
    /// None in the simulator.
    fn next_event(&mut self) -> Result<Option<AsyncEvent>, Errno> {
        Ok(self.fabric.with(|world| world.async_readers.take(self.no)))
    }
}

impl Drop for AsyncEvents {
    fn drop(&mut self) {
        self.fabric.with(|world| world.async_readers.remove(self.no));
    }
}
