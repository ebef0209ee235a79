//! Makes commands of the kernel backend fail.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of calls that destroy an id and fail from now on.
static FAILING: AtomicU32 = AtomicU32::new(0);

/// Lets the next calls that destroy an id fail.
pub(crate) fn failing(times: u32) {
    FAILING.store(times, Ordering::SeqCst);
}

/// Whether a call that destroys an id fails.
pub(crate) fn fails() -> bool {
    FAILING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Takes precedence over libc's function at link time.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, count: usize) -> isize {
    // SAFETY: as the caller promises.
    if unsafe { destroys(from, count) } && fails() {
        // SAFETY: the calling thread's errno is always there.
        unsafe { *libc::__errno_location() = libc::EBUSY };
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_write, fd, from, count) as isize }
}

/// Whether the bytes of a write are `struct rdma_ucm_cmd_hdr` with `RDMA_USER_CM_CMD_DESTROY_ID`, and `struct
/// rdma_ucm_destroy_id`.
///
/// # Safety
/// `count` bytes can be read there.
unsafe fn destroys(from: *const c_void, count: usize) -> bool {
    // SAFETY: as the caller promises.
    count == 8 + 16 && unsafe { ptr::read_unaligned(from.cast::<[u16; 4]>()) }[..3] == [1, 0, 16]
}
