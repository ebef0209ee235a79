//! Copies memory that the device may write meanwhile, or its provider while another thread polls.
//!
//! The copies use relaxed atomics: words, and bytes at the ends. So the compiler neither moves a copy out of a loop
//! that waits for a change, nor merges two copies. `tests/flag_loop.rs` includes this file.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

const WORD: usize = size_of::<u64>();

/// Copies bytes out.
///
/// # Safety
/// The bytes at `from`, as many as `into` has, are alive, initialised and writable. `into` does not overlap them.
/// During the call this program accesses them by loads only.
pub(crate) unsafe fn load(from: *mut u8, into: &mut [u8]) {
    let (first, rest) = into.split_at_mut(from.align_offset(WORD).min(into.len()));
    let mut at = from;
    // SAFETY: `at` passes over the bytes of the caller: single bytes up to an aligned address, then words, then single
    // bytes. It ends one past the last byte.
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
/// As [`load`], and during the call nothing else in this program accesses them.
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

/// Loads a number of `len` bytes, 4 or 8, with acquire ordering: later loads of this thread are not older.
///
/// # Safety
/// As [`load`], for `len` bytes; the address is a multiple of `len`.
pub(crate) unsafe fn load_acquire(from: *mut u8, len: usize) -> u64 {
    // SAFETY: the caller guarantees the bytes and their alignment.
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

/// Stores a number of `len` bytes, 4 or 8, with release ordering: earlier stores of this thread are visible with it.
///
/// # Safety
/// As [`store`], for `len` bytes; the address is a multiple of `len`.
pub(crate) unsafe fn store_release(to: *mut u8, len: usize, bits: u64) {
    // SAFETY: the caller guarantees the bytes and their alignment.
    unsafe {
        if len == size_of::<u32>() {
            AtomicU32::from_ptr(to.cast()).store(bits as u32, Release);
        } else {
            AtomicU64::from_ptr(to.cast()).store(bits, Release);
        }
    }
}
