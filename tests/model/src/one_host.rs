//! The kernel with one host, as a value: two of them are equal, and hash alike, if the same is yet to come. For searches
//! of all states.

use std::hash::{Hash, Hasher};

use cmid_proto::{Call, ChannelKey, CmEvent, Errno, IdKey, Outcome, RawEvent};

use crate::model::device::Device;
pub use crate::model::happening::Happening;
use crate::model::kernel::{File, Kernel, No, Phase};

/// The kernel, and the ids and channels of a host. It panics on calls that a core must never make.
#[derive(Clone, Debug)]
pub struct OneHost {
    kernel: Kernel,
    device: Device,
}

impl Default for OneHost {
    fn default() -> Self {
        let mut kernel = Kernel::default();
        kernel.moves_removed = true;
        OneHost { kernel, device: Device::default() }
    }
}

/// A channel with the owners and kinds of its unread events.
type Channel = (ChannelKey, Vec<(Option<IdKey>, CmEvent)>);

impl OneHost {
    /// Makes a call. Given an errno, it fails if it can fail.
    pub fn call(&mut self, call: &Call, refused: Option<Errno>) -> Outcome {
        if let (Call::Destroy { .. }, Some(errno)) = (call, refused) {
            return Err(errno);
        }
        self.device.refusal = refused.map(|errno| (0, errno));
        let outcome = self.device.call(&mut self.kernel, call);
        self.device.refusal = None;
        outcome
    }

    /// Reads the next event of a channel; the id of a request gets the key `child`.
    pub fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Option<RawEvent<&'static [u8]>> {
        let fetched = self.kernel.fetch(*self.device.files.get(&on).expect("a channel that is read is open"), child)?;
        let owner = self.kernel.id(fetched.owner).key.expect("an id that has events has a key");
        let raw = RawEvent { status: fetched.event.status, ..RawEvent::new(owner, fetched.event.kind) };
        if fetched.event.kind != CmEvent::ConnectRequest {
            return Some(raw);
        }
        self.device.insert(child, fetched.id);
        Some(RawEvent { id: child, listener: Some(owner), ..raw })
    }

    /// What may happen to an id, if the device has it.
    #[must_use]
    pub fn possible(&self, id: IdKey) -> Vec<Happening> {
        self.device.ids.get(&id).map_or(Vec::new(), |&no| self.kernel.possible(no))
    }

    /// Whether an id is bound, and nothing else.
    #[must_use]
    pub fn is_bound(&self, id: IdKey) -> bool {
        self.device.ids.get(&id).is_some_and(|&no| self.kernel.id(no).stage == Phase::Bound)
    }

    /// It happens. Returns the channels that become readable.
    pub fn happen(&mut self, id: IdKey, what: Happening) -> Vec<ChannelKey> {
        self.kernel.happen(self.device.ids[&id], what);
        let woken = std::mem::take(&mut self.kernel.wakes);
        self.device.files.iter().filter(|(_, file)| woken.contains(file)).map(|(&channel, _)| channel).collect()
    }

    /// The number of unread events of an id.
    #[must_use]
    pub fn unread_of(&self, id: IdKey) -> usize {
        let of_it = |no: &No| self.kernel.files.values().flatten().filter(|event| event.owner == *no).count();
        self.device.ids.get(&id).map_or(0, of_it)
    }

    /// The number of unread events.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.kernel.files.values().map(|unread| unread.len()).sum()
    }

    /// Whether no id and no channel is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernel.ids.is_empty() && self.kernel.files.is_empty()
    }

    fn channel(&self, file: File) -> Option<ChannelKey> {
        self.device.files.iter().find(|(_, other)| **other == file).map(|(&channel, _)| channel)
    }

    /// The ids: channel, phase, and what decides about later calls and events.
    fn ids(&self) -> impl Iterator<Item = (IdKey, Option<ChannelKey>, Phase, [bool; 5])> {
        self.device.ids.iter().map(|(&key, &no)| {
            let id = self.kernel.id(no);
            let flags = [id.disconnected, id.device, id.verbs, id.deaf, id.removed];
            (key, self.channel(id.file), id.stage, flags)
        })
    }

    fn channels(&self) -> impl Iterator<Item = Channel> {
        self.device.files.iter().map(|(&channel, file)| {
            let unread = self.kernel.files[file].iter();
            (channel, unread.map(|event| (self.kernel.id(event.owner).key, event.kind)).collect())
        })
    }
}

impl PartialEq for OneHost {
    fn eq(&self, other: &Self) -> bool {
        self.ids().eq(other.ids()) && self.channels().eq(other.channels())
    }
}

impl Eq for OneHost {}

impl Hash for OneHost {
    fn hash<H: Hasher>(&self, into: &mut H) {
        self.ids().for_each(|id| id.hash(into));
        self.channels().for_each(|channel| channel.hash(into));
    }
}
