//! A layer over the simulator's device. It may deliver an event twice or out of order, and its reads may fail.

use std::collections::VecDeque;

use cmid_proto::{ChannelKey, CmEvent, Device, DeviceLayer, Errno, IdKey, RawEvent};
use cmid_sim::SimDevice;

/// An event that the device has reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) owner: IdKey,
    pub(super) id: IdKey,
    pub(super) kind: CmEvent,
    pub(super) status: i32,
}

/// The simulated device, with repeated events and failing reads.
#[derive(Debug)]
pub(super) struct Unreliable {
    device: SimDevice,
    /// Every `every`-th event is delivered once more, after the next one of its channel. 0: none.
    every: usize,
    delivered: usize,
    again: VecDeque<(ChannelKey, RawEvent<Vec<u8>>)>,
    now: Option<RawEvent<Vec<u8>>>,
    /// The number of the next reads that fail.
    failing: usize,
    /// What was reported since this was last taken.
    pub(super) reported: Vec<Reported>,
}

impl Unreliable {
    pub(super) fn new(device: SimDevice) -> Self {
        Unreliable {
            device,
            every: 0,
            delivered: 0,
            again: VecDeque::new(),
            now: None,
            failing: 0,
            reported: Vec::new(),
        }
    }

    pub(super) fn confuse(&mut self, every: usize) {
        self.every = every;
    }

    /// The next `failing` reads fail, of any channel.
    pub(super) fn fail_reads(&mut self, failing: usize) {
        self.failing = failing;
    }

    /// Takes the next event of `on` that is to be delivered once more.
    fn repeated(&mut self, on: ChannelKey) -> bool {
        let at = self.again.iter().position(|&(channel, _)| channel == on);
        self.now = at.and_then(|at| self.again.remove(at)).map(|(_, event)| event);
        self.now.is_some()
    }
}

impl DeviceLayer for Unreliable {
    cmid_proto::layer_on!(device: SimDevice);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        if let Some(left) = self.failing.checked_sub(1) {
            self.failing = left;
            return Err(Errno::ENOMEM);
        }
        if self.delivered.is_multiple_of(2) && self.repeated(on) {
            self.delivered += 1;
            return Ok(self.now.as_ref().map(RawEvent::as_deref));
        }
        let event = self.device.fetch(on, child)?;
        if let Some(event) = &event {
            self.delivered += 1;
            let (id, kind, status) = (event.id, event.kind, event.status);
            self.reported.push(Reported { owner: event.listener.unwrap_or(id), id, kind, status });
            let chosen = self.every > 0 && self.delivered.is_multiple_of(self.every);
            // A request brings an id, which cannot come twice.
            if chosen && event.kind != CmEvent::ConnectRequest {
                self.again.push_back((on, event.map_private_data(<[u8]>::to_vec)));
            }
        }
        Ok(event)
    }
}
