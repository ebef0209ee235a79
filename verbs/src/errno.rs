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

/// Makes a call of a library or a provider that returns 0, a positive errno, a negative one (libsiw; old versions of librdmacm,
/// rdma_cm(7)), or −1 and errno.
///
/// # Errors
/// The errno of the call; `EIO` if it fails without one.
pub(crate) fn of_call(call: impl FnOnce() -> c_int) -> Result<(), Errno> {
    clear();
    of_posted(call())
}

/// Converts what a post returns, as [`of_call`]. It costs nothing to a post that succeeds: after −1 without errno, that of an
/// earlier call is told.
pub(crate) fn of_posted(returned: c_int) -> Result<(), Errno> {
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
        // What an earlier call has left in errno is not the answer.
        set(Errno::EINTR);
        let answers = [0, -22, 22, 12, -107, -1, c_int::MIN].map(|returned| of_call(|| returned));
        let [einval, eio] = [Errno::EINVAL, Errno::EIO].map(Err);
        assert_eq!(answers, [Ok(()), einval, einval, Err(Errno::ENOMEM), Err(Errno::ENOTCONN), eio, eio]);
        assert_eq!(of_call(|| (set(Errno::ENXIO), -1).1), Err(Errno::ENXIO));
        set(Errno::ENOMEM);
        assert_eq!([-1, -22].map(of_posted), [Err(Errno::ENOMEM), einval]);
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
}
