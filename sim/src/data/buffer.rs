//! Memory that can be registered.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cmid_proto::datapath::Memory;
use cmid_proto::memory;

use crate::data::space::{Lent, Stretch};
use crate::fabric::shared::Shared;

/// Memory to be registered: a `Vec`, or memory that several registrations share.
#[derive(Clone)]
pub struct Buffer(Kind);

#[derive(Clone)]
enum Kind {
    Owned(Vec<u8>),
    /// A range of shared memory.
    Shared(SharedBuffer, Range<usize>),
}

/// Memory that several registrations share, of several PDs and devices of one fabric: a handle of it. It is freed when
/// the last handle and the last registration have let go. Until then [`MemoryRegion::slice`] of each registration
/// returns `EBUSY`.
///
/// [`MemoryRegion::slice`]: cmid_proto::datapath::MemoryRegion::slice
#[derive(Clone)]
pub struct SharedBuffer(Arc<SharedMemory>);

struct SharedMemory {
    len: usize,
    place: Mutex<Place>,
}

/// Where the bytes are.
enum Place {
    /// Not registered yet.
    Here(Vec<u8>),
    /// In the fabric.
    Lent(Weak<Shared>, Stretch),
}

impl Buffer {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Owned(bytes) => bytes.len(),
            Kind::Shared(_, range) => range.len(),
        }
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns memory that nobody shares.
    ///
    /// # Errors
    /// Returns the buffer if somebody does.
    pub(super) fn unshared(self) -> Result<Buffer, Buffer> {
        self.into_vec().map(Buffer::from)
    }

    /// Moves the bytes to the fabric, unless another registration has.
    pub(super) fn lend(self, shared: &Shared, weak: &Weak<Shared>) -> Lent {
        match self.0 {
            Kind::Owned(bytes) => Lent { stretch: shared.with(|world| world.memory.space.map(bytes)), shared: None },
            Kind::Shared(buffer, range) => {
                let Stretch { addr, .. } = buffer.lend(shared, weak);
                let stretch = Stretch { addr: addr + range.start as u64, len: range.len() };
                Lent { stretch, shared: Some((buffer, range)) }
            }
        }
    }

    /// Returns the buffer of a registration that is over. Counts one that the device still refers to.
    pub(super) fn given_back(lent: &Lent, shared: &Shared) -> Self {
        Buffer::again(lent).unwrap_or_else(|| Buffer(Kind::Owned(unmap(shared, lent.stretch))))
    }

    /// The same memory for another registration, if it is shared.
    pub(super) fn again(lent: &Lent) -> Option<Self> {
        lent.shared.as_ref().map(|(buffer, range)| Buffer(Kind::Shared(buffer.clone(), range.clone())))
    }
}

/// Takes bytes out of the fabric. Counts those that a device still refers to.
fn unmap(shared: &Shared, stretch: Stretch) -> Vec<u8> {
    shared.with(|world| {
        if world.memory.refers_to(stretch) {
            world.counters.freed_in_use += 1;
        }
        world.memory.space.unmap(stretch)
    })
}

impl SharedBuffer {
    fn lend(&self, shared: &Shared, weak: &Weak<Shared>) -> Stretch {
        let mut place = self.0.place();
        match &mut *place {
            Place::Lent(of, stretch) if Weak::ptr_eq(of, weak) => *stretch,
            // In another fabric, whose addresses are those of other memory here: no memory has this one.
            Place::Lent(..) => Stretch { addr: 0, len: self.0.len },
            Place::Here(bytes) => {
                let bytes = std::mem::take(bytes);
                let stretch = shared.with(|world| world.memory.space.map(bytes));
                *place = Place::Lent(weak.clone(), stretch);
                stretch
            }
        }
    }

    /// Returns a part of it.
    pub(super) fn part(&self, range: Range<usize>) -> Buffer {
        Buffer(Kind::Shared(self.clone(), range))
    }

    /// Whether nobody else has it.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl SharedMemory {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        let place = std::mem::replace(&mut *self.place(), Place::Here(Vec::new()));
        match place {
            Place::Here(bytes) => bytes,
            Place::Lent(shared, stretch) => shared
                .upgrade()
                .map(|shared| shared.with(|world| world.memory.space.unmap(stretch)))
                .unwrap_or_default(),
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.take();
    }
}

impl memory::Buffer for Buffer {
    fn len(&self) -> usize {
        self.len()
    }
}

impl Memory for Buffer {
    type Shared = SharedBuffer;

    fn share(self) -> SharedBuffer {
        match self.0 {
            Kind::Owned(bytes) => {
                SharedBuffer(Arc::new(SharedMemory { len: bytes.len(), place: Mutex::new(Place::Here(bytes)) }))
            }
            Kind::Shared(shared, _) => shared,
        }
    }

    fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        match self.0 {
            Kind::Owned(bytes) => Ok(bytes),
            Kind::Shared(SharedBuffer(memory), range) => match Arc::try_unwrap(memory) {
                Ok(memory) => Ok(memory.take()),
                Err(memory) => Err(Buffer(Kind::Shared(SharedBuffer(memory), range))),
            },
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer(Kind::Owned(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Buffer {
    fn from(bytes: [u8; N]) -> Self {
        Buffer::from(Vec::from(bytes))
    }
}

impl From<SharedBuffer> for Buffer {
    fn from(shared: SharedBuffer) -> Self {
        let len = shared.0.len;
        shared.part(0..len)
    }
}

/// Buffers are equal if their bytes are, or if they are the same shared memory.
impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Owned(own), Kind::Owned(bytes)) => own == bytes,
            (Kind::Shared(own, range), Kind::Shared(shared, other)) => own == shared && range == other,
            (Kind::Owned(_), Kind::Shared(..)) | (Kind::Shared(..), Kind::Owned(_)) => false,
        }
    }
}

impl Eq for Buffer {}

impl<const N: usize> PartialEq<[u8; N]> for Buffer {
    fn eq(&self, other: &[u8; N]) -> bool {
        matches!(&self.0, Kind::Owned(bytes) if bytes == other)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Owned(bytes) => bytes.fmt(f),
            Kind::Shared(shared, range) => f.debug_tuple("Shared").field(shared).field(range).finish(),
        }
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("len", &self.0.len).finish_non_exhaustive()
    }
}

impl PartialEq for SharedBuffer {
    /// Whether it is the same memory.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedBuffer {}
