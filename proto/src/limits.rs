//! Every bound of the core in one place.

use crate::key::{CORE_MAX, SLOTS};

/// How much a core may hold. What would exceed a limit is refused, or left in the kernel; nothing is dropped.
///
/// Keys tell 2^24 slots apart: a limit on ids above 2^24 - 1, or on channels or groups above 2^24, counts as that.
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
    /// The number of the core, which its keys and receipts carry: a core refuses those of another number. 12 bits; of a
    /// number above 4095 the lower 12 count. Cores of one number take each other's keys for their own, so a program gives
    /// each core its own number.
    ///
    /// With `None` the drivers number their cores from 0 by themselves ([`Limits::numbered`]); a [`Core`](crate::Core) or
    /// [`Drive`](crate::Drive) without a driver has the number 0 then.
    pub core: Option<u16>,
}

impl Limits {
    /// For a program with many connections: a million ids, 64 Ki events. Memory is taken as it is needed.
    pub const LARGE: Limits = Limits { ids: 1 << 20, channels: 1 << 16, events: 1 << 16, groups: 1 << 16, core: None };
    /// For one connection and its events.
    pub const SINGLE: Limits = Limits { ids: 4, channels: 4, events: 64, groups: 16, core: None };

    /// These limits with a number for the core: their own, or else the next one of this process. After 4095 it counts from 0
    /// again, so more than 4096 drivers at a time share numbers.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn numbered(self) -> Self {
        use core::sync::atomic::{AtomicU16, Ordering};
        // 65536 is a multiple of 4096, so it wraps where the numbers do.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let core = self.core.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) & CORE_MAX);
        Limits { core: Some(core), ..self }
    }

    /// What of them the keys can tell apart.
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

impl Default for Limits {
    fn default() -> Self {
        Limits::LARGE
    }
}
