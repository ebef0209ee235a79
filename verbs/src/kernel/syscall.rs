//! write(2) without libc: the call is inlined and is no cancellation point. A connection makes about 12.

use std::os::fd::RawFd;

use cmid_proto::{Errno, Outcome};

/// Writes a command to an event channel.
///
/// # Errors
/// The errno of write(2); `ENODATA` if the kernel has taken fewer bytes.
///
/// # Safety
/// `from` is valid for reads of `len` bytes. Each address in the command is valid for the bytes that the kernel reads or
/// writes there, and its provenance is exposed.
#[inline(always)]
pub(super) unsafe fn write(fd: RawFd, from: *const u8, len: usize) -> Outcome {
    // SAFETY: as the caller promises.
    let returned = unsafe { raw_write(fd, from, len) };
    if returned == len { Ok(()) } else { Err(failure(returned)) }
}

/// The errno of a call that has not returned the length of its command.
#[cold]
fn failure(returned: usize) -> Errno {
    match i32::try_from(returned.wrapping_neg()) {
        Ok(errno @ 1..=MAX_ERRNO) => Errno(errno),
        Ok(_) | Err(_) => Errno(libc::ENODATA),
    }
}

/// `MAX_ERRNO` of the kernel.
const MAX_ERRNO: i32 = 4095;

/// Returns the number of bytes, or a negative errno, as the kernel does.
///
/// # Safety
/// As for [`write`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn raw_write(fd: RawFd, from: *const u8, len: usize) -> usize {
    let returned;
    // SAFETY: the registers are those of a system call on this architecture: the number and the result in rax, the
    // arguments in rdi, rsi and rdx; rcx and r11 are overwritten. The call uses no stack of this thread. The options
    // exclude no access to memory, because the kernel writes answers. The caller promises the rest.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_write as usize => returned,
            in("rdi") fd as usize,
            in("rsi") from,
            in("rdx") len,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    returned
}

/// The same by libc.
///
/// # Safety
/// As for [`write`].
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
unsafe fn raw_write_by_libc(fd: RawFd, from: *const u8, len: usize) -> usize {
    // SAFETY: as the caller promises.
    let written = unsafe { libc::write(fd, from.cast(), len) };
    usize::try_from(written).unwrap_or_else(|_| (crate::errno::last().0 as usize).wrapping_neg())
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
use raw_write_by_libc as raw_write;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The results of a call by either way.
    fn both(fd: RawFd, bytes: &[u8]) -> [usize; 2] {
        // SAFETY: the bytes are alive, and contain no address.
        unsafe { [raw_write(fd, bytes.as_ptr(), bytes.len()), raw_write_by_libc(fd, bytes.as_ptr(), bytes.len())] }
    }

    #[test]
    fn it_returns_what_libc_returns() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(both(null.as_raw_fd(), b"seven b"), [7, 7]);
        let unwritable = File::open("/dev/null").unwrap();
        for fd in [unwritable.as_raw_fd(), -1] {
            assert_eq!(both(fd, b"seven b"), [(libc::EBADF as usize).wrapping_neg(); 2]);
        }
    }

    #[test]
    fn the_bytes_arrive() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        // SAFETY: the bytes are alive, and contain no address.
        let outcome = unsafe { write(writer.as_raw_fd(), b"a command".as_ptr(), 9) };
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!((outcome, read.as_str()), (Ok(()), "a command"));
    }

    #[test]
    fn a_short_write_and_an_errno_are_errors() {
        assert_eq!(failure(3), Errno(libc::ENODATA));
        assert_eq!(failure(0), Errno(libc::ENODATA));
        assert_eq!(failure(usize::MAX), Errno(1));
        assert_eq!(failure((libc::EACCES as usize).wrapping_neg()), Errno(libc::EACCES));
        assert_eq!(failure(4095_usize.wrapping_neg()), Errno(4095));
        assert_eq!(failure(4096_usize.wrapping_neg()), Errno(libc::ENODATA));
    }
}
