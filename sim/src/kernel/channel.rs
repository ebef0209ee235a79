//! The kernel's event channels (`ucma_file`): one queue of events and one file descriptor.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cmid_proto::{CmEvent, Datagram, Ece, Errno, GroupKey, ReceivedParam};

use crate::fabric::table::Table;
use crate::index::IdNo;
use crate::kernel::signal::Signal;

/// The type of an unread event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AddrResolved,
    AddrError,
    RouteResolved,
    /// The new id. The event belongs to the listener.
    ConnectRequest(IdNo),
    ConnectResponse,
    Unreachable,
    Rejected,
    ConnectError,
    Established,
    Disconnected,
    TimewaitExit,
    DeviceRemoval,
    AddrChange,
    /// The requested membership.
    MulticastJoin(GroupKey),
    /// The membership that failed or was lost.
    MulticastError(GroupKey),
}

impl Kind {
    pub(crate) const fn cm(self) -> CmEvent {
        match self {
            Kind::AddrResolved => CmEvent::AddrResolved,
            Kind::AddrError => CmEvent::AddrError,
            Kind::RouteResolved => CmEvent::RouteResolved,
            Kind::ConnectRequest(_) => CmEvent::ConnectRequest,
            Kind::ConnectResponse => CmEvent::ConnectResponse,
            Kind::Unreachable => CmEvent::Unreachable,
            Kind::Rejected => CmEvent::Rejected,
            Kind::ConnectError => CmEvent::ConnectError,
            Kind::Established => CmEvent::Established,
            Kind::Disconnected => CmEvent::Disconnected,
            Kind::TimewaitExit => CmEvent::TimewaitExit,
            Kind::DeviceRemoval => CmEvent::DeviceRemoval,
            Kind::AddrChange => CmEvent::AddrChange,
            Kind::MulticastJoin(_) => CmEvent::MulticastJoin,
            Kind::MulticastError(_) => CmEvent::MulticastError,
        }
    }

    /// The new id of a CONNECT_REQUEST.
    pub(crate) const fn child(self) -> Option<IdNo> {
        if let Kind::ConnectRequest(child) = self { Some(child) } else { None }
    }

    /// The membership of a multicast event.
    pub(crate) const fn group(self) -> Option<GroupKey> {
        if let Kind::MulticastJoin(group) | Kind::MulticastError(group) = self { Some(group) } else { None }
    }
}

/// An unread event (`ucma_event`).
#[derive(Debug)]
pub(crate) struct Unread {
    /// The id that it belongs to; for a CONNECT_REQUEST the listener.
    pub(crate) owner: IdNo,
    pub(crate) kind: Kind,
    pub(crate) status: i32,
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
    pub(crate) fn new(owner: IdNo, kind: Kind, status: i32) -> Self {
        Unread {
            owner,
            kind,
            status,
            param: ReceivedParam::default(),
            datagram: None,
            ece: Ece::default(),
            private_data: Vec::new(),
        }
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
        self.take(owner, |event| event.kind.group() == Some(group));
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

    fn event(owner: u64, kind: Kind) -> Unread {
        Unread::new(IdNo(owner), kind, 0)
    }

    fn readable(file: &File) -> bool {
        let mut fds = [PollFd::new(&*file.signal, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn moved_events_wake_nobody_until_somebody_reads() {
        let mut file = File::open().unwrap();
        file.push_moved(vec![event(1, Kind::AddrResolved), event(1, Kind::RouteResolved)], false);
        assert!(!readable(&file));
        assert_eq!(file.pop().map(|event| event.kind), Some(Kind::AddrResolved));
        assert!(readable(&file));
        file.push_moved(vec![event(1, Kind::Established)], true);
        assert!(readable(&file));
    }
}
