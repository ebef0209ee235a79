//! A submission queue and its completions: which commands are outstanding, and when each is over.
//!
//! The queue has no memory and no connection. A command is over when its response has come and, if its send is signaled, that has
//! completed, which happen in any order. Without a response the controller may still use the data. What the device may still read
//! for a send without a completion is not of the command: the capsule, which a later completion returns.

use cmid_mio::proto::Time;

use crate::wire::Cqe;

/// The bits of an identifier that select the slot; the others count its uses, so that a response which comes twice is
/// recognised (as `nvme_cid` of the kernel does).
const INDEX_BITS: u32 = 12;
const INDEX: u16 = (1 << INDEX_BITS) - 1;

/// The most entries of a queue.
pub const SIZE_MAX: u16 = 1 << INDEX_BITS;

/// A response or a completion that cannot be. The peer or the device is broken, and the connection is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// No command with this identifier is outstanding: it never was, or it was answered before.
    #[error("a response to a command that is not outstanding (identifier {cid:#06x})")]
    NotOutstanding {
        /// The identifier.
        cid: u16,
    },
    /// A second response to a command.
    #[error("a second response to a command (identifier {cid:#06x})")]
    Twice {
        /// The identifier.
        cid: u16,
    },
    /// The head of the submission queue is not in the queue.
    #[error("the head of the submission queue is {head}, and the queue has {size} entries")]
    Head {
        /// The head.
        head: u16,
        /// The entries of the queue.
        size: u16,
    },
}

/// A command that is outstanding.
#[derive(Debug)]
struct Outstanding<T> {
    tag: T,
    /// Whether nothing waits for a completion of its send.
    is_sent: bool,
    response: Option<Cqe>,
    deadline: Time,
}

#[derive(Debug)]
struct Slot<T> {
    /// How often the slot was used.
    uses: u16,
    command: Option<Outstanding<T>>,
}

/// A command that is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Done<T> {
    /// The slot that it had: [`Queue::slot`].
    pub slot: usize,
    /// The value that the command was begun with.
    pub tag: T,
    /// The response.
    pub response: Cqe,
}

/// The commands of a queue. `T` is what the caller knows about each.
#[derive(Debug)]
pub struct Queue<T> {
    size: u16,
    head: u16,
    tail: u16,
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
    /// The commands that are answered, and whose sends have not completed.
    unsent: usize,
}

impl<T> Queue<T> {
    /// Creates a queue of so many entries, from 2 to [`SIZE_MAX`]. One less can be outstanding: a ring whose head is its tail
    /// is empty.
    #[must_use]
    pub fn new(size: u16) -> Self {
        let size = size.clamp(2, SIZE_MAX);
        let slots = (1..size).map(|_| Slot { uses: 0, command: None }).collect();
        Queue { size, head: 0, tail: 0, slots, free: (0..size - 1).rev().collect(), unsent: 0 }
    }

    /// Returns the number of slots, which is that of commands at the same time.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slot of an identifier.
    #[must_use]
    pub fn slot(cid: u16) -> usize {
        usize::from(cid & INDEX)
    }

    /// Returns the number of commands that are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether a command only waits for the completion of its send.
    #[must_use]
    pub fn waits_for_sends(&self) -> bool {
        self.unsent > 0
    }

    /// Whether another command can begin: there is a slot, and the controller has taken enough entries from its ring.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() && self.next(self.tail) != self.head
    }

    fn next(&self, at: u16) -> u16 {
        if at + 1 == self.size { 0 } else { at + 1 }
    }

    /// Begins a command, and returns its identifier.
    ///
    /// # Errors
    /// Returns the tag if there is no room.
    pub fn begin(&mut self, tag: T, deadline: Time) -> Result<u16, T> {
        if !self.has_room() {
            return Err(tag);
        }
        let tail = self.next(self.tail);
        let index = self.free.pop();
        let Some((index, slot)) = index.and_then(|index| Some((index, self.slots.get_mut(usize::from(index))?))) else {
            return Err(tag);
        };
        self.tail = tail;
        slot.uses = slot.uses.wrapping_add(1);
        slot.command = Some(Outstanding { tag, is_sent: false, response: None, deadline });
        Ok(slot.uses << INDEX_BITS | index)
    }

    /// The send of a command is posted, and not signaled: its response is its end.
    pub fn posted_unsignaled(&mut self, cid: u16) {
        if let Some(command) = self.find(cid).and_then(Option::as_mut) {
            command.is_sent = true;
        }
    }

    /// Takes a command back that was not posted.
    pub fn cancel(&mut self, cid: u16) -> Option<T> {
        let command = self.find(cid)?.take()?;
        self.free.push(cid & INDEX);
        self.tail = self.tail.checked_sub(1).unwrap_or(self.size - 1);
        Some(command.tag)
    }

    /// Returns the tag of a command that is outstanding, to change it.
    pub fn tag_mut(&mut self, cid: u16) -> Option<&mut T> {
        self.find(cid)?.as_mut().map(|command| &mut command.tag)
    }

    /// Returns the tag of each slot in their order, where a command is outstanding.
    pub fn tags_mut(&mut self) -> impl Iterator<Item = Option<&mut T>> {
        self.slots.iter_mut().map(|slot| slot.command.as_mut().map(|command| &mut command.tag))
    }

    fn find(&mut self, cid: u16) -> Option<&mut Option<Outstanding<T>>> {
        let slot = self.slots.get_mut(Self::slot(cid))?;
        (slot.command.is_some() && slot.uses << INDEX_BITS == cid & !INDEX).then_some(&mut slot.command)
    }

    /// The send of a command has completed. Returns the command if it is over.
    ///
    /// # Errors
    /// [`QueueError::NotOutstanding`].
    pub fn sent(&mut self, cid: u16) -> Result<Option<Done<T>>, QueueError> {
        let command = self.find(cid).and_then(Option::as_mut).ok_or(QueueError::NotOutstanding { cid })?;
        command.is_sent = true;
        let is_answered = command.response.is_some();
        self.unsent -= usize::from(is_answered);
        Ok(self.end(cid))
    }

    /// A response has come. Returns its command if it is over.
    ///
    /// # Errors
    /// [`QueueError`]. Nothing has changed then.
    pub fn answered(&mut self, response: Cqe) -> Result<Option<Done<T>>, QueueError> {
        let (head, cid, size) = (response.sq_head, response.cid, self.size);
        if head >= size {
            return Err(QueueError::Head { head, size });
        }
        let command = self.find(cid).and_then(Option::as_mut).ok_or(QueueError::NotOutstanding { cid })?;
        if command.response.is_some() {
            return Err(QueueError::Twice { cid });
        }
        command.response = Some(response);
        let is_sent = command.is_sent;
        self.unsent += usize::from(!is_sent);
        self.advance(head);
        Ok(self.end(cid))
    }

    /// Moves the head, but not back: responses that a controller computes on several CPUs overtake each other.
    fn advance(&mut self, head: u16) {
        let from = |at: u16| (at + self.size - self.head) % self.size;
        if from(head) <= from(self.tail) {
            self.head = head;
        }
    }

    /// Ends a command that was sent and answered.
    fn end(&mut self, cid: u16) -> Option<Done<T>> {
        let command = self.find(cid)?;
        command.as_ref().filter(|it| it.is_sent && it.response.is_some())?;
        let Outstanding { tag, response, .. } = command.take()?;
        self.free.push(cid & INDEX);
        Some(Done { slot: Self::slot(cid), tag, response: response? })
    }

    /// Returns a command whose deadline has passed.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<&T> {
        let mut commands = self.slots.iter().filter_map(|slot| slot.command.as_ref());
        let command = commands.find(|command| is_late(command.deadline, now));
        command.map(|command| &command.tag)
    }

    /// Ends the queue: returns all commands that are outstanding, in no order. None of them ends otherwise.
    pub fn drain(&mut self) -> Vec<T> {
        self.free.clear();
        self.slots.iter_mut().filter_map(|slot| slot.command.take()).map(|command| command.tag).collect()
    }
}

/// Whether a deadline has passed. [`Time::NEVER`] never does.
pub(crate) fn is_late(deadline: Time, now: Time) -> bool {
    deadline <= now && deadline != Time::NEVER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Status;

    fn response(cid: u16, sq_head: u16) -> Cqe {
        Cqe { result: 0, sq_head, cid, status: Status::SUCCESS }
    }

    #[test]
    fn a_command_is_over_after_its_response_and_its_send_in_any_order() {
        let mut queue = Queue::new(4);
        let [a, b] = ["a", "b"].map(|tag| queue.begin(tag, Time::NEVER).expect("room"));
        assert_eq!(queue.sent(a), Ok(None));
        assert_eq!(queue.answered(response(a, 1)).expect("an answer").expect("the end").tag, "a");
        assert_eq!((queue.answered(response(b, 2)), queue.waits_for_sends()), (Ok(None), true));
        assert_eq!(queue.outstanding(), 1);
        assert_eq!(queue.sent(b).expect("a send").expect("the end").tag, "b");
        assert_eq!((queue.outstanding(), queue.has_room(), queue.waits_for_sends()), (0, true, false));
        // The completion of a send twice is an error of the device, and ends nothing.
        assert_eq!(queue.sent(b), Err(QueueError::NotOutstanding { cid: b }));
    }

    #[test]
    fn a_command_that_is_not_signaled_is_over_with_its_response() {
        let mut queue = Queue::new(4);
        let cid = queue.begin("a", Time::NEVER).expect("room");
        queue.posted_unsignaled(cid);
        assert_eq!(queue.answered(response(cid, 1)).expect("a response").expect("the end").tag, "a");
        assert!(!queue.waits_for_sends());
    }

    #[test]
    fn a_response_that_comes_twice_or_to_no_command_is_refused() {
        let mut queue = Queue::new(4);
        let a = queue.begin("a", Time::NEVER).expect("room");
        assert_eq!(queue.answered(response(a, 1)), Ok(None));
        assert_eq!(queue.answered(response(a, 1)), Err(QueueError::Twice { cid: a }));
        assert!(queue.sent(a).is_ok_and(|done| done.is_some()));
        let b = queue.begin("b", Time::NEVER).expect("room");
        // The same slot, used again.
        assert_eq!((b & INDEX, a == b), (a & INDEX, false));
        for cid in [a, 3, INDEX, 0xffff] {
            assert_eq!(queue.answered(response(cid, 1)), Err(QueueError::NotOutstanding { cid }));
            assert_eq!(queue.sent(cid), Err(QueueError::NotOutstanding { cid }));
        }
        assert_eq!(queue.drain(), ["b"]);
    }

    #[test]
    fn a_queue_holds_one_command_less_than_it_has_entries() {
        let mut queue = Queue::new(3);
        let cids = [0, 1].map(|tag| queue.begin(tag, Time::NEVER).expect("room"));
        assert_eq!(queue.begin(2, Time::NEVER), Err(2));
        assert!(queue.answered(response(cids[0], 1)).is_ok_and(|done| done.is_none()));
        assert_eq!(queue.begin(2, Time::NEVER), Err(2), "the send has not completed");
        assert!(queue.sent(cids[0]).is_ok_and(|done| done.is_some()));
        assert!(queue.begin(2, Time::NEVER).is_ok());
    }

    #[test]
    fn entries_that_the_controller_has_not_taken_keep_their_room() {
        let mut queue = Queue::new(3);
        for _ in 0..2 {
            let cid = queue.begin((), Time::NEVER).expect("room");
            queue.sent(cid).expect("a send");
            // The head stays where it is.
            queue.answered(response(cid, 0)).expect("a response");
        }
        assert!(!queue.has_room());
    }

    #[test]
    fn a_head_moves_around_the_ring_and_not_back() {
        let mut queue = Queue::new(3);
        let mut head = 0;
        for round in 0..100 {
            let cids = [0, 1].map(|_| queue.begin(round, Time::NEVER).expect("room"));
            head = (head + 2) % 3;
            for (cid, head) in [(cids[1], head), (cids[0], (head + 2) % 3)] {
                queue.sent(cid).expect("a send");
                assert!(queue.answered(response(cid, head)).is_ok_and(|done| done.is_some()));
            }
            assert!(queue.has_room());
        }
        let error = QueueError::Head { head: 3, size: 3 };
        assert_eq!(queue.answered(response(0, 3)), Err(error));
    }

    #[test]
    fn a_command_is_overdue_at_its_deadline_and_one_without_never() {
        let mut queue = Queue::new(4);
        let _event = queue.begin("event", Time::NEVER);
        let _read = queue.begin("read", Time(5));
        assert_eq!([Time(4), Time(5), Time::NEVER].map(|now| queue.overdue(now)), [None, Some(&"read"), Some(&"read")]);
    }

    #[test]
    fn a_command_that_was_not_posted_leaves_no_trace() {
        let mut queue = Queue::new(2);
        for _ in 0..5 {
            let cid = queue.begin("a", Time::ZERO).expect("room");
            assert_eq!(queue.tag_mut(cid), Some(&mut "a"));
            assert_eq!(queue.cancel(cid), Some("a"));
        }
        assert_eq!((queue.cancel(0), queue.overdue(Time::NEVER), queue.has_room()), (None, None, true));
    }
}
