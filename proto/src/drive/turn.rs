//! Turns of the loop: deadlines, calls and reads, and what to do next.

use super::{Drive, Step};
use crate::device::Device;
use crate::errno::Errno;
use crate::error::Fault;
use crate::key::ChannelKey;
use crate::machine::Read;
use crate::private_data::PrivateData;
use crate::time::Time;

/// What is left to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Turn {
    /// Nothing: wait for a channel or for the next deadline.
    Idle,
    /// The budget is used up, or a read failed and is to be tried again: turn again.
    More,
}

/// What a driver may do after [`Drive::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Next {
    /// The application has something to look at that it was not told of before: an event, the end of a synchronous request, or
    /// a read that failed ([`Drive::next_fault`]). Do not sleep. Events that it leaves untaken are no reason to look again.
    Deliver,
    /// The budget is used up, or a read is to be tried again: let others run, then settle again.
    Again,
    /// Sleep until a channel is readable or this deadline has come.
    Wait(Option<Time>),
}

impl<D: Device> Drive<D> {
    /// Whether a turn would do something without waiting for anything.
    #[must_use]
    #[inline]
    pub fn has_work(&self) -> bool {
        self.core.has_work() || self.is_due()
    }

    /// The nearest deadline.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.core.poll_timeout().map(|(due, _)| due)
    }

    /// One turn of the loop: deadlines, calls, and at most `budget` events off the channels that are readable. A read that
    /// fails counts against the budget as well, and so does an id that is destroyed after its listener.
    pub fn turn(&mut self, budget: usize) -> Turn {
        if self.take_turn(budget, false) && self.core.has_work() { Turn::More } else { Turn::Idle }
    }

    /// Returns false if nothing is left to do. `to_look`: ends once each channel was read, if an event can be delivered.
    #[inline]
    pub(super) fn take_turn(&mut self, budget: usize, to_look: bool) -> bool {
        if !D::OBSERVES && D::LEVEL_TRIGGERED && budget > 0 {
            let Drive { core, device, now, .. } = self;
            match core.read_short(now.get(), |channel, child| device.fetch(channel, child)) {
                Some(Read::Done) => return false,
                Some(read) => return self.go_on(read, budget - 1, to_look),
                None => {}
            }
        }
        self.take_any_turn(budget, to_look)
    }

    /// What the long path does after a read.
    #[inline(never)]
    fn go_on(&mut self, read: Read, left: usize, to_look: bool) -> bool {
        let unreadable = match read {
            Read::Done => None,
            Read::Taken(result) => {
                if let Err(fault) = result {
                    self.note(fault);
                }
                self.make_calls();
                None
            }
            Read::Failed(channel, errno) => self.is_unreadable(channel, errno).then_some(channel),
        };
        self.serve(left, to_look, 0, unreadable)
    }

    #[inline(never)]
    pub(super) fn take_any_turn(&mut self, budget: usize, to_look: bool) -> bool {
        let is_due = D::OBSERVES && self.is_due();
        self.core.handle_timeout(self.now.get());
        if is_due {
            self.record(Step::Timeout);
        }
        self.make_calls();
        let unread = self.core.readable_channels();
        self.serve(budget, to_look, unread, None)
    }

    /// The reads and the children of a turn.
    #[inline(never)]
    fn serve(&mut self, mut left: usize, to_look: bool, mut unread: usize, mut unreadable: Option<ChannelKey>) -> bool {
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

    /// Makes the call for one of the ids that are to be destroyed after their listener; false if there is none.
    fn serve_child(&mut self) -> bool {
        let Some(id) = self.core.poll_child() else { return false };
        self.record(Step::Child { id });
        self.make_calls();
        true
    }

    /// One turn, and what to do next: the part of every driver's loop that is not waiting. Other than [`turn`](Drive::turn) it
    /// ends as soon as the application has something to look at and each readable channel was read once: events are
    /// delivered before a channel is read again.
    #[inline]
    pub fn run(&mut self, budget: usize) -> Next {
        let has_work = self.has_work();
        // An observing device gets the end of each turn.
        if !D::OBSERVES && !has_work && self.activity_seen == self.core.activity() {
            return Next::Wait(self.next_timeout());
        }
        self.run_work(budget, has_work)
    }

    #[inline(never)]
    fn run_work(&mut self, budget: usize, has_work: bool) -> Next {
        let may_be_left = has_work && self.take_turn(budget, true);
        let rest = if self.activity_seen != self.core.activity() {
            Next::Deliver
        } else if may_be_left && self.core.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        };
        self.activity_seen = self.core.activity();
        self.record(Step::Yield);
        rest
    }

    /// What to do now, without a turn.
    pub fn next_action(&self) -> Next {
        if self.activity_seen != self.core.activity() {
            Next::Deliver
        } else if self.has_work() {
            Next::Again
        } else {
            Next::Wait(self.next_timeout())
        }
    }

    /// Reads a channel: one event. Where what is left there does not make it readable again, it is to be read on: now, as long
    /// as no other channel is to be read, there is no call to make and `to_look` does not give the application its turn.
    /// True: a read failed, and the channel is to be read again in the next turn.
    #[inline]
    fn read(&mut self, channel: ChannelKey, left: &mut usize, to_look: bool) -> bool {
        loop {
            let child = self.core.wants_event(channel);
            self.record(Step::Look { channel, child });
            let Some(child) = child else {
                self.is_not_wanted(channel);
                return false;
            };
            match self.device.fetch(channel, child) {
                Ok(Some(raw)) => {
                    // It is borrowed from the device, which cannot hear of it then.
                    let copied = D::OBSERVES.then(|| raw.map_private_data(PrivateData::copy_of));
                    let result = self.core.take_event(channel, &raw);
                    if let Some(copied) = copied {
                        let reads_on = !D::LEVEL_TRIGGERED;
                        self.record(Step::Event { channel, event: copied.as_deref(), result, reads_on });
                    }
                    if let Err(fault) = result {
                        self.note(fault);
                    }
                    *left -= 1;
                    if D::LEVEL_TRIGGERED {
                        self.make_calls();
                        return false;
                    }
                    let is_to_look = to_look && self.activity_seen != self.core.activity();
                    if *left == 0 || is_to_look || !self.core.is_next(channel) {
                        // Behind the others, so that a busy channel does not keep them waiting.
                        self.core.handle_readable(channel);
                        self.make_calls();
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

    /// A channel that has been closed wants nothing either, but is no reason to wait for the application.
    #[inline(never)]
    fn is_not_wanted(&mut self, channel: ChannelKey) {
        if self.core.has_channel(channel) {
            self.device.leave_unread(channel);
            self.core.wait_for_room(channel);
            self.record(Step::WaitForRoom { channel });
        }
    }

    /// A read failed. Whether the channel is to be read again.
    #[cold]
    #[inline(never)]
    fn is_unreadable(&mut self, channel: ChannelKey, errno: Errno) -> bool {
        let again = self.core.handle_unreadable(channel);
        self.record(Step::Unreadable { channel, errno });
        self.note(Fault::Read { channel, errno });
        if !again {
            self.note(Fault::Channel { channel, errno });
        }
        again
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.core.poll_timeout().is_some_and(|(due, _)| due <= self.now.get())
    }
}
