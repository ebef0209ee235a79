//! Counts the allocations of this program and the crate, without those of the libraries.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The number of bytes allocated now.
pub(crate) fn allocated() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// The number of allocations since the start.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: it is the system's allocator; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As for the trait's function.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As for the trait's function.
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}
