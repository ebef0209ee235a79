//! Memory that is not a `Vec`, and what the kernel counts of it.

use core::num::NonZero;
use core::ptr::{self, NonNull};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cmid_verbs::Buffer;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

pub(crate) const PAGE: usize = 4096;

/// Pages that are unmapped when it is dropped.
struct Mapping {
    start: *mut core::ffi::c_void,
    len: usize,
    /// Counts those that are gone.
    unmapped: Arc<AtomicUsize>,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `mapped`, and unmapped only here.
        unsafe { munmap(self.start, self.len) }.expect("munmap");
        self.unmapped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Some zeroed pages, and how often their owner was dropped.
pub(crate) fn mapped(len: usize, rights: ProtFlags) -> (Buffer, Arc<AtomicUsize>) {
    // SAFETY: a new mapping, wherever there is room.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, rights, MapFlags::PRIVATE) }.expect("mmap");
    let unmapped = Arc::new(AtomicUsize::new(0));
    let owner = Box::new(Mapping { start, len, unmapped: Arc::clone(&unmapped) });
    let start = NonNull::new(start.cast()).expect("not at 0");
    // SAFETY: they are mapped and zeroed, and stay so until the owner is dropped. Of pages that cannot be written the
    // checks write nothing.
    (unsafe { Buffer::from_raw(start, len, owner) }, unmapped)
}

/// A page that is not mapped, and never will be: it is below what programs may map (vm.mmap_min_addr).
pub(crate) fn unmapped() -> Buffer {
    let start = NonNull::without_provenance(NonZero::new(PAGE).expect("not 0"));
    // SAFETY: it cannot be registered.
    unsafe { Buffer::from_raw(start, PAGE, Box::new(())) }
}

/// How many MRs the kernel has for programs, on all devices (rdma-resource(8)); there is no other program.
pub(crate) fn kernel_mrs() -> usize {
    let shown = Command::new("rdma").args(["resource", "show", "mr"]).output().expect("rdma(8)");
    assert!(shown.status.success(), "{shown:?}");
    // Its own ones have no process; one of a thread has the thread's number.
    String::from_utf8_lossy(&shown.stdout).lines().filter(|line| line.contains(" pid ")).count()
}
