//! The error conventions of the two libraries.

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

/// Converts the result of an `rdma_*` function: −1 and errno. Old versions returned −errno in some cases (rdma_cm(7)).
#[inline]
pub(crate) fn of_rdma(returned: c_int) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        -1 | c_int::MIN => Err(last()),
        negative if negative < 0 => Err(Errno(-negative)),
        positive => Err(Errno(positive)),
    }
}

/// Converts the result of an `ibv_*` function: a positive errno; a few functions return −1 and set errno.
#[inline]
pub(crate) fn of_ibv(returned: c_int) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        positive if positive > 0 => Err(Errno(positive)),
        _ => Err(last()),
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
        assert!(of_rdma(c_int::MIN).is_err());
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
