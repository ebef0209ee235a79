//! The process that an object was made in.
//!
//! A child of fork(2) inherits copies of all objects. The descriptors in them are those of the parent, so a command of
//! the child would end objects of the parent: `ibv_destroy_qp` in a child stops the parent's connection. Therefore each
//! drop compares the process first, and ends nothing in a child. The memory of the copies is leaked: the libraries'
//! locks and counts may be in any state there.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use cmid_proto::Errno;

/// A process. Equal numbers are the same process, for a process and its ancestors.
///
/// The number is in a page that the kernel clears in a child (`MADV_WIPEONFORK` of madvise(2)). A comparison is two
/// loads; getpid(2) is a system call of about 300 ns, and a child can have the number of an ancestor that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

/// The page with the number of this process; 0 in a new child. Null until the first use. It is never unmapped.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The largest number of this process and its ancestors.
static LAST: AtomicU32 = AtomicU32::new(0);

const PAGE_LEN: usize = 4096;

impl Process {
    /// Returns this process.
    ///
    /// # Errors
    /// The errno of mmap(2) and madvise(2), at the first call: `ENOMEM`; `EINVAL` on kernels before 4.14.
    pub(crate) fn current() -> Result<Self, Errno> {
        let page = page()?;
        let number = page.load(Ordering::Relaxed);
        if number != 0 {
            return Ok(Process(number));
        }
        // A new process, or a thread of it was first.
        let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let stored = page.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        Ok(Process(stored.map_or_else(|first| first, |_| new)))
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// Whether it is another process: an ancestor of this one. What was made in it must not be ended here.
    pub(crate) fn is_other(self) -> bool {
        // SAFETY: the pointer is null or that of the page, which stays mapped, is aligned, and is accessed by atomics.
        let here = unsafe { PAGE.load(Ordering::Relaxed).as_ref() };
        here.is_none_or(|number| number.load(Ordering::Relaxed) != self.0)
    }
}

fn page() -> Result<&'static AtomicU32, Errno> {
    // SAFETY: as in `is_other`.
    if let Some(page) = unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        return Ok(page);
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let new = unsafe { libc::mmap(ptr::null_mut(), PAGE_LEN, protection, flags, -1, 0) };
    if new == libc::MAP_FAILED {
        return Err(crate::errno::last());
    }
    // SAFETY: the mapping was just made, and nothing else uses it.
    if unsafe { libc::madvise(new, PAGE_LEN, libc::MADV_WIPEONFORK) } != 0 {
        let errno = crate::errno::last();
        // SAFETY: as above.
        unsafe { libc::munmap(new, PAGE_LEN) };
        return Err(errno);
    }
    match PAGE.compare_exchange(ptr::null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: the page is mapped for reading and writing, aligned, zeroed, and never unmapped.
        Ok(_) => Ok(unsafe { &*new.cast::<AtomicU32>() }),
        Err(first) => {
            // SAFETY: another thread was first, and nothing uses this mapping.
            unsafe { libc::munmap(new, PAGE_LEN) };
            // SAFETY: as in `is_other`; it is not null, because the exchange has failed.
            Ok(unsafe { &*first })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a function in a forked child, and returns its result.
    fn in_a_child(child: impl FnOnce() -> u8) -> i32 {
        // SAFETY: the child makes only system calls and accesses memory by atomics.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let status = child();
            // SAFETY: ends the child, without the destructors of the parent.
            unsafe { libc::_exit(i32::from(status)) };
        }
        assert!(pid > 0, "fork");
        let mut status = 0;
        // SAFETY: the result has a place.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "{status}");
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let parent = Process::current().unwrap();
        assert!(!parent.is_other());
        assert_eq!(Process::current(), Ok(parent));
        let seen = in_a_child(|| {
            let before = parent.is_other();
            let child = Process::current().unwrap_or(parent);
            let own = child != parent && !child.is_other() && parent.is_other();
            let grandchild = in_a_child(|| {
                let both = parent.is_other() && child.is_other();
                let made = Process::current().unwrap_or(parent);
                u8::from(both && ![parent, child].contains(&made))
            });
            u8::from(before && own && grandchild == 1)
        });
        assert_eq!(seen, 1);
        assert!(!parent.is_other(), "nothing changes in the parent");
    }
}
