//! **For tests only.** A library for LD_PRELOAD that passes `ibv_rereg_mr` to the kernel on a device with a provider
//! in rdma-core that has no such operation.
//!
//! rdma-core's provider for soft-RoCE has none, so there `ibv_rereg_mr` always fails with `IBV_REREG_MR_ERR_CMD` and
//! EOPNOTSUPP. The kernel's driver supports it from 6.5 on, for CHANGE_PD and CHANGE_ACCESS. With this library
//! preloaded, a caller of `ibv_rereg_mr` (cmid-verbs, unchanged) uses the kernel's:
//!
//! ```sh
//! cargo xtask softroce -- env LD_PRELOAD=target/release/libcmid_rereg_shim.so target/release/kernel-rereg --expect pd-access
//! ```
//!
//! The shim first calls libibverbs' own function, so its checks apply, and a provider with the operation is not
//! affected. Only after EOPNOTSUPP the shim continues: it sends the command that a provider would send, and after a
//! success it writes the same fields of the `ibv_mr`. It does not give advice on forks: it is for programs that have
//! not called `ibv_fork_init`, in which libibverbs gives none either. ERR_DONT_FORK_NEW, ERR_DO_FORK_OLD and
//! ERR_CMD_AND_DO_FORK_NEW do not occur.
//!
//! Never use it in production: libibverbs and the provider are not made for it.

#![expect(unsafe_code, reason = "it calls C")]
mod command;

use core::ffi::{c_int, c_uint, c_void};
use core::mem;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rdma_sys::{ibv_mr, ibv_pd, ibv_rereg_mr_flags};

use crate::command::Reregister;

const DONE: c_int = 0;
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

const CHANGE_TRANSLATION: c_uint = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0;
const CHANGE_PD: c_uint = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0;

/// `ibv_rereg_mr` of libibverbs.
type Real = unsafe extern "C" fn(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int;

/// The number of re-registrations requested from the kernel.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The PD of the last MR that was moved: its device's descriptor and its handle.
static MOVED_TO: Mutex<Option<(c_int, u32)>> = Mutex::new(None);

/// Replaces libibverbs' function: the same arguments, results and errno.
///
/// # Safety
/// As for ibv_rereg_mr(3): `mr` is registered, and so is what `flags` names of `pd` and `addr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the name is null-terminated.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ibv_rereg_mr".as_ptr()) };
    // SAFETY: the symbol after ours is libibverbs' function, which has this type; null becomes None.
    let Some(real) = (unsafe { mem::transmute::<*mut c_void, Option<Real>>(next) }) else {
        set_errno(libc::ENOSYS);
        return ERR_CMD;
    };
    let before = errno();
    // SAFETY: the arguments are the caller's, which keeps the function's contract.
    let code = unsafe { real(mr, flags, pd, addr, length, access) };
    if code != ERR_CMD || errno() != libc::EOPNOTSUPP {
        return code;
    }
    // Stages 1 to 5 have passed without a change: the provider does not have the operation, or not this variant.
    let bits = flags.cast_unsigned();
    if bits & CHANGE_PD != 0 && pd.is_null() {
        // A provider's command would dereference it.
        set_errno(libc::EINVAL);
        return ERR_INPUT;
    }
    // SAFETY: `mr` is registered, so it and its context can be read.
    let (cmd_fd, mr_handle) = unsafe { ((*(*mr).context).cmd_fd, (*mr).handle) };
    // SAFETY: with CHANGE_PD, `pd` is allocated (the caller) and not null (looked at above).
    let pd_handle = if bits & CHANGE_PD != 0 { unsafe { (*pd).handle } } else { 0 };
    let range = if bits & CHANGE_TRANSLATION != 0 { (addr.expose_provenance() as u64, length as u64) } else { (0, 0) };
    if COUNT.fetch_add(1, Ordering::Relaxed) == 0 {
        eprintln!("cmid-rereg-shim, for tests only: ibv_rereg_mr goes past libibverbs to the kernel");
    }
    let command = Reregister { mr_handle, flags: bits, range, pd_handle, access: access.cast_unsigned() };
    let (lkey, rkey) = match command.send(cmd_fd) {
        Ok(keys) => keys,
        Err(errno) => {
            set_errno(errno);
            return ERR_CMD;
        }
    };
    // SAFETY: `mr` is registered, and nothing else accesses it during the call, as required by the library's own
    // function, which writes these fields too. With CHANGE_PD, `pd` can be read.
    unsafe {
        (*mr).lkey = lkey;
        (*mr).rkey = rkey;
        if bits & CHANGE_PD != 0 {
            (*mr).pd = pd;
            (*mr).context = (*pd).context;
        }
        if bits & CHANGE_TRANSLATION != 0 {
            (*mr).addr = addr;
            (*mr).length = length;
        }
    }
    if bits & CHANGE_PD != 0 {
        *MOVED_TO.lock().unwrap_or_else(PoisonError::into_inner) = Some((cmd_fd, pd_handle));
    }
    set_errno(before);
    DONE
}

/// Returns the number of re-registrations requested from the kernel. A test that finds this function knows that the
/// shim is loaded, and the number shows that the results are the kernel's.
#[unsafe(no_mangle)]
pub extern "C" fn cmid_rereg_shim_count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Requests the deallocation of the PD of the last moved MR from the kernel, without any library. Returns the errno,
/// which must be EBUSY while the MR is registered; 0 if the kernel deallocated it (then the PD's owner has lost it);
/// -1 if no MR was moved. The device must still be open.
#[unsafe(no_mangle)]
pub extern "C" fn cmid_rereg_shim_dealloc_pd() -> c_int {
    match *MOVED_TO.lock().unwrap_or_else(PoisonError::into_inner) {
        None => -1,
        Some((cmd_fd, pd_handle)) => command::dealloc_pd(cmd_fd, pd_handle).err().unwrap_or(0),
    }
}

fn errno() -> c_int {
    // SAFETY: it is this thread's, always there.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: it is this thread's, always there.
    unsafe { *libc::__errno_location() = errno };
}
