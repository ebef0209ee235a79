//! Asynchronous events of a simulated device.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEvent, AsyncEventQueue};

use crate::fabric::Fabric;
use crate::index::DeviceNo;
use crate::kernel::signal::Signal;

/// The asynchronous events of a host's device: PORT_ERR and PORT_ACTIVE of [`Host::set_link`](crate::Host::set_link),
/// CQ_ERR of an overrun, SRQ_LIMIT_REACHED, QP_LAST_WQE_REACHED of a QP with an SRQ, DEVICE_FATAL of a removal. Each
/// reader of a device gets all of them.
#[derive(Debug)]
pub struct AsyncEvents {
    fabric: Fabric,
    no: u64,
    #[cfg_attr(not(unix), expect(dead_code, reason = "for its descriptor"))]
    signal: Arc<Signal>,
}

impl AsyncEvents {
    pub(crate) fn open(fabric: &Fabric, device: DeviceNo) -> Result<Self, Errno> {
        let signal = Arc::new(Signal::new()?);
        let no = fabric.with(|world| world.async_readers.add(device, Arc::clone(&signal)));
        Ok(AsyncEvents { fabric: fabric.clone(), no, signal })
    }
}

impl AsyncEventQueue for AsyncEvents {
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
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
