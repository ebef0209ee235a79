//! The loop: deadlines, calls and reads, and the next action.

use super::{Drive, Observer, Poller, Step, StepRecord};
use crate::device::Device;
use crate::errno::Errno;
use crate::error::Fault;
use crate::event::Event;
use crate::key::{ChannelKey, IdKey};
use crate::machine::{Admitted, NextOf};
use crate::time::Time;

/// The maximum number of reads in one [`Drive::next_event`] that find an event which is not delivered.
const READS_MAX: usize = 64;

/// The next action of a driver after [`Drive::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Next {
    /// Run the application before blocking: [`Drive::next_event`] may return an event, a synchronous request has ended, or
    /// a read has failed ([`Drive::next_fault`]). The result is the same until the events are taken, except for those of
    /// ids in synchronous mode: each of them is reported once.
    Deliver,
    /// The budget is used up, or a read is to be repeated: let other tasks run, then call [`Drive::run`] again.
    Again,
    /// Block until a channel is readable or this deadline has come.
    Wait(Option<Time>),
}

/// What came of the read of a private channel.
#[derive(PartialEq, Eq)]
enum Read {
    Event,
    /// No event, or no room for one.
    Nothing,
    /// The read failed and is to be repeated in the next turn.
    Failed,
}

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Whether a turn has work now.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.core.has_work() || self.is_due()
    }

    /// Returns the nearest deadline.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.core.poll_timeout().map(|(due, _)| due)
    }

    /// Makes one turn of the loop and returns the next action: the part of every driver's loop that does not wait. It
    /// handles deadlines, makes the calls that are due, and reads the channels that no application reads: those of
    /// listeners and of ids in synchronous mode. It reads at most `budget` events; a failed read counts, and so does the
    /// destruction of a listener's child. Each channel is read once; then the turn ends if the result is
    /// [`Next::Deliver`]. [`next_event`](Drive::next_event) reads the other channels.
    pub fn run(&mut self, budget: usize) -> Next {
        if self.is_due() {
            self.core.handle_timeout(self.outside.now.get());
            self.record(Step::Timeout);
        }
        self.follow();
        let is_left = self.core.has_private_work() && self.read_private(budget);
        while let Some(channel) = self.core.unwanted() {
            self.begin_read(channel);
        }
        let activity = self.core.activity();
        let next = if core::mem::replace(&mut self.activity_seen, activity) != activity || self.core.has_deliverable() {
            Next::Deliver
        } else if is_left && self.core.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        };
        self.record(Step::Yield);
        next
    }

    /// Returns the next action without a turn.
    pub fn next_action(&self) -> Next {
        if self.has_to_deliver() {
            Next::Deliver
        } else if self.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        }
    }

    fn has_to_deliver(&self) -> bool {
        self.core.has_deliverable() || self.activity_seen != self.core.activity()
    }

    /// Destroys children of listeners and reads private channels. Returns false if no work is left.
    fn read_private(&mut self, budget: usize) -> bool {
        let (mut left, mut unread, mut unreadable) = (budget, self.core.private_readable(), None);
        while left > 0 {
            let served = self.destroy_child();
            left -= usize::from(served);
            if left == 0 || (!served && unread == 0 && self.has_to_deliver()) {
                break;
            }
            match self.core.next_private() {
                None if served => {}
                None => return false,
                Some(channel) if unreadable == Some(channel) => break,
                Some(channel) => {
                    unread = unread.saturating_sub(1);
                    let read = self.read(channel);
                    left -= usize::from(read != Read::Nothing);
                    if read == Read::Failed {
                        unreadable = unreadable.or(Some(channel));
                    }
                }
            }
        }
        true
    }

    /// Returns the next event of a channel: the oldest undelivered one, else one that is read from the device, if the
    /// channel is marked as readable. An application may take any number of events per turn: the others are reported again.
    ///
    /// With a level-triggered poller a channel is read once per report; more events make it readable again. Otherwise it
    /// stays marked until a read finds no event.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_event(&mut self, on: ChannelKey) -> Option<Event> {
        for _ in 0..READS_MAX {
            match self.core.next_of(on) {
                NextOf::Event => {
                    let event = self.core.poll_event(on);
                    if let Some(event) = &event {
                        self.record(Step::Deliver { channel: on, event });
                    }
                    return event;
                }
                NextOf::Nothing => return None,
                NextOf::Read => {}
            }
            let child = self.begin_read(on)?;
            self.outside.arm(on);
            // Used in place: an event is large.
            let read = self.outside.device.fetch(on, child);
            let raw = match &read {
                Ok(raw) => raw.as_ref()?,
                Err(errno) => {
                    let errno = *errno;
                    self.read_failed(on, errno);
                    return None;
                }
            };
            let admitted = self.core.admit(on, raw, Some(on));
            let (result, reads_on) = (admitted.result(raw), !self.outside.poller.is_level_triggered());
            let step = Step::Event { channel: on, event: *raw, to: Some(on), result, reads_on };
            self.outside.observer.step(&StepRecord { now: self.outside.now.get(), core: &self.core, step });
            match admitted {
                Admitted::Next(of, ack_token) if raw.is_bare() => {
                    let event = raw.bare(of, ack_token);
                    self.end_delivery(on, &event);
                    return Some(event);
                }
                Admitted::Next(of, ack_token) => {
                    let event = raw.whole(of, ack_token);
                    event.as_ref().inspect(|event| self.end_delivery(on, event));
                    return event;
                }
                Admitted::Other(result) => {
                    self.end_read(on, result.map(drop));
                    self.follow();
                }
            }
        }
        None
    }

    /// Reads a private channel once. Its event is not taken from it by the application.
    fn read(&mut self, channel: ChannelKey) -> Read {
        let Some(child) = self.begin_read(channel) else { return Read::Nothing };
        self.outside.arm(channel);
        let raw = match self.outside.device.fetch(channel, child) {
            Ok(Some(raw)) => raw,
            Ok(None) => return Read::Nothing,
            Err(errno) => return self.read_failed(channel, errno),
        };
        let result = self.core.handle_event(channel, raw);
        let reads_on = !self.outside.poller.is_level_triggered();
        let step = Step::Event { channel, event: raw, to: None, result, reads_on };
        self.outside.observer.step(&StepRecord { now: self.outside.now.get(), core: &self.core, step });
        self.end_read(channel, result.map(drop));
        self.follow();
        Read::Event
    }

    /// Begins a read of a channel. Returns the key for a child if the core takes an event of it.
    fn begin_read(&mut self, channel: ChannelKey) -> Option<IdKey> {
        let child = self.core.begin_read(channel);
        self.record(Step::BeginRead { channel, child });
        if child.is_none() {
            self.park(channel);
        }
        child
    }

    /// What follows the admission of an event that is delivered.
    fn end_delivery(&mut self, channel: ChannelKey, event: &Event) {
        self.end_read(channel, Ok(()));
        self.record(Step::Deliver { channel, event });
        self.follow();
    }

    /// What follows the admission of an event.
    fn end_read(&mut self, channel: ChannelKey, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.note(fault);
        }
        if !self.outside.poller.is_level_triggered() {
            self.core.handle_readable(channel);
        }
    }

    /// Handles a channel that takes no event. A channel that is closed is ignored.
    #[cold]
    pub(super) fn park(&mut self, channel: ChannelKey) {
        if self.core.channel_info(channel).is_some() {
            self.outside.leave_unread(channel);
            self.core.wait_for_room(channel);
            self.record(Step::WaitForRoom { channel });
        }
    }

    /// Handles a failed read.
    #[cold]
    fn read_failed(&mut self, channel: ChannelKey, errno: Errno) -> Read {
        let again = self.core.handle_unreadable(channel);
        self.record(Step::Unreadable { channel, errno });
        self.note(Fault::Read { channel, errno });
        if again {
            return Read::Failed;
        }
        self.park(channel);
        self.note(Fault::Channel { channel, errno });
        Read::Nothing
    }

    fn is_due(&self) -> bool {
        self.core.poll_timeout().is_some_and(|(due, _)| due <= self.outside.now.get())
    }
}
