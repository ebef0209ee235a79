//! Device middleware on the simulator that may report an event twice and out of order, and can fail reads.

use std::collections::VecDeque;

use cmid_proto::{
    ChannelKey, CmEvent, Datagram, Device, DeviceLayer, Errno, GroupKey, IdKey, Outcome, RawEvent, ReceivedParam,
};
use cmid_sim::{SimDevice, SimHandle};

/// An event with private data of its own.
#[derive(Debug)]
struct Copied {
    on: ChannelKey,
    id: IdKey,
    kind: CmEvent,
    status: i32,
    param: ReceivedParam,
    datagram: Option<Datagram>,
    group: Option<GroupKey>,
    private_data: Vec<u8>,
}

/// The simulated device with repeated events and failing reads.
#[derive(Debug)]
pub(super) struct Unreliable {
    device: SimDevice,
    /// Duplicates every nth event, after the next one of its channel; 0 disables.
    every: usize,
    told: usize,
    again: VecDeque<Copied>,
    now: Option<Copied>,
    /// The number of next reads that fail.
    failing: usize,
}

impl Unreliable {
    pub(super) fn new(device: SimDevice) -> Self {
        Unreliable { device, every: 0, told: 0, again: VecDeque::new(), now: None, failing: 0 }
    }

    pub(super) fn confuse(&mut self, every: usize) {
        self.every = every;
    }

    /// Makes this number of next reads fail, on any channel.
    pub(super) fn fail_reads(&mut self, failing: usize) {
        self.failing = failing;
    }

    /// Selects the duplicate event of a channel; false if there is none.
    fn repeated(&mut self, on: ChannelKey) -> bool {
        let at = self.again.iter().position(|event| event.on == on);
        self.now = at.and_then(|at| self.again.remove(at));
        self.now.is_some()
    }
}

impl DeviceLayer for Unreliable {
    type Inner = SimDevice;
    type Handle = SimHandle;

    fn inner(&self) -> &SimDevice {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut SimDevice {
        &mut self.device
    }

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<'_>>, Errno> {
        if let Some(left) = self.failing.checked_sub(1) {
            self.failing = left;
            return Err(Errno::ENOMEM);
        }
        if self.told.is_multiple_of(2) && self.repeated(on) {
            self.told += 1;
            return Ok(self.now.as_ref().map(|copied| RawEvent {
                listener: None,
                status: copied.status,
                param: copied.param,
                datagram: copied.datagram,
                group: copied.group,
                private_data: &copied.private_data,
                ..RawEvent::new(copied.id, copied.kind)
            }));
        }
        let event = self.device.fetch(on, child)?;
        if let Some(event) = &event {
            self.told += 1;
            let chosen = self.every > 0 && self.told.is_multiple_of(self.every);
            // A request has a new id, which cannot be reported twice.
            if chosen && event.kind != CmEvent::ConnectRequest {
                self.again.push_back(Copied {
                    on,
                    id: event.id,
                    kind: event.kind,
                    status: event.status,
                    param: event.param,
                    datagram: event.datagram,
                    group: event.group,
                    private_data: event.private_data.to_vec(),
                });
            }
        }
        Ok(event)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<SimHandle, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: SimHandle) -> Outcome {
        self.device.adopt(id, channel, handle)
    }
}
