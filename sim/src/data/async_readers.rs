//! The readers of asynchronous events, and their unread events.

use std::collections::VecDeque;
use std::sync::Arc;

use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncSource};

use crate::index::DeviceNo;
use crate::kernel::signal::Signal;

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
