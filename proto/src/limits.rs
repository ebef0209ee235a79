//! The maximum numbers of ids, channels, events and memberships of a core. (The limits of private data are in
//! `guard`.)

use crate::key::{CORE_MAX, SLOTS};

/// The maximum numbers of a core's objects. A request beyond a limit is refused. An event beyond it stays in the
/// kernel.
///
/// Keys have 2^24 slots: a larger limit on ids counts as 2^24 - 1, a larger limit on channels or groups as 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Limits {
    /// Ids at the same time, listeners and children included.
    pub ids: u32,
    /// The number of [`ids`](Limits::ids) that are reserved for the application: connection requests do not use them.
    /// While no more ids than these are free, the channels of listeners are not read, because the next event might be a
    /// request. A number above half of `ids` counts as half.
    pub reserved_ids: u32,
    /// Event channels at the same time, including private ones: each id in synchronous mode has one, and each id that
    /// listens or has tried to listen.
    pub channels: u32,
    /// Events that the device reported and the application has not taken yet, over all channels. At the limit only
    /// channels without an untaken event are read, one event at a time, so that no channel stops another. The limit
    /// can be exceeded by one event per channel. The other events wait in the kernel. Events that ended a request of
    /// synchronous mode (at most one per id) do not count, and neither do events of the core about the end of a
    /// request.
    pub events: u32,
    /// The number of [`events`](Limits::events) that connection requests do not use. While no more events than these
    /// are free, the channels of listeners are not read. A number above half of `events` counts as half.
    pub reserved_events: u32,
    /// Untaken events of one channel. At the limit this channel is not read; 0 counts as 1. Connection requests do not
    /// count here: the backlog of their listener limits them, see [`Limits::BACKLOG_MAX`].
    pub channel_events: u32,
    /// Memberships in multicast groups at the same time, over all ids.
    pub groups: u32,
    /// The number of the core, which is part of its keys and ack tokens: a core refuses those with another number. Only
    /// the lower 12 bits of the number are used. Cores with the same number accept each other's keys, so give each core
    /// its own number.
    ///
    /// With `None` the drivers select the next number of the process ([`Limits::numbered`]); a [`Core`](crate::Core) or
    /// [`Drive`](crate::Drive) without a driver has number 0.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub core: Option<u16>,
}

impl Limits {
    /// The maximum number of untaken requests of one listener; a smaller backlog of the listen lowers it. A backlog below 1
    /// or above this maximum counts as the maximum, as in the kernel (`ucma_listen`, where the maximum is the sysctl
    /// `net.rdma_ucm.max_backlog` with this default). A request counts until it is delivered. Similarly, in the kernel a
    /// request counts until its CONNECT_REQUEST is read (`ucma_get_event`), whether or not it is accepted.
    ///
    /// At the limit the listener's channel is not read. As many requests again can wait in the kernel. After that, the
    /// kernel drops requests for connections, which the peers repeat every few seconds, and rejects lookups. On iWARP it
    /// rejects requests for connections.
    pub const BACKLOG_MAX: u16 = 1024;

    /// The number of consecutive failed reads of a channel after which it has failed
    /// ([`Core::handle_unreadable`](crate::Core::handle_unreadable)).
    pub const READ_FAILURES_MAX: u8 = 32;

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
    /// For one connection and its events. Nothing is reserved: a connection request may use all ids and events.
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

    /// Returns these limits with a number for the core: [`Limits::core`], or the next number of this process if that is
    /// `None`. 0 follows 4095, so of more than 4096 drivers some have the same number.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn numbered(self) -> Self {
        use core::sync::atomic::{AtomicU16, Ordering};
        // 65536 is a multiple of 4096, so 0 also follows 4095 when the counter wraps.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let core = self.core.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) & CORE_MAX);
        Limits { core: Some(core), ..self }
    }

    /// Lowers the limits to the numbers of keys.
    pub(crate) fn clamped(self) -> Self {
        Limits {
            // One less than the number of slots, because the core's arena of ids has one slot more than the limit.
            ids: self.ids.min(SLOTS - 1),
            channels: self.channels.min(SLOTS),
            groups: self.groups.min(SLOTS),
            core: self.core.map(|core| core & CORE_MAX),
            ..self
        }
    }
}

/// The maximum number of untaken requests for a listen with this backlog.
pub(crate) fn requests_of(backlog: i32) -> u16 {
    u16::try_from(backlog).ok().filter(|kept| (1..=Limits::BACKLOG_MAX).contains(kept)).unwrap_or(Limits::BACKLOG_MAX)
}

impl Default for Limits {
    fn default() -> Self {
        Limits::LARGE
    }
}
