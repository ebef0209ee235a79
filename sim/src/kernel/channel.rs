//! The kernel's event channels (`ucma_file`): one queue of events and one file descriptor.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cmid_proto::{CmEvent, Datagram, Ece, Errno, GroupKey, ReceivedParam};

use crate::fabric::table::Table;
use crate::index::IdNo;
use crate::kernel::signal::Signal;

/// An unread event (`ucma_event`).
#[derive(Debug)]
pub(crate) struct Unread {
    /// The id that it belongs to; for a CONNECT_REQUEST the listener.
    pub(crate) owner: IdNo,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    /// The new id of a CONNECT_REQUEST.
    pub(crate) child: Option<IdNo>,
    /// The membership of a multicast event.
    pub(crate) group: Option<GroupKey>,
    pub(crate) param: ReceivedParam,
    /// The destination for datagrams.
    pub(crate) datagram: Option<Datagram>,
    /// The ECE of the peer.
    pub(crate) ece: Ece,
    /// The whole field of the message, zero padded.
    pub(crate) private_data: Vec<u8>,
}

impl Unread {
    /// An event with only a type and a status.
    pub(crate) fn new(owner: IdNo, kind: CmEvent, status: i32) -> Self {
        Unread {
            owner,
            kind,
            status,
            child: None,
            group: None,
            param: ReceivedParam::default(),
            datagram: None,
            ece: Ece::default(),
            private_data: Vec::new(),
        }
    }

    /// The library reports another event instead.
    pub(crate) fn becomes(&mut self, kind: CmEvent, status: i32) {
        (self.kind, self.status) = (kind, status);
    }
}

#[derive(Debug)]
pub(crate) struct File {
    queue: VecDeque<Unread>,
    /// The number of queued events of each id; ids without events have no entry.
    unread: Table<IdNo, usize>,
    /// Readable while `signalled`.
    signal: Arc<Signal>,
    signalled: bool,
    /// The ids on it by their turns: in the order in which they came to it (`ctx_list`).
    pub(crate) ids: BTreeMap<u64, IdNo>,
}

impl File {
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(File {
            queue: VecDeque::new(),
            unread: Table::default(),
            signal: Arc::new(Signal::new()?),
            signalled: false,
            ids: BTreeMap::new(),
        })
    }

    pub(crate) fn waker(&self) -> Arc<Signal> {
        Arc::clone(&self.signal)
    }

    /// Queues a new event. Each one signals, so that edge-triggered waiters wake too.
    pub(crate) fn push(&mut self, event: Unread) {
        self.count(&event);
        self.queue.push_back(event);
        self.signal();
    }

    /// Appends moved events. Signals only with `wake`.
    pub(crate) fn push_moved(&mut self, events: Vec<Unread>, wake: bool) {
        let any = !events.is_empty();
        events.iter().for_each(|event| self.count(event));
        self.queue.extend(events);
        if any && wake {
            self.signal();
        }
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next event. Signals the descriptor if events remain, including those that were moved without a signal.
    pub(crate) fn pop(&mut self) -> Option<Unread> {
        let event = self.queue.pop_front();
        if let Some(event) = &event {
            self.discount(event.owner, 1);
        }
        if self.queue.is_empty() {
            self.settle();
        } else if !self.signalled {
            self.signal();
        }
        event
    }

    /// Takes all events of one id, in order.
    pub(crate) fn take_of(&mut self, owner: IdNo) -> Vec<Unread> {
        self.take(owner, |_| true)
    }

    /// Drops the events of one membership of an id (`ucma_cleanup_mc_events`).
    pub(crate) fn drop_group(&mut self, owner: IdNo, group: GroupKey) {
        self.take(owner, |event| event.group == Some(group));
        self.settle();
    }

    /// Returns without a search of the queue if the id has no events, which is the usual case.
    fn take(&mut self, owner: IdNo, which: impl Fn(&Unread) -> bool) -> Vec<Unread> {
        if !self.unread.contains_key(&owner) {
            return Vec::new();
        }
        let (taken, kept) = self.queue.drain(..).partition::<Vec<_>, _>(|event| event.owner == owner && which(event));
        self.queue = kept.into();
        self.discount(owner, taken.len());
        taken
    }

    fn count(&mut self, event: &Unread) {
        *self.unread.or_default(event.owner) += 1;
    }

    fn discount(&mut self, owner: IdNo, events: usize) {
        if let Some(count) = self.unread.get_mut(&owner) {
            *count = count.saturating_sub(events);
            if *count == 0 {
                self.unread.remove(&owner);
            }
        }
    }

    /// Makes the descriptor unreadable if no event is left.
    pub(crate) fn settle(&mut self) {
        if self.queue.is_empty() && self.signalled {
            self.signal.take();
            self.signalled = false;
        }
    }

    fn signal(&mut self) {
        self.signal.raise();
        self.signalled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    fn event(owner: u64, kind: CmEvent) -> Unread {
        Unread::new(IdNo(owner), kind, 0)
    }

    fn readable(file: &File) -> bool {
        let mut fds = [PollFd::new(&*file.signal, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn moved_events_wake_nobody_until_somebody_reads() {
        let mut file = File::open().unwrap();
        file.push_moved(vec![event(1, CmEvent::AddrResolved), event(1, CmEvent::RouteResolved)], false);
        assert!(!readable(&file));
        assert_eq!(file.pop().map(|event| event.kind), Some(CmEvent::AddrResolved));
        assert!(readable(&file));
        file.push_moved(vec![event(1, CmEvent::Established)], true);
        assert!(readable(&file));
    }
}
