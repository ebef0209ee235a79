//! Memory that is not a `Vec`, and the kernel's count of MRs.

use core::num::NonZero;
use core::ptr::{self, NonNull};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cmid_verbs::Buffer;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

pub(crate) const PAGE: usize = 4096;

/// Pages that are unmapped on drop.
struct Mapping {
    start: *mut core::ffi::c_void,
    len: usize,
    /// Counts the mappings that were dropped.
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

/// Makes zeroed pages. Returns them with a counter of drops.
pub(crate) fn mapped(len: usize) -> (Buffer, Arc<AtomicUsize>) {
    let (start, owner, unmapped) = pages(len, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the pages are mapped for reading and writing, zeroed, and stay so until the owner is dropped. Nothing
    // else refers to them.
    (unsafe { Buffer::from_raw(start, len, owner) }, unmapped)
}

/// The same for read-only pages.
pub(crate) fn mapped_read_only(len: usize) -> (Buffer, Arc<AtomicUsize>) {
    let (start, owner, unmapped) = pages(len, ProtFlags::READ);
    // SAFETY: the pages are mapped for reading, zeroed, and stay so until the owner is dropped. Nothing else refers
    // to them.
    (unsafe { Buffer::from_raw_read_only(start, len, owner) }, unmapped)
}

/// A read-only page in a buffer that is marked as writable. Its registration must fail.
pub(crate) fn mislabelled() -> Buffer {
    let (start, owner, _) = pages(PAGE, ProtFlags::READ);
    // SAFETY: it will not be registered with success.
    unsafe { Buffer::from_raw(start, PAGE, owner) }
}

fn pages(len: usize, rights: ProtFlags) -> (NonNull<u8>, Box<Mapping>, Arc<AtomicUsize>) {
    // SAFETY: a new mapping, wherever there is room.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, rights, MapFlags::PRIVATE) }.expect("mmap");
    let unmapped = Arc::new(AtomicUsize::new(0));
    let owner = Box::new(Mapping { start, len, unmapped: Arc::clone(&unmapped) });
    (NonNull::new(start.cast()).expect("not at 0"), owner, unmapped)
}

/// A page that is never mapped: it is below the lowest address for programs (vm.mmap_min_addr).
pub(crate) fn unmapped() -> Buffer {
    let start = NonNull::without_provenance(NonZero::new(PAGE).expect("not 0"));
    // SAFETY: it cannot be registered.
    unsafe { Buffer::from_raw(start, PAGE, Box::new(())) }
}

/// The number of MRs of programs in the kernel, on all devices (rdma-resource(8)). There is no other program.
pub(crate) fn kernel_mrs() -> usize {
    let shown = Command::new("rdma").args(["resource", "show", "mr"]).output().expect("rdma(8)");
    assert!(shown.status.success(), "{shown:?}");
    // The kernel's own MRs have no process. An MR of a thread has the thread's number.
    String::from_utf8_lossy(&shown.stdout).lines().filter(|line| line.contains(" pid ")).count()
}
