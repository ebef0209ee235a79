//! Turns of the loop: deadlines, calls and reads, and the next action.

use super::{Drive, Step, make};
use crate::call::Call;
use crate::device::Device;
use crate::errno::Errno;
use crate::error::{Error, Fault};
use crate::key::ChannelKey;
use crate::private_data::PrivateData;
use crate::time::Time;

/// The work left after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Turn {
    /// No work: wait for a channel or for the next deadline.
    Idle,
    /// The budget is used up, or a read failed and is to be repeated: make another turn.
    More,
}

/// The next action of a driver after [`Drive::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Next {
    /// Run the application before blocking: an event is deliverable, a synchronous request has ended, or a read has
    /// failed ([`Drive::next_fault`]). Events that the application does not take are not reported again.
    Deliver,
    /// The budget is used up, or a read is to be repeated: let other tasks run, then call [`Drive::run`] again.
    Again,
    /// Block until a channel is readable or this deadline has come.
    Wait(Option<Time>),
}

impl<D: Device> Drive<D> {
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

    /// Makes one turn of the loop: deadlines, calls, and at most `budget` events of the readable channels. A failed
    /// read counts against the budget, and so does the destruction of a listener's child.
    pub fn turn(&mut self, budget: usize) -> Turn {
        if self.take_turn(budget, false) && self.core.has_work() { Turn::More } else { Turn::Idle }
    }

    /// Makes a turn. Returns false if no work is left. With `to_look`, the turn ends when each channel was read once
    /// and an event can be delivered.
    fn take_turn(&mut self, budget: usize, to_look: bool) -> bool {
        if self.is_due() {
            self.core.handle_timeout(self.now.get());
            self.record(Step::Timeout);
        }
        self.make_following();
        let (mut left, mut unread, mut unreadable) = (budget, self.core.readable_channels(), None);
        while left > 0 {
            let served = self.serve_child();
            left -= usize::from(served);
            if left == 0 || unreadable.is_some_and(|channel| self.core.is_first(channel)) {
                break;
            }
            if to_look && !served && unread == 0 && self.activity_seen != self.core.activity() {
                break;
            }
            match self.core.poll_readable() {
                Some(channel) => {
                    unread = unread.saturating_sub(1);
                    if self.read(channel, &mut left, to_look) {
                        unreadable = unreadable.or(Some(channel));
                    }
                }
                None if served => {}
                None => return false,
            }
        }
        true
    }

    /// Makes the call for one of the ids that are destroyed after their listener. Returns false if there is none.
    fn serve_child(&mut self) -> bool {
        let child = self.core.next_child().and_then(|begun| begun.call());
        let Some(Call::Destroy { id }) = child else { return false };
        let Drive { core, device, now, .. } = self;
        let step = Some(Step::Child { id });
        let made = make(device, now.get(), core, step, |core| core.next_child().ok_or(()));
        if let Ok(Err(Error::Fault(fault))) = made {
            self.note(fault);
        }
        self.make_following();
        true
    }

    /// Makes one turn and returns the next action: the part of every driver's loop that does not wait. Unlike
    /// [`turn`](Drive::turn), it ends as soon as each readable channel was read once and the result is
    /// [`Next::Deliver`]: events are delivered before a channel is read again.
    pub fn run(&mut self, budget: usize) -> Next {
        let has_work = self.has_work();
        // An observing device gets a step at the end of each turn.
        if !D::OBSERVES && !has_work && self.activity_seen == self.core.activity() {
            return Next::Wait(self.next_timeout());
        }
        self.run_work(budget, has_work)
    }

    fn run_work(&mut self, budget: usize, has_work: bool) -> Next {
        let may_be_left = has_work && self.take_turn(budget, true);
        let rest = self.rest(may_be_left);
        self.record(Step::Yield);
        rest
    }

    /// Returns the next action after a turn, and records the activity as reported.
    fn rest(&mut self, may_be_left: bool) -> Next {
        let activity = self.core.activity();
        if core::mem::replace(&mut self.activity_seen, activity) != activity {
            Next::Deliver
        } else if may_be_left && self.core.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        }
    }

    /// Returns the next action without a turn.
    pub fn next_action(&self) -> Next {
        if self.activity_seen != self.core.activity() {
            Next::Deliver
        } else if self.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        }
    }

    /// Reads a channel. With a level-triggered poller it reads one event: more events make the channel readable again.
    /// Otherwise the next event is read at once if no other channel is to be read, no call is to be made, and the turn
    /// does not end; if not, the channel is queued behind the others. Returns true if a read failed and the channel is
    /// to be read again in the next turn.
    fn read(&mut self, channel: ChannelKey, left: &mut usize, to_look: bool) -> bool {
        loop {
            let child = self.core.wants_event(channel);
            self.record(Step::WantsEvent { channel, child });
            let Some(child) = child else {
                self.is_not_wanted(channel);
                return false;
            };
            match self.device.fetch(channel, child) {
                Ok(Some(raw)) => {
                    // The event borrows from the device, so `observe` needs a copy.
                    let copied = D::OBSERVES.then(|| raw.map_private_data(PrivateData::copy_of));
                    let result = self.core.handle_event(channel, raw);
                    if let Some(copied) = copied {
                        let reads_on = !D::LEVEL_TRIGGERED;
                        self.record(Step::Event { channel, event: copied.as_deref(), result, reads_on });
                    }
                    if let Err(fault) = result {
                        self.note(fault);
                    }
                    *left -= 1;
                    if D::LEVEL_TRIGGERED {
                        self.make_following();
                        return false;
                    }
                    let is_to_look = to_look && self.activity_seen != self.core.activity();
                    if *left == 0 || is_to_look || !self.core.is_next(channel) {
                        // Queued behind the other channels, so that a busy channel does not delay them.
                        self.core.handle_readable(channel);
                        self.make_following();
                        return false;
                    }
                }
                Ok(None) => return false,
                Err(errno) => {
                    *left -= 1;
                    return self.is_unreadable(channel, errno);
                }
            }
        }
    }

    /// Handles a channel that takes no event. A channel that is closed is ignored.
    fn is_not_wanted(&mut self, channel: ChannelKey) {
        if self.core.has_channel(channel) {
            self.device.leave_unread(channel);
            self.core.wait_for_room(channel);
            self.record(Step::WaitForRoom { channel });
        }
    }

    /// Handles a failed read. Returns whether the channel is to be read again.
    #[cold]
    fn is_unreadable(&mut self, channel: ChannelKey, errno: Errno) -> bool {
        let again = self.core.handle_unreadable(channel);
        self.record(Step::Unreadable { channel, errno });
        self.note(Fault::Read { channel, errno });
        if !again {
            self.note(Fault::Channel { channel, errno });
        }
        again
    }

    fn is_due(&self) -> bool {
        self.core.poll_timeout().is_some_and(|(due, _)| due <= self.now.get())
    }
}
