//! The descriptors that a library needs for a look-up.
//!
//! A look-up that fails for lack of a descriptor is remembered: libibverbs loads its providers once, at the first list that has
//! a device (`ibverbs_get_device_list`), and librdmacm gives up a device that rdma_get_devices(3) cannot open. Both also
//! replace `EMFILE` by another errno. So the descriptors are counted before such a call, and after one that has failed.

use cmid_proto::{Errno, Outcome};
use rustix::fs::{Mode, OFlags};

/// The descriptors for a list of the devices. libibverbs has at most 4 open at once (a netlink socket, two directories and
/// a file of sysfs); the others are for threads that open some meanwhile.
pub(crate) const LIST: usize = 8;
/// The descriptors for a context: the device and its asynchronous events, and a file of sysfs that a provider reads.
pub(crate) const CONTEXT: usize = 3;

/// Checks that this many descriptors can be opened now.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub(crate) fn available(count: usize) -> Outcome {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        match rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => held.push(fd),
            Err(errno) if matches!(errno.raw_os_error(), libc::EMFILE | libc::ENFILE) => {
                return Err(Errno(errno.raw_os_error()));
            }
            // No limit on descriptors is the cause.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the errno of a failed look-up that needed `count` descriptors: `EMFILE` or `ENFILE` if there are fewer, otherwise
/// that of the library.
#[cold]
pub(crate) fn cause(errno: Errno, count: usize) -> Errno {
    available(count).err().unwrap_or(errno)
}
