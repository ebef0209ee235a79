//! Copies of memory that something else may write to meanwhile: the device, or its provider while another thread polls.
//!
//! By relaxed atomics, word by word and at the ends byte by byte. So a copy is a copy each time: the compiler neither
//! moves it out of a loop that waits for a change, nor takes two copies for one. `tests/flag_loop.rs` includes this
//! file.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

const WORD: usize = size_of::<u64>();

/// Copies bytes out.
///
/// # Safety
/// From `from` on as many bytes as `into` has are alive, initialised and may be written to, and `into` does not
/// overlap them. While this runs this program accesses them by loads only.
#[inline]
pub(crate) unsafe fn load(from: *mut u8, into: &mut [u8]) {
    let (first, rest) = into.split_at_mut(from.align_offset(WORD).min(into.len()));
    let mut at = from;
    // SAFETY: `at` goes through the bytes that the caller vouches for, one by one, then word by word where it is
    // aligned, then one by one; it ends one past the last of them.
    unsafe {
        for byte in first {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes());
            at = at.add(WORD);
        }
        for byte in words.into_remainder() {
            *byte = AtomicU8::from_ptr(at).load(Relaxed);
            at = at.add(1);
        }
    }
}

/// Copies bytes in.
///
/// # Safety
/// As [`load`], and while this runs nothing else in this program accesses them.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) {
    let (first, rest) = from.split_at(to.align_offset(WORD).min(from.len()));
    let mut at = to;
    // SAFETY: as in `load`.
    unsafe {
        for &byte in first {
            AtomicU8::from_ptr(at).store(byte, Relaxed);
            at = at.add(1);
        }
        let words = rest.chunks_exact(WORD);
        let last = words.remainder();
        for word in words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(bytes), Relaxed);
            at = at.add(WORD);
        }
        for &byte in last {
            AtomicU8::from_ptr(at).store(byte, Relaxed);
            at = at.add(1);
        }
    }
}

/// The number of `len` bytes, 4 or 8, that is there; what this thread loads after it is not older.
///
/// # Safety
/// As [`load`], of `len` bytes; the address is a multiple of `len`.
#[inline]
pub(crate) unsafe fn load_acquire(from: *mut u8, len: usize) -> u64 {
    // SAFETY: the caller vouches for the bytes and for their alignment.
    let bits = unsafe {
        if len == size_of::<u32>() {
            u64::from(AtomicU32::from_ptr(from.cast()).load(Relaxed))
        } else {
            AtomicU64::from_ptr(from.cast()).load(Relaxed)
        }
    };
    fence(Acquire);
    bits
}

/// Stores a number of `len` bytes, 4 or 8; what this thread has stored before is there when the number is.
///
/// # Safety
/// As [`store`], of `len` bytes; the address is a multiple of `len`.
#[inline]
pub(crate) unsafe fn store_release(to: *mut u8, len: usize, bits: u64) {
    // SAFETY: the caller vouches for the bytes and for their alignment.
    unsafe {
        if len == size_of::<u32>() {
            AtomicU32::from_ptr(to.cast()).store(bits as u32, Release);
        } else {
            AtomicU64::from_ptr(to.cast()).store(bits, Release);
        }
    }
}
