//! What a drive has besides its core: the device, the poller of its channels, the observer, the time.

use core::cell::Cell;

use super::{Observer, Poller, Step, StepRecord};
use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::error::Error;
use crate::key::{ChannelKey, IdKey};
use crate::key_table::KeyTable;
use crate::machine::{Begun, Core, Progress};
use crate::time::Time;

/// It makes the calls while a request borrows the core.
#[derive(Debug)]
pub(super) struct Outside<D, P, O> {
    pub(super) device: D,
    pub(super) poller: P,
    pub(super) observer: O,
    /// Channels that are disarmed until they are read.
    disarmed: KeyTable<ChannelKey, ()>,
    /// The id that was migrated last, and its new channel, which may have events without a wake-up. Cleared when the
    /// channel is read. Also cleared when the id is accepted, because the id of a request has no events before its
    /// accept.
    moved: Option<(IdKey, ChannelKey)>,
    pub(super) now: Cell<Time>,
}

impl<D: Device, P: Poller<D>, O: Observer> Outside<D, P, O> {
    pub(super) fn new(device: D, poller: P, observer: O) -> Self {
        Outside { device, poller, observer, disarmed: KeyTable::default(), moved: None, now: Cell::new(Time::ZERO) }
    }

    /// Reports a step to the observer.
    pub(super) fn record(&mut self, core: &Core, step: Step<'_>) {
        self.observer.step(&StepRecord { now: self.now.get(), core, step });
    }

    /// Makes the calls of a request, one after the other.
    #[inline(always)]
    pub(super) fn make_calls(&mut self, mut begun: Begun<'_, '_>) -> Result<Progress, Error> {
        loop {
            let call = begun.call();
            let outcome = match &call {
                Some(call) => {
                    let private_data = begun.private_data();
                    self.record(begun.core(), Step::Call { call, private_data });
                    self.call(call, private_data)
                }
                None => Ok(()),
            };
            let made = begun.advance(outcome);
            if let Some(call) = &call {
                let fault = made.as_ref().err().and_then(Error::fault);
                self.record(begun.core(), Step::Outcome { call, outcome, fault });
            }
            if let Some(progress) = made? {
                return Ok(progress);
            }
        }
    }

    /// Makes a call on the device, and registers the channel that it opens.
    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Call::CloseChannel { channel } = *call {
            self.unregister(channel);
        } else if let Call::Accept { id, .. } = *call {
            // The id of a request has no events before it is accepted (`ucma_event_handler`), so its migration has moved none.
            self.moved = self.moved.filter(|&(moved, _)| moved != id);
        }
        self.device.call(call, private_data)?;
        if let Call::OpenChannel { channel } = *call {
            self.poller.add(channel, &self.device).inspect_err(|_| {
                // A channel that is not registered would never be read. It was just opened and has no events. If the close
                // fails too, nothing more can be done.
                let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
            })?;
        } else if let (Call::Migrate { id, to, .. }, true) = (*call, self.poller.is_level_triggered()) {
            // A disarmed channel is armed when it is read.
            let before = self.moved.replace((id, to)).filter(|(_, before)| !self.is_disarmed(*before));
            before.into_iter().for_each(|(_, before)| self.poller.arm(before, &self.device));
        }
        Ok(())
    }

    /// Arms a channel that is read next, so that later events are reported.
    pub(super) fn arm(&mut self, on: ChannelKey) {
        if self.is_disarmed(on) || self.moved.is_some() {
            self.arm_again(on);
        }
    }

    #[cold]
    fn arm_again(&mut self, on: ChannelKey) {
        if self.disarmed.remove(on).is_some() {
            self.poller.arm(on, &self.device);
        }
        if self.moved.is_some_and(|(_, to)| to == on) {
            self.moved = None;
            self.poller.arm(on, &self.device);
        }
    }

    /// Disarms a channel that has events and is not read now: the core has no room for it, or it is paused.
    pub(super) fn leave_unread(&mut self, channel: ChannelKey) {
        // Without memory for it, it is reported again.
        let is_armed = self.poller.is_level_triggered() && !self.is_disarmed(channel);
        if is_armed && self.disarmed.reserve(channel).is_ok() && self.disarmed.insert(channel, ()).is_ok() {
            self.poller.disarm(channel, &self.device);
        }
    }

    fn is_disarmed(&self, channel: ChannelKey) -> bool {
        self.disarmed.get_filed(channel).is_some()
    }

    /// Removes a channel from the poller that is closed or released next.
    pub(super) fn unregister(&mut self, channel: ChannelKey) {
        self.disarmed.remove(channel);
        self.moved = self.moved.filter(|&(_, to)| to != channel);
        self.poller.remove(channel, &self.device);
    }

    /// Adopts a released id and registers its channel.
    pub(super) fn register(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        self.poller.add(channel, &self.device).inspect_err(|_| self.discard(id, channel))
    }

    /// Destroys an id that only the device has, and its channel. If that fails, nothing more can be done.
    pub(super) fn discard(&mut self, id: IdKey, channel: ChannelKey) {
        let _ = self.device.call(&Call::Destroy { id }, &[]);
        let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
    }
}
