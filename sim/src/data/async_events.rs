//! Asynchronous events of a simulated device.

use std::collections::VecDeque;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource};

use crate::fabric::Fabric;
use crate::index::DeviceNo;
use crate::kernel::signal::Signal;

/// The asynchronous events of a host's device: PORT_ERR and PORT_ACTIVE of [`Host::set_link`](crate::Host::set_link),
/// CQ_ERR of an overrun, SRQ_LIMIT_REACHED, QP_LAST_WQE_REACHED of a QP with an SRQ as on soft-RoCE, QP_FATAL, QP_ACCESS_ERR,
/// QP_REQ_ERR and SQ_DRAINED as on soft-iWARP, DEVICE_FATAL of a removal. Each reader of a device gets all of them.
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

/// The unread events of a reader.
#[derive(Debug)]
pub(crate) struct Unread {
    no: u64,
    device: DeviceNo,
    events: VecDeque<AsyncEvent>,
    /// Of the handle.
    signal: Arc<Signal>,
}

/// The readers of all devices.
#[derive(Debug, Default)]
pub(crate) struct AsyncReaders {
    readers: Vec<Unread>,
    next: u64,
}

impl AsyncReaders {
    /// Adds a reader of a device. Returns its number.
    pub(crate) fn add(&mut self, device: DeviceNo, signal: Arc<Signal>) -> u64 {
        self.next += 1;
        self.readers.push(Unread { no: self.next, device, events: VecDeque::new(), signal });
        self.next
    }

    /// Takes the next event of a reader.
    pub(crate) fn take(&mut self, no: u64) -> Option<AsyncEvent> {
        let reader = self.readers.iter_mut().find(|reader| reader.no == no)?;
        let event = reader.events.pop_front();
        if reader.events.is_empty() {
            reader.signal.take();
        }
        event
    }

    /// Reports an event to the readers of a device.
    pub(crate) fn raise(&mut self, device: DeviceNo, kind: AsyncEventKind, source: AsyncSource) {
        for reader in self.readers.iter_mut().filter(|reader| reader.device == device) {
            reader.events.push_back(AsyncEvent { kind, source });
            reader.signal.raise();
        }
    }

    pub(crate) fn remove(&mut self, no: u64) {
        self.readers.retain(|reader| reader.no != no);
    }
}
