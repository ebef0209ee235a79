//! The maximum numbers of ids, channels, events and memberships of a core. (The limits of private data are in
//! `guard`.)

use crate::key::{CORE_MAX, SLOTS};

/// The maximum numbers of a core's objects. A request beyond a limit is refused. An event beyond it stays in the
/// kernel.
///
/// Keys have 2^24 slots: a limit on ids above 2^24 - 1, or on channels or groups above 2^24, counts as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Ids at the same time, listeners and children included.
    pub ids: u32,
    /// The number of [`ids`](Limits::ids) that requests of peers cannot use: they stay free for the application's own
    /// ids. While no more than these are free, the channels of listeners are not read, because the next event might
    /// be a request. More than half of the ids count as half of them.
    pub reserved_ids: u32,
    /// Event channels at the same time. Each id in synchronous mode uses one, and each id that listens or has tried
    /// to.
    pub channels: u32,
    /// Events that the device reported and the application has not taken yet, over all channels. At the limit only
    /// channels without an untaken event are read, one event at a time, so that no channel stops another. The limit
    /// can be exceeded by one event per channel. The other events wait in the kernel. Events that ended a request of
    /// synchronous mode (at most one per id) do not count, and neither do events of the core about the end of a
    /// request.
    pub events: u32,
    /// The number of [`events`](Limits::events) that requests of peers cannot use. While no more than these are free,
    /// the channels of listeners are not read. More than half of the events count as half of them.
    pub reserved_events: u32,
    /// Untaken events of one channel. At the limit this channel is not read; 0 counts as 1. Requests do not count
    /// here: the backlog of their listener limits them, see [`BACKLOG_MAX`].
    pub channel_events: u32,
    /// Memberships in multicast groups at the same time, over all ids.
    pub groups: u32,
    /// The number of the core, which is part of its keys and ack tokens: a core refuses those with another number. 12
    /// bits; of a larger number the lower 12 count. Cores with the same number accept each other's keys, so give each
    /// core its own number.
    ///
    /// With `None` the drivers number their cores from 0 ([`Limits::numbered`]); a [`Core`](crate::Core) or
    /// [`Drive`](crate::Drive) without a driver then has number 0.
    pub core: Option<u16>,
}

impl Limits {
    /// For a program with many connections: a million ids, 64 Ki events. Memory is allocated when it is needed.
    pub const LARGE: Limits = Limits {
        ids: 1 << 20,
        reserved_ids: 1 << 12,
        channels: 1 << 16,
        events: 1 << 16,
        reserved_events: 1 << 14,
        channel_events: 1 << 14,
        groups: 1 << 16,
        core: None,
    };
    /// For one connection and its events. Nothing is reserved: its one request may use all ids and events.
    pub const SINGLE: Limits = Limits {
        ids: 4,
        reserved_ids: 0,
        channels: 4,
        events: 64,
        reserved_events: 0,
        channel_events: 32,
        groups: 16,
        core: None,
    };

    /// Returns these limits with a number for the core: its own, or if it has none the next one of this process. After
    /// 4095 it counts from 0 again, so more than 4096 drivers at a time share numbers.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn numbered(self) -> Self {
        use core::sync::atomic::{AtomicU16, Ordering};
        // 65536 is a multiple of 4096, so it wraps where the numbers do.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let core = self.core.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) & CORE_MAX);
        Limits { core: Some(core), ..self }
    }

    /// Limits the values to those that keys can represent.
    pub(crate) fn clamped(self) -> Self {
        Limits {
            // One less than there are slots: the core has one more than the limit.
            ids: self.ids.min(SLOTS - 1),
            channels: self.channels.min(SLOTS),
            groups: self.groups.min(SLOTS),
            core: self.core.map(|core| core & CORE_MAX),
            ..self
        }
    }
}

/// The maximum number of untaken requests of one listener; a smaller backlog of the listen lowers it. A backlog below
/// 1 or above this counts as this, as in the kernel (`ucma_listen`; there the limit is the sysctl
/// `net.rdma_ucm.max_backlog`, and this is its default). A request counts until it is delivered. The kernel, too,
/// frees its place in the backlog when the CONNECT_REQUEST is read (`ucma_get_event`), whether or not it is accepted.
///
/// At the limit the listener's channel is not read. Up to as many more requests wait in the kernel. Of further ones
/// the kernel drops requests for connections, which the peers repeat every few seconds, and rejects lookups.
pub const BACKLOG_MAX: u16 = 1024;

/// The maximum number of untaken requests for a listen with this backlog.
pub(crate) fn requests_of(backlog: i32) -> u16 {
    u16::try_from(backlog).ok().filter(|kept| (1..=BACKLOG_MAX).contains(kept)).unwrap_or(BACKLOG_MAX)
}

impl Default for Limits {
    fn default() -> Self {
        Limits::LARGE
    }
}
