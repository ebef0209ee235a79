//! A device with its own records: the PD and the memory of each registration.

use std::collections::BTreeMap;

use cmid_proto::Errno;
use cmid_proto::memory::{Keys, MemoryCall, MemoryOutcome, Provider, Reply};

use crate::owned::{Memory, Use};

/// A registration in the device's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) pd: usize,
    pub(crate) memory: u32,
    /// Other memory that the device may refer to after a failure.
    pub(crate) knows: Option<u32>,
    pub(crate) keys: Keys,
    owner: usize,
}

#[derive(Default)]
pub(crate) struct Kernel {
    entries: BTreeMap<u32, Entry>,
    next: u32,
}

/// The effect of an `ibv_rereg_mr`.
#[derive(Clone, Copy, PartialEq)]
enum Did {
    All,
    Nothing,
    /// Not known from its result.
    Something,
}

const REPLIES: [(i32, Errno, Did); 12] = [
    (0, Errno(0), Did::All),
    (0, Errno::EINVAL, Did::All),
    (-3, Errno::ENOMEM, Did::All),
    (-4, Errno::EOPNOTSUPP, Did::Nothing),
    (-4, Errno::EOPNOTSUPP, Did::Nothing),
    (-4, Errno::EOPNOTSUPP, Did::Nothing),
    (-4, Errno::EINVAL, Did::Nothing),
    (-1, Errno::EINVAL, Did::Nothing),
    (-2, Errno::ENOMEM, Did::Nothing),
    (-4, Errno::EIO, Did::Something),
    (-5, Errno::ENOMEM, Did::Something),
    (-9, Errno::EIO, Did::Something),
];

impl Kernel {
    /// The number of registrations of a PD.
    pub(crate) fn uses(&self, pd: usize) -> usize {
        self.entries.values().filter(|entry| entry.pd == pd).count()
    }

    /// The registrations of a region.
    pub(crate) fn of(&self, owner: usize) -> Vec<Entry> {
        self.entries.values().filter(|entry| entry.owner == owner).copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn keys(&mut self) -> Keys {
        self.next += 1;
        Keys { lkey: self.next, rkey: self.next + 1_000_000 }
    }

    /// Makes the call of a region. With `luck` 0 it succeeds.
    pub(crate) fn answer(
        &mut self,
        owner: usize,
        call: &MemoryCall<'_, Use, Memory, u32>,
        provider: Provider,
        removed: bool,
        luck: u8,
    ) -> MemoryOutcome<u32> {
        match call {
            MemoryCall::Register { .. } if removed => MemoryOutcome::Registered(Err(Errno::EIO)),
            MemoryCall::Register { .. } if luck % 5 == 4 => MemoryOutcome::Registered(Err(Errno::ENOMEM)),
            MemoryCall::Register { pd, buffer, .. } => {
                let keys = self.keys();
                let entry = Entry { pd: pd.0.number, memory: buffer.number, knows: None, keys, owner };
                self.entries.insert(self.next, entry);
                MemoryOutcome::Registered(Ok((self.next, keys)))
            }
            MemoryCall::Reregister { handle, change } => {
                let (code, errno, did) = REPLIES[usize::from(luck) % REPLIES.len()];
                let keys = self.keys();
                let entry = self.entries.get_mut(handle).unwrap();
                // A provider that checks first has done nothing, unless the code is undocumented.
                let checked = provider == Provider::ChecksFirst && matches!(code, -4 | -5);
                if did == Did::All || (did == Did::Something && luck % 2 == 1 && !checked) {
                    entry.keys = keys;
                    entry.pd = change.pd.as_ref().map_or(entry.pd, |pd| pd.0.number);
                    entry.memory = change.buffer.as_ref().map_or(entry.memory, |buffer| buffer.number);
                }
                // A provider that has the operation may have passed the memory to the device before it failed.
                if matches!(code, -4 | -5) && errno != Errno::EOPNOTSUPP && did != Did::All {
                    let requested = change.buffer.as_ref().map(|buffer| buffer.number);
                    entry.knows = requested.filter(|&requested| requested != entry.memory).or(entry.knows);
                }
                MemoryOutcome::Reregistered(Reply { code, errno, keys: entry.keys })
            }
            MemoryCall::Deregister { handle } => {
                assert!(self.entries.contains_key(handle), "registration {handle} is deregistered twice");
                let errno = match luck % 6 {
                    3 => Errno::EBUSY,
                    4 => Errno::EINVAL,
                    5 => Errno::EIO,
                    _ => {
                        self.entries.remove(handle);
                        return MemoryOutcome::Deregistered(Ok(()));
                    }
                };
                MemoryOutcome::Deregistered(Err(errno))
            }
        }
    }
}
