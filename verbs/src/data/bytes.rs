//! Registered memory, read and written by this program.

use core::fmt;
use core::slice;

use cmid_proto::Errno;
use cmid_proto::memory::{Flag, Traffic};

use crate::data::{Access, Mr, words};

impl Mr {
    /// Copies bytes out, from `offset` on, by relaxed atomic loads: of words where they are aligned, of bytes at the
    /// ends. What the device writes meanwhile is seen or not, word by word, and what it has written is seen by a
    /// later call: a loop that waits for it ends. To order reads after a flag that a peer writes, there is
    /// [`Mr::load_acquire`]; for much data, [`Mr::slice`].
    ///
    /// # Errors
    /// `EINVAL` if that is not all inside.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let from = self.inside(offset, into.len())?;
        if self.writable {
            // SAFETY: the range is inside the memory (just checked), which is alive and initialised, and can be
            // written to. `into` does not overlap it: a reference into the memory, as of `slice`, borrows `self` by
            // `&mut`. So does whatever by which this program stores there.
            unsafe { words::load(from, into) };
        } else {
            // SAFETY: the range is inside the memory (just checked), which is alive and initialised, and `into` does
            // not overlap it. Nothing writes to such memory: no right to write can be given, to nobody, and whoever
            // made the buffer vouches for the rest of the program.
            unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        }
        Ok(())
    }

    /// Copies bytes in, from `offset` on, by relaxed atomic stores.
    ///
    /// # Errors
    /// `EINVAL` if that is not all inside; `EACCES` for memory of
    /// [`Buffer::from_raw_read_only`](crate::Buffer::from_raw_read_only).
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        let to = self.to_write(offset, from.len())?;
        // SAFETY: as in `read`, and with `&mut self` nothing else in this program accesses the memory now.
        unsafe { words::store(to, from) };
        Ok(())
    }

    /// Loads a number that a peer or the device writes, as an atomic: what this program reads after it was written
    /// before it, as far as the device writes in order.
    ///
    /// # Errors
    /// `EINVAL` if it is not all inside, or if its address ([`Mr::addr`] and the offset) is not a multiple of its
    /// length.
    #[inline]
    pub fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        let from = self.aligned(self.inside(offset, F::LEN)?, F::LEN)?;
        if self.writable {
            // SAFETY: the number is inside the memory and aligned (just checked), the rest is as in `read`.
            return Ok(F::from_bits(unsafe { words::load_acquire(from, F::LEN) }));
        }
        // It does not change.
        let mut bytes = [0; size_of::<u64>()];
        let number = bytes.get_mut(..F::LEN).ok_or(Errno::EINVAL)?;
        self.read(offset, number)?;
        F::from_slice(number).ok_or(Errno::EINVAL)
    }

    /// Stores a number that a peer reads, as an atomic, after all that this thread has written before.
    ///
    /// # Errors
    /// As [`Mr::load_acquire`]; `EACCES` for memory of
    /// [`Buffer::from_raw_read_only`](crate::Buffer::from_raw_read_only).
    #[inline]
    pub fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        let to = self.aligned(self.to_write(offset, F::LEN)?, F::LEN)?;
        // SAFETY: the number is inside the memory and aligned (just checked), the rest is as in `write`.
        unsafe { words::store_release(to, F::LEN, number.bits()) };
        Ok(())
    }

    /// The memory itself, to be read, while nothing but this program can write to it. As long as the slice is there,
    /// the MR is borrowed, and cannot be posted. Looks through what the QPs of its PD have in flight.
    ///
    /// # Errors
    /// `EBUSY` while work in flight names it; `EACCES` if peers may write to it, themselves or by a window: with
    /// [`Access::REMOTE_WRITE`] or [`Access::REMOTE_ATOMIC`], or with both [`Access::MW_BIND`] and
    /// [`Access::LOCAL_WRITE`], or after a failed re-registration that was to give them that; `EINVAL` if it is
    /// unusable. Then there is [`Mr::view`].
    pub fn slice(&mut self) -> Result<&[u8], Errno> {
        self.check_own()?;
        // SAFETY: the memory is alive and initialised. Nobody writes to it as long as `self` is borrowed: this
        // program does so by `&mut Mr` only; the device and its provider by work in flight, of which there is none,
        // and which takes `&Mr` to come to be; a peer has no right to, and it takes `&mut Mr` to be given one, or
        // `&Mr` by a window.
        Ok(unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    /// As [`Mr::slice`], to be written to. A peer that may read it sees what is written when it is written, in no
    /// order.
    ///
    /// # Errors
    /// As [`Mr::slice`]; `EACCES` also for memory of [`Buffer::from_raw_read_only`](crate::Buffer::from_raw_read_only).
    pub fn slice_mut(&mut self) -> Result<&mut [u8], Errno> {
        self.check_own()?;
        if !self.writable {
            return Err(Errno::EACCES);
        }
        // SAFETY: as in `slice`, the memory may be written to, and as `self` is borrowed by `&mut` nothing else in
        // this program accesses it. That a device reads it meanwhile changes nothing here.
        Ok(unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }

    /// The memory itself, byte by byte or word by word, also while work is in flight or the device writes.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View(self)
    }

    /// Whether nothing but this program writes to it.
    fn check_own(&self) -> Result<(), Errno> {
        let registration = self.registration.as_ref().ok_or(Errno::EINVAL)?;
        let access: Access = registration.access().ok_or(Errno::EINVAL)?;
        if access.lets_peers_write() || registration.is_exposed() {
            return Err(Errno::EACCES);
        }
        match registration.traffic() {
            Traffic::Quiet => Ok(()),
            Traffic::InFlight => Err(Errno::EBUSY),
        }
    }

    /// Where a range begins that is inside.
    #[inline]
    fn inside(&self, offset: usize, len: usize) -> Result<*mut u8, Errno> {
        match offset.checked_add(len) {
            // Inside the memory, or right behind it.
            Some(end) if end <= self.len => Ok(self.start.as_ptr().wrapping_add(offset)),
            Some(_) | None => Err(Errno::EINVAL),
        }
    }

    #[inline]
    fn to_write(&self, offset: usize, len: usize) -> Result<*mut u8, Errno> {
        let to = self.inside(offset, len)?;
        if self.writable { Ok(to) } else { Err(Errno::EACCES) }
    }

    #[inline]
    fn aligned(&self, at: *mut u8, len: usize) -> Result<*mut u8, Errno> {
        if at.addr().is_multiple_of(len) { Ok(at) } else { Err(Errno::EINVAL) }
    }
}

/// Registered memory as atomics, to be read where it is: see [`Mr::view`].
#[derive(Clone, Copy)]
pub struct View<'a>(&'a Mr);

impl View<'_> {
    /// How many bytes it has.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One byte, by a relaxed load; `None` beyond the end.
    #[must_use]
    #[inline]
    pub fn byte(&self, offset: usize) -> Option<u8> {
        let mut byte = [0];
        self.0.read(offset, &mut byte).ok()?;
        Some(byte[0])
    }

    /// Eight bytes in the order of this machine, by one relaxed load; `None` if they are not all inside, or not
    /// aligned.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> Option<u64> {
        let mut word = [0; size_of::<u64>()];
        let from = self.0.inside(offset, word.len()).ok()?;
        self.0.aligned(from, word.len()).ok()?;
        self.0.read(offset, &mut word).ok()?;
        Some(u64::from_ne_bytes(word))
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).finish_non_exhaustive()
    }
}
