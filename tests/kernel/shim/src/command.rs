//! Commands to the kernel's uverbs device by write(2), as in `rdma/ib_user_verbs.h`.

use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use core::ptr;

/// `struct ib_uverbs_cmd_hdr`. Both counts are in words of 4 bytes, the header's own included.
#[repr(C)]
struct Header {
    command: u32,
    in_words: u16,
    out_words: u16,
}

/// `struct ib_uverbs_rereg_mr` after its header.
#[repr(C)]
struct ReregMr {
    header: Header,
    response: u64,
    mr_handle: u32,
    flags: u32,
    start: u64,
    length: u64,
    hca_va: u64,
    pd_handle: u32,
    access_flags: u32,
}

/// `struct ib_uverbs_rereg_mr_resp`.
#[repr(C)]
#[derive(Default)]
struct ReregMrResponse {
    lkey: u32,
    rkey: u32,
}

/// `struct ib_uverbs_dealloc_pd` after its header.
#[repr(C)]
struct DeallocPd {
    header: Header,
    pd_handle: u32,
}

/// `IB_USER_VERBS_CMD_DEALLOC_PD`.
const DEALLOC_PD: u32 = 4;
/// `IB_USER_VERBS_CMD_REREG_MR`.
const REREG_MR: u32 = 11;

// The kernel's interface, which is stable. There are no holes, so the sizes and the last offsets determine the
// layout.
static_assertions::const_assert!(size_of::<Header>() == 8);
static_assertions::const_assert!(size_of::<ReregMr>() == 8 + 48 && offset_of!(ReregMr, response) == 8);
static_assertions::const_assert!(offset_of!(ReregMr, start) == 8 + 16 && offset_of!(ReregMr, access_flags) == 8 + 44);
static_assertions::const_assert!(size_of::<ReregMrResponse>() == 8);
static_assertions::const_assert!(size_of::<DeallocPd>() == 8 + 4 && offset_of!(DeallocPd, pd_handle) == 8);

const fn header<Command, Response>(command: u32) -> Header {
    Header { command, in_words: words(size_of::<Command>()), out_words: words(size_of::<Response>()) }
}

#[expect(clippy::cast_possible_truncation, reason = "of structures that are a few words long")]
const fn words(size: usize) -> u16 {
    (size / 4) as u16
}

/// The arguments of a re-registration.
pub(crate) struct Reregister {
    pub(crate) mr_handle: u32,
    pub(crate) flags: u32,
    /// Address and length.
    pub(crate) range: (u64, u64),
    pub(crate) pd_handle: u32,
    pub(crate) access: u32,
}

impl Reregister {
    /// Sends the command to a device. Returns the MR's new keys, or the errno.
    pub(crate) fn send(self, cmd_fd: c_int) -> Result<(u32, u32), c_int> {
        let mut response = ReregMrResponse::default();
        let (start, length) = self.range;
        let command = ReregMr {
            header: header::<ReregMr, ReregMrResponse>(REREG_MR),
            response: (&raw mut response).expose_provenance() as u64,
            mr_handle: self.mr_handle,
            flags: self.flags,
            start,
            length,
            // The remote address is always the program's own one, as in ibv_rereg_mr.
            hca_va: start,
            pd_handle: self.pd_handle,
            access_flags: self.access,
        };
        // SAFETY: according to the header, the kernel reads this structure, and writes no more than `response`, which
        // stays alive.
        unsafe { write(cmd_fd, &command)? };
        // SAFETY: it is alive and aligned. Read through a pointer, because the compiler does not see the kernel's
        // write.
        let response = unsafe { ptr::read_volatile(&raw const response) };
        Ok((response.lkey, response.rkey))
    }
}

/// Requests the deallocation of a PD from the kernel.
pub(crate) fn dealloc_pd(cmd_fd: c_int, pd_handle: u32) -> Result<(), c_int> {
    let command = DeallocPd { header: header::<DeallocPd, ()>(DEALLOC_PD), pd_handle };
    // SAFETY: the kernel reads this structure; there is no response.
    unsafe { write(cmd_fd, &command) }
}

/// Sends a command.
///
/// # Safety
/// The command begins with a [`Header`] with its size and its response's. If it points to a response, that has this
/// size.
unsafe fn write<Command>(cmd_fd: c_int, command: &Command) -> Result<(), c_int> {
    // SAFETY: this many bytes can be read there.
    let written = unsafe { libc::write(cmd_fd, ptr::from_ref(command).cast(), size_of::<Command>()) };
    if usize::try_from(written) == Ok(size_of::<Command>()) {
        return Ok(());
    }
    // The kernel accepts a command as a whole or not at all.
    Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
