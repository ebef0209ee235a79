//! The error conventions of the two libraries.

use core::ptr::NonNull;

use cmid_proto::Errno;
use libc::{__errno_location, c_int};

/// Returns the calling thread's errno; `EIO` if a library failed without setting it.
#[cold]
pub(crate) fn last() -> Errno {
    // SAFETY: the calling thread always has an errno.
    match unsafe { *__errno_location() } {
        0 => Errno::EIO,
        errno => Errno(errno),
    }
}

/// Clears errno before a call whose failure is recognized by errno.
pub(crate) fn clear() {
    // SAFETY: the calling thread always has an errno.
    unsafe { *__errno_location() = 0 };
}

/// Makes a call that returns a new object, or null and errno.
///
/// # Errors
/// The errno of the call; `EIO` if it fails without one, as some of libsiw do.
pub(crate) fn of_new<T>(make: impl FnOnce() -> *mut T) -> Result<NonNull<T>, Errno> {
    clear();
    NonNull::new(make()).ok_or_else(last)
}

/// Makes a read of libibverbs, which takes what is there, until no signal interrupts it. False: nothing is there.
///
/// # Errors
/// The errno of the read; `EIO` if it fails without one, such as for a part of an event.
pub(crate) fn of_read(mut read: impl FnMut() -> c_int) -> Result<bool, Errno> {
    loop {
        clear();
        match read() {
            0 => return Ok(true),
            _ => match last() {
                Errno::EAGAIN => return Ok(false),
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Converts the result of an `rdma_*` function: −1 and errno. Old versions returned −errno in some cases (rdma_cm(7)).
pub(crate) fn of_rdma(returned: c_int) -> Result<(), Errno> {
    of_ibv(returned)
}

/// Converts the result of an `ibv_*` function or a provider: a positive errno, a negative one (libsiw), or −1 and
/// errno.
pub(crate) fn of_ibv(returned: c_int) -> Result<(), Errno> {
    if returned == 0 { Ok(()) } else { Err(of_failed(returned)) }
}

#[cold]
fn of_failed(returned: c_int) -> Errno {
    match returned {
        -1 | c_int::MIN => last(),
        other => Errno(other.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_failure() {
        assert_eq!(of_rdma(0), Ok(()));
        assert_eq!(of_rdma(-22), Err(Errno::EINVAL));
        assert_eq!(of_rdma(22), Err(Errno::EINVAL));
        assert_eq!(of_ibv(0), Ok(()));
        assert_eq!(of_ibv(12), Err(Errno::ENOMEM));
        assert!(of_ibv(-1).is_err());
        // libsiw. What an earlier call has left in errno is not the answer.
        // SAFETY: -1 is no descriptor.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!((of_ibv(-22), of_ibv(-107)), (Err(Errno::EINVAL), Err(Errno::ENOTCONN)));
        assert!(of_rdma(c_int::MIN).is_err());
    }

    fn set(errno: Errno) {
        // SAFETY: the calling thread always has an errno.
        unsafe { *__errno_location() = errno.0 };
    }

    #[test]
    fn a_read_fails_by_its_own_errno() {
        for earlier in [Errno::EINTR, Errno::EAGAIN] {
            set(earlier);
            assert_eq!(of_read(|| -1), Err(Errno::EIO), "a part of an event");
        }
        let mut answers = [Errno::EINTR, Errno::EINTR, Errno::EAGAIN, Errno::ENODEV].into_iter();
        let mut read = || answers.next().map_or(0, |errno| (set(errno), -1).1);
        assert_eq!(
            [of_read(&mut read), of_read(&mut read), of_read(&mut read)],
            [Ok(false), Err(Errno::ENODEV), Ok(true)]
        );
    }

    #[test]
    fn what_an_earlier_call_left_is_not_why_there_is_no_object() {
        set(Errno::EBADF);
        assert_eq!(of_new(core::ptr::null_mut::<u8>), Err(Errno::EIO));
        assert_eq!(of_new(|| (set(Errno::ENOMEM), core::ptr::null_mut::<u8>()).1), Err(Errno::ENOMEM));
    }

    #[test]
    fn what_an_earlier_call_left_is_not_taken_for_the_answer() {
        // SAFETY: -1 is no descriptor.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(last(), Errno::EBADF);
        clear();
        assert_eq!(of_ibv(-1), Err(Errno::EIO));
    }
}
