//! Every bound of the core in one place.

/// How much a core may hold. What would exceed a limit is refused, or left in the kernel; nothing is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Ids at the same time, listeners and children included. At the limit the listeners' channels are not read: a request
    /// might be next.
    pub ids: u32,
    /// Event channels at the same time; each id in synchronous mode uses one, and each id that listens or has tried to.
    pub channels: u32,
    /// Events that the device reported and the application has not taken yet, over all channels. At the limit
    /// [`Core::wants_event`](crate::Core::wants_event) says no and further events wait in the kernel. Events that ended a
    /// request of synchronous mode, at most one per id, do not count; nor do those by which the core tells that a
    /// request has ended.
    pub events: u32,
    /// Memberships in multicast groups at the same time, over all ids.
    pub groups: u32,
}

impl Limits {
    /// For a program with many connections: a million ids, 64 Ki events. Memory is taken as it is needed.
    pub const LARGE: Limits = Limits { ids: 1 << 20, channels: 1 << 16, events: 1 << 16, groups: 1 << 16 };
    /// For one connection and its events.
    pub const SINGLE: Limits = Limits { ids: 4, channels: 4, events: 64, groups: 16 };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::LARGE
    }
}
