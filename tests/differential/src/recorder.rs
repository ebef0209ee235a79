//! A device layer that records the core's calls to the device.

use std::net::SocketAddr;

use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Errno, IdKey, Outcome, Pollable, RawEvent};

use crate::address::Numbers;
use crate::program::ChannelNo;
use crate::runner::BeforeRead;
use crate::trace::{Seen, address, contents_of, readable, result_of};

/// Added to channel numbers in the device's events, to distinguish them from the application's events.
pub(crate) const BELOW: ChannelNo = 100;

/// The device below a core, and the recorded lines.
pub(crate) struct Recorder<D> {
    pub(crate) device: D,
    pub(crate) seen: Vec<Seen>,
    /// The open channels, including private ones.
    pub(crate) channels: Vec<ChannelKey>,
    numbers: Numbers,
    before_read: BeforeRead,
}

impl<D: Device> Recorder<D> {
    pub(crate) fn new(device: D, numbers: Numbers, before_read: BeforeRead) -> Self {
        Recorder { device, seen: Vec::new(), channels: Vec::new(), numbers, before_read }
    }

    /// Formats a call, with addresses in the form that is compared.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others are written as they are")]
    fn text(&self, call: &Call) -> String {
        let at = |addr: SocketAddr| address(addr, self.numbers);
        match *call {
            Call::Bind { id, addr } => format!("device: bind {id} {}", at(addr)),
            Call::ResolveAddr { id, src, dst, timeout_ms } => {
                format!("device: resolve_addr {id} {:?} {} {timeout_ms}", src.map(at), at(dst))
            }
            // Omits the parameters, which are the application's or those of the peer's event.
            Call::Connect { id, .. } => format!("device: connect {id}"),
            Call::Accept { id, .. } => format!("device: accept {id}"),
            ref other => format!("device: {other:?}"),
        }
    }
}

impl<D: Pollable> DeviceLayer for Recorder<D> {
    cmid_proto::layer_on!(device: D);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        (self.before_read)();
        let channel = BELOW.saturating_add(on.slot() as ChannelNo);
        self.seen.push(readable(&self.device, on, channel));
        let fetched = self.device.fetch(on, child);
        if let Ok(Some(raw)) = &fetched {
            let rest = contents_of(raw, self.numbers);
            let (kind, id) = (raw.kind.to_string(), raw.id.to_string());
            self.seen.push(Seen::Event { channel, kind, status: raw.status, id, rest });
        }
        fetched
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        let result = self.device.call(call, private_data);
        let text = self.text(call);
        self.seen.push(Seen::Call { name: call.name(), text, result: result_of(&result) });
        if let Call::OpenChannel { channel } = *call
            && result.is_ok()
        {
            self.channels.push(channel);
        }
        if let Call::CloseChannel { channel } = *call {
            self.channels.retain(|&open| open != channel);
        }
        result
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<<Self::Inner as Device>::Handle, Errno> {
        self.channels.retain(|&open| open != channel);
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: <Self::Inner as Device>::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        self.channels.push(channel);
        Ok(())
    }
}
