//! The committed recordings, and a device that reports what it is given.
#![allow(clippy::unwrap_used, dead_code, reason = "of tests, each of which uses a part")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

use cmid_proto::{Call, ChannelKey, CmEvent, Device, Ece, Errno, IdKey, Outcome, RawEvent};
use cmid_trace::Recording;

/// Recorded in the VM, on Linux 6.12: client, server, and the driver that adopts the server's id.
pub(crate) const KERNEL: &str = "linux-6.12";
/// The same on the simulator.
pub(crate) const SIM: &str = "sim";

/// The texts of one recording: FILE, FILE.2, FILE.3.
pub(crate) fn texts(name: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let names = [name.to_owned(), format!("{name}.2"), format!("{name}.3")];
    names.iter().map(|name| std::fs::read_to_string(directory.join(name)).unwrap()).collect()
}

pub(crate) fn recordings(name: &str) -> Vec<Recording> {
    texts(name).iter().map(|text| Recording::read(text.as_bytes()).unwrap()).collect()
}

/// What a read finds: an event of an id, or an error.
type Found = Result<(IdKey, CmEvent), Errno>;

/// A device that reports the given events of ids, or fails a read. One call may fail, and no id is released.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) events: VecDeque<(ChannelKey, Found)>,
    pub(crate) calls: usize,
    /// The number of the call that fails, from 1.
    pub(crate) fails: usize,
}

impl Device for Given {
    type Handle = ();

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let is_next = self.events.front().is_some_and(|(channel, _)| *channel == on);
        let event = if is_next { self.events.pop_front() } else { None };
        Ok(event.map(|(_, event)| event).transpose()?.map(|(id, kind)| match kind == CmEvent::ConnectRequest {
            true => RawEvent { listener: Some(id), private_data: &b"let me in\0\0"[..], ..RawEvent::new(child, kind) },
            false => RawEvent::new(id, kind),
        }))
    }
    fn call(&mut self, _: &Call, _: &[u8]) -> Outcome {
        self.calls += 1;
        if self.calls == self.fails { Err(Errno::EIO) } else { Ok(()) }
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
    fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn adopt(&mut self, _: IdKey, _: ChannelKey, (): ()) -> Outcome {
        Ok(())
    }
}
