//! The device under memory regions: the true PD and memory of each registration, independent of reported results.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Keys, Provider, Reply};

use crate::input::Input;

/// The device's record of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pd: usize,
    pub(crate) memory: u32,
    pub(crate) access: Access,
    pub(crate) keys: Keys,
    /// Memory and the PD of a failed change, which the device may still refer to.
    pub(crate) known: Option<u32>,
    pub(crate) known_pd: Option<usize>,
}

/// The changes of a re-registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) pd: Option<usize>,
    pub(crate) memory: Option<u32>,
    pub(crate) access: Option<Access>,
}

/// All registrations.
#[derive(Debug, Default)]
pub(crate) struct Device {
    pub(crate) entries: BTreeMap<u32, Entry>,
    /// The registration that each bound window belongs to, and the key of the window.
    windows: BTreeMap<usize, (u32, u32)>,
    /// Whether it checks the key of a packet and copies the packet later, also after a change of the registration.
    pub(crate) copies_late: bool,
    /// The registrations whose keys were checked, each with the memory that a packet may be copied to.
    pub(crate) late: BTreeSet<(u32, u32)>,
    next: u32,
}

/// The return codes of the library.
const DONE: i32 = 0;
const INPUT: i32 = -1;
const DONT_FORK_NEW: i32 = -2;
const DO_FORK_OLD: i32 = -3;
const CMD: i32 = -4;
const CMD_AND_DO_FORK_NEW: i32 = -5;
/// No manual has this one: the registration may be in any state.
const UNKNOWN: i32 = -9;

/// Errnos of a device that failed in the middle of a change.
const HALF_WAY: [Errno; 3] = [Errno::EIO, Errno::ENOMEM, Errno(0)];

impl Device {
    pub(crate) fn new(copies_late: bool) -> Self {
        Device { copies_late, ..Device::default() }
    }

    fn keys(&mut self) -> Keys {
        self.next += 1;
        Keys { lkey: self.next, rkey: self.next ^ 0x8000_0000 }
    }

    /// `ibv_reg_mr`.
    pub(crate) fn register(
        &mut self,
        input: &mut Input<'_>,
        pd: usize,
        memory: u32,
        access: Access,
    ) -> Result<(u32, Keys), Errno> {
        if input.once_in(5) {
            return Err([Errno::ENOMEM, Errno::EINVAL, Errno(0)][input.below(3)]);
        }
        let keys = self.keys();
        self.entries.insert(self.next, Entry { pd, memory, access, keys, known: None, known_pd: None });
        Ok((self.next, keys))
    }

    /// `ibv_rereg_mr`: the answer, and its effect. Where the manual is silent, any effect is possible.
    pub(crate) fn reregister(
        &mut self,
        input: &mut Input<'_>,
        handle: u32,
        wanted: Wanted,
        provider: Provider,
    ) -> Reply {
        self.look_for_windows(handle);
        let half_way = HALF_WAY[input.below(HALF_WAY.len())];
        let (code, errno) = match input.below(11) {
            0..=2 => (DONE, Errno(0)),
            3 => (INPUT, Errno::EINVAL),
            4 => (DONT_FORK_NEW, Errno::ENOMEM),
            5 => (DO_FORK_OLD, Errno::EINVAL),
            6 | 7 => (CMD, Errno::EOPNOTSUPP),
            8 => (CMD, Errno::EINVAL),
            9 if half_way == Errno(0) => (UNKNOWN, Errno::EIO),
            9 => (CMD, half_way),
            _ => (CMD_AND_DO_FORK_NEW, [Errno::EOPNOTSUPP, half_way][input.below(2)]),
        };
        let checked = provider == Provider::ChecksFirst || matches!(errno, Errno::EOPNOTSUPP | Errno::EINVAL);
        let (all, some) = match code {
            DONE | DO_FORK_OLD => (true, true),
            CMD => (false, !checked),
            UNKNOWN => (false, true),
            CMD_AND_DO_FORK_NEW => (false, provider == Provider::Unknown),
            _ => (false, false),
        };
        let mut change = |is_wanted: bool| is_wanted && (all || (some && input.once_in(2)));
        let (pd, memory, access) =
            (change(wanted.pd.is_some()), change(wanted.memory.is_some()), change(wanted.access.is_some()));
        // The call reached a provider that implements the operation (`mlx4_SYNC_TPT`).
        let reached = matches!(code, CMD | CMD_AND_DO_FORK_NEW) && (code, errno) != (CMD, Errno::EOPNOTSUPP);
        let fresh = if all { Some(self.keys()) } else { None };
        let entry = self.entries.get_mut(&handle).expect("only what is there is re-registered");
        if self.copies_late && entry.access.lets_peers_write() {
            self.late.insert((handle, entry.memory));
        }
        *entry = Entry {
            pd: wanted.pd.filter(|_| pd).unwrap_or(entry.pd),
            memory: wanted.memory.filter(|_| memory).unwrap_or(entry.memory),
            access: wanted.access.filter(|_| access).unwrap_or(entry.access),
            keys: fresh.unwrap_or(entry.keys),
            known: wanted.memory.filter(|_| reached).or(entry.known),
            // irdma has stored it before the failure.
            known_pd: wanted.pd.filter(|_| reached).or(entry.known_pd),
        };
        Reply { code, errno, keys: entry.keys }
    }

    /// Binds a window to the registration of a key: what a work request in flight names is registered.
    pub(crate) fn bind(&mut self, window: usize, lkey: u32, rkey: u32) {
        let named = self.entries.iter().find(|(_, entry)| entry.keys.lkey == lkey);
        let (&handle, _) = named.unwrap_or_else(|| panic!("a bind names {lkey}, which is not registered"));
        self.windows.insert(window, (handle, rkey));
    }

    /// The registrations to which windows are bound.
    pub(crate) fn bound(&self) -> impl Iterator<Item = u32> {
        self.windows.values().map(|(handle, _)| *handle)
    }

    /// The key of a window, if it is bound.
    pub(crate) fn key(&self, window: usize) -> Option<u32> {
        self.windows.get(&window).map(|(_, rkey)| *rkey)
    }

    /// Unbinds a window. Returns its key, if it was bound.
    pub(crate) fn unbind(&mut self, window: usize) -> Option<u32> {
        self.windows.remove(&window).map(|(_, rkey)| rkey)
    }

    /// No call may reach a registration to which a window is bound: the device does not look (mlx5), and the peer would
    /// access memory or use rights that are gone.
    fn look_for_windows(&self, handle: u32) {
        assert!(self.windows.values().all(|(bound, _)| *bound != handle), "a window is bound to registration {handle}");
    }

    /// `ibv_dereg_mr`: one that fails leaves the registration there, and no promise but for two errnos that it is as
    /// before.
    pub(crate) fn deregister(&mut self, input: &mut Input<'_>, handle: u32) -> Result<(), Errno> {
        assert!(self.entries.contains_key(&handle), "registration {handle} is deregistered twice");
        self.look_for_windows(handle);
        if input.once_in(4) {
            return Err([Errno::EBUSY, Errno::EINVAL, Errno::EIO, Errno(0)][input.below(4)]);
        }
        self.entries.remove(&handle);
        self.late.retain(|(copied, _)| *copied != handle);
        Ok(())
    }
}
