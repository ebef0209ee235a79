//! The kernel's and the library's part of every id: its state, and the unread events of each channel.
//!
//! The fuzzer simulates the peers: `happening.rs` has the external events, `calls.rs` the effects of calls, and
//! `fetch.rs` the effects of reading, of which librdmacm has many.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmid_proto::{CmEvent, GroupKey, IdKey};

/// An event channel: an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct File(u32);

/// An id, independent of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct No(u32);

/// The phase of an id: the states of the RDMA CM up to a route, then those of the IB CM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Bound,
    AddrQuery,
    AddrResolved,
    RouteQuery,
    RouteResolved,
    Listen,
    /// Active: the request is sent.
    ReqSent,
    /// Active: the answer has arrived and is not confirmed.
    RepRcvd,
    /// Passive: not answered.
    ReqRcvd,
    /// Passive: answered, not confirmed.
    RepSent,
    Established,
    DreqSent,
    DreqRcvd,
    TimeWait,
    /// Datagrams, active: the lookup is sent.
    SidrSent,
    /// Datagrams, passive: the lookup is not answered.
    SidrRcvd,
    /// The IB CM is done with the id.
    Over,
}

/// One `ucma_context` with the library's record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Id {
    pub(crate) key: Option<IdKey>,
    pub(crate) file: File,
    pub(crate) datagram: bool,
    pub(crate) stage: Phase,
    /// The RDMA CM has seen the end of the connection: its state is DISCONNECT.
    pub(crate) disconnected: bool,
    /// A call that has failed has bound it.
    pub(crate) bound_unseen: bool,
    /// The kernel knows the device.
    pub(crate) device: bool,
    /// The library knows the device, from an event or from the bind.
    pub(crate) verbs: bool,
    /// The id of a request that is not accepted: the kernel reports no events for it (uid 0).
    pub(crate) deaf: bool,
    /// The kernel watches the peer's link address.
    pub(crate) watched: bool,
    /// Its device is gone.
    pub(crate) removed: bool,
    /// Its application has asked for its destruction.
    pub(crate) leaving: bool,
    pub(crate) qp: bool,
    /// The library could not complete the connection, and swallows its later events.
    pub(crate) connect_error: bool,
    pub(crate) groups: Vec<Membership>,
}

/// A membership in a multicast group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    /// Not answered yet.
    pub(crate) joining: bool,
    /// Lost, or never joined.
    pub(crate) lost: bool,
}

/// An unread event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    /// The owner of the event: for a request the listener.
    pub(crate) owner: No,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    pub(crate) child: Option<No>,
    pub(crate) group: Option<GroupKey>,
}

/// All ids and channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) ids: BTreeMap<No, Id>,
    pub(crate) files: BTreeMap<File, VecDeque<Unread>>,
    /// Files that have become readable and are not reported to their pollers yet.
    pub(crate) wakes: BTreeSet<File>,
    /// An id whose device is removed can be migrated: the kernel closes it some time after the event.
    pub(crate) moves_removed: bool,
    next: u32,
}

impl Kernel {
    pub(crate) fn open(&mut self) -> File {
        self.next += 1;
        self.files.insert(File(self.next), VecDeque::new());
        File(self.next)
    }

    pub(crate) fn insert(&mut self, id: Id) -> No {
        self.next += 1;
        self.ids.insert(No(self.next), id);
        No(self.next)
    }

    pub(crate) fn id(&self, no: No) -> &Id {
        &self.ids[&no]
    }

    pub(crate) fn id_mut(&mut self, no: No) -> &mut Id {
        self.ids.get_mut(&no).expect("an id of the kernel")
    }

    /// Whether an event of an id, or of a request to it, is unread.
    pub(crate) fn has_unread(&self, no: No) -> bool {
        self.files.values().flatten().any(|event| event.owner == no)
    }

    /// Queues an event and signals its channel.
    pub(crate) fn push(&mut self, event: Unread) {
        let file = self.id(event.owner).file;
        self.files.get_mut(&file).expect("the channel of an id").push_back(event);
        self.wakes.insert(file);
    }

    /// Takes the unread events of an id, or of one of its groups.
    pub(crate) fn take_unread(&mut self, no: No, group: Option<GroupKey>) -> Vec<Unread> {
        let file = self.id(no).file;
        let Some(queue) = self.files.get_mut(&file) else { return Vec::new() };
        let (taken, left) =
            queue.drain(..).partition(|event| event.owner == no && (group.is_none() || event.group == group));
        *queue = left;
        taken.into()
    }

    /// `ucma_destroy_id`: drops unread events, and for a listener the connections of its unread requests.
    pub(crate) fn destroy(&mut self, no: No) {
        let unread = self.take_unread(no, None);
        self.ids.remove(&no);
        for child in unread.into_iter().filter_map(|event| event.child) {
            self.destroy(child);
        }
    }
}
