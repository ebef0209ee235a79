//! Memory that can be registered.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use cmid_proto::datapath::Memory;
use cmid_proto::memory;
use parking_lot::RwLock;

/// Memory to be registered: a `Vec`, or memory of another allocator. Dropping it frees the memory.
///
/// [`Memory::share`] makes it memory of several registrations.
///
/// A buffer returns no reference to its memory, because a device may write to registered memory at any time.
///
/// ```compile_fail,E0608
/// # use cmid_verbs::Buffer;
/// fn look(buffer: &Buffer) -> u8 {
///     buffer[0]
/// }
/// ```
///
/// ```compile_fail,E0133
/// # use cmid_verbs::Buffer;
/// fn make_up(start: core::ptr::NonNull<u8>) -> Buffer {
///     Buffer::from_raw(start, 4096, Box::new(()))
/// }
/// ```
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
}

enum Owner {
    /// The memory of a `Vec` with this capacity.
    Vec { capacity: usize },
    /// Memory that this value frees when it is dropped.
    Other { _owner: Box<dyn Send> },
    /// Memory that other registrations may use too: all of it, or a part of a pool.
    Shared(SharedBuffer),
    /// Nothing: the memory has another owner.
    None,
}

/// A handle of memory that several registrations share; see [`Memory`]. It is freed when the last handle and the last
/// registration have let go. Reads and writes by [`Mr`](crate::Mr)s of it are ordered by a lock.
#[derive(Clone)]
pub struct SharedBuffer(Arc<SharedMemory>);

struct SharedMemory {
    buffer: Buffer,
    /// Held while this program reads or writes: two regions may do so at a time.
    access: RwLock<()>,
}

impl SharedBuffer {
    /// Returns a part of it, which is inside.
    pub(super) fn part(&self, range: Range<usize>) -> Buffer {
        let Buffer { start, writable, .. } = self.0.buffer;
        debug_assert!(range.start <= range.end && range.end <= self.0.buffer.len);
        // The provenance is that of the whole.
        let start = NonNull::new(start.as_ptr().wrapping_add(range.start)).unwrap_or(start);
        Buffer { start, len: range.len(), writable, owner: Owner::Shared(self.clone()) }
    }

    /// Whether nobody else has it. Then all accesses by others come before.
    fn is_alone(&self) -> bool {
        let is_alone = Arc::strong_count(&self.0) == 1;
        // The count is loaded relaxed. Each drop of another handle releases it.
        fence(Ordering::Acquire);
        is_alone
    }

    /// Orders the reads and writes of this program by several regions.
    pub(super) fn access(&self) -> &RwLock<()> {
        &self.0.access
    }
}

// SAFETY: it owns its memory alone, and the owner is Send.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives access to address and length only, not to the owner.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Creates a buffer of memory that is not a `Vec`: mapped, of huge pages, shared. Dropping `owner` frees it.
    ///
    /// ```no_run
    /// use cmid_verbs::Buffer;
    /// use core::ptr::{self, NonNull};
    ///
    /// struct Mapping(*mut libc::c_void, usize);
    /// // SAFETY: a mapping belongs to no thread.
    /// unsafe impl Send for Mapping {}
    /// impl Drop for Mapping {
    ///     fn drop(&mut self) {
    ///         // SAFETY: mapped below, and unmapped only here.
    ///         unsafe { libc::munmap(self.0, self.1) };
    ///     }
    /// }
    ///
    /// let (len, rights) = (2 << 20, libc::PROT_READ | libc::PROT_WRITE);
    /// let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    /// // SAFETY: a new mapping, wherever the kernel has room.
    /// let start = unsafe { libc::mmap(ptr::null_mut(), len, rights, how, -1, 0) };
    /// assert_ne!(start, libc::MAP_FAILED);
    /// let owner = Box::new(Mapping(start, len));
    /// let start = NonNull::new(start.cast()).ok_or("mapped at 0")?;
    /// // SAFETY: it was mapped just now, is zeroed, and stays mapped until its owner is dropped.
    /// let buffer = unsafe { Buffer::from_raw(start, len, owner) };
    /// # drop(buffer);
    /// # Ok::<(), &str>(())
    /// ```
    ///
    /// # Safety
    /// From a successful registration until `owner` is dropped:
    /// - all `len` bytes from `start` are mapped, initialised, readable and writable;
    /// - nothing else in this program accesses them: no reference, no pointer, and no other `Buffer` over any of them,
    ///   registered or not (a second registration takes a clone of [`Memory::share`]);
    /// - they are not freed, and nothing else is mapped there.
    ///
    /// For memory that must not be written to, or that other code in this program reads, use
    /// [`Buffer::from_raw_read_only`].
    #[must_use]
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, owner: Box<dyn Send>) -> Self {
        Buffer { start, len, writable: true, owner: Owner::Other { _owner: owner } }
    }

    /// As [`Buffer::from_raw`], for memory that is only read. `EACCES` refuses a registration or re-registration with a
    /// right to write, and [`MemoryRegion::write`](cmid_proto::datapath::MemoryRegion::write).
    ///
    /// # Safety
    /// From a successful registration until `owner` is dropped:
    /// - all `len` bytes from `start` are mapped, initialised and readable;
    /// - nothing in this program writes to them, neither through a reference, a pointer nor another `Buffer`; reads
    ///   are allowed;
    /// - they are not freed, and nothing else is mapped there.
    #[must_use]
    pub unsafe fn from_raw_read_only(start: NonNull<u8>, len: usize, owner: Box<dyn Send>) -> Self {
        Buffer { start, len, writable: false, owner: Owner::Other { _owner: owner } }
    }

    /// Returns the `Vec` that the buffer was created from.
    ///
    /// # Errors
    /// Returns the buffer if it was not created from a `Vec`, or if its memory is shared.
    pub fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        let buffer = self.unshared()?;
        match buffer.owner {
            Owner::Vec { capacity } => {
                let this = ManuallyDrop::new(buffer);
                // SAFETY: these are the parts of the Vec that was taken apart. They are put together once, because
                // `this` is never dropped. A device may have written to it, and any byte is a u8.
                Ok(unsafe { Vec::from_raw_parts(this.start.as_ptr(), this.len, capacity) })
            }
            Owner::Other { .. } | Owner::Shared(_) | Owner::None => Err(buffer),
        }
    }

    /// Returns memory that nobody shares.
    ///
    /// # Errors
    /// Returns the buffer if somebody does.
    pub(super) fn unshared(mut self) -> Result<Buffer, Buffer> {
        // Its drop does nothing then.
        match core::mem::replace(&mut self.owner, Owner::None) {
            Owner::Shared(SharedBuffer(memory)) => match Arc::try_unwrap(memory) {
                Ok(memory) => Ok(memory.buffer),
                Err(memory) => {
                    self.owner = Owner::Shared(SharedBuffer(memory));
                    Err(self)
                }
            },
            owner @ (Owner::Vec { .. } | Owner::Other { .. } | Owner::None) => {
                self.owner = owner;
                Ok(self)
            }
        }
    }

    /// The memory, if other registrations may use it too.
    pub(crate) fn shared(&self) -> Option<&SharedBuffer> {
        match &self.owner {
            Owner::Shared(shared) => Some(shared),
            Owner::Vec { .. } | Owner::Other { .. } | Owner::None => None,
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether writes to the memory are allowed. False for a buffer of [`Buffer::from_raw_read_only`].
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl From<Vec<u8>> for Buffer {
    /// Takes the `Vec` up to its length. Its spare capacity is not registered.
    fn from(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        let (len, capacity) = (vec.len(), vec.capacity());
        // Not through `as_mut_slice`: this pointer is valid for the whole allocation.
        let start = vec.as_mut_ptr();
        // A Vec's pointer is never null.
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        Buffer { start, len, writable: true, owner: Owner::Vec { capacity } }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: these are the parts of the Vec that was taken apart. After `into_vec` has put it together, this
            // drop does not run.
            Owner::Vec { capacity } => drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity) }),
            Owner::Other { .. } | Owner::Shared(_) | Owner::None => {}
        }
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
        match self.shared() {
            Some(shared) if shared.0.buffer.len == self.len => shared.clone(),
            _ => SharedBuffer(Arc::new(SharedMemory { buffer: self, access: RwLock::new(()) })),
        }
    }

    fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        self.into_vec()
    }
}

impl From<SharedBuffer> for Buffer {
    fn from(shared: SharedBuffer) -> Self {
        shared.part(0..shared.0.buffer.len)
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("len", &self.0.buffer.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).field("writable", &self.writable).finish_non_exhaustive()
    }
}

/// The buffer of a registration. Dropping it leaks the memory. [`Pinned::release`] takes the buffer out once the
/// registration is known to be gone. So no device refers to freed memory.
pub(crate) struct Pinned(ManuallyDrop<Buffer>);

impl Pinned {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Pinned(ManuallyDrop::new(buffer))
    }

    /// Takes the buffer out. Called when the device no longer refers to it.
    pub(crate) fn release(self) -> Buffer {
        ManuallyDrop::into_inner(self.0)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    /// The memory, if other registrations may use it too.
    pub(crate) fn shared(&self) -> Option<&SharedBuffer> {
        self.0.shared()
    }

    /// The same memory for another registration, if it is shared.
    pub(crate) fn again(&self) -> Option<Buffer> {
        let Buffer { start, len, writable, .. } = *self.0;
        self.shared().map(|shared| Buffer { start, len, writable, owner: Owner::Shared(shared.clone()) })
    }

    /// Whether another registration, or a handle, has the memory too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared().is_some_and(|shared| !shared.is_alone())
    }
}

impl memory::Buffer for Pinned {
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Flag(Arc<AtomicBool>);

    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn owned(dropped: &Arc<AtomicBool>) -> Buffer {
        // SAFETY: never registered.
        unsafe { Buffer::from_raw(NonNull::dangling(), 8, Box::new(Flag(Arc::clone(dropped)))) }
    }

    #[test]
    fn a_vec_comes_back_as_it_was() {
        let mut vec = Vec::with_capacity(64);
        vec.extend_from_slice(b"hello");
        let at = vec.as_ptr();
        let back = Pinned::new(Buffer::from(vec)).release().into_vec().expect("a Vec");
        assert_eq!((back.as_ptr(), back.as_slice(), back.capacity()), (at, &b"hello"[..], 64));
        assert!(Buffer::from(Vec::new()).is_empty());
    }

    #[test]
    fn the_owner_goes_with_the_buffer() {
        let dropped = Arc::new(AtomicBool::new(false));
        let buffer = owned(&dropped).into_vec().expect_err("not a Vec");
        assert_eq!((buffer.len(), dropped.load(Ordering::Relaxed)), (8, false));
        drop(buffer);
        assert!(dropped.load(Ordering::Relaxed));
    }

    #[test]
    fn what_is_pinned_is_leaked_rather_than_freed() {
        static DROPPED: AtomicBool = AtomicBool::new(false);
        /// Allocates nothing: this test also runs under LeakSanitizer.
        struct Owner;
        impl Drop for Owner {
            fn drop(&mut self) {
                DROPPED.store(true, Ordering::Relaxed);
            }
        }
        // SAFETY: never registered.
        let buffer = || unsafe { Buffer::from_raw(NonNull::dangling(), 8, Box::new(Owner)) };
        {
            let _ends_here = Pinned::new(buffer());
        }
        assert!(!DROPPED.load(Ordering::Relaxed));
        drop(Pinned::new(buffer()).release());
        assert!(DROPPED.load(Ordering::Relaxed));
    }
}
