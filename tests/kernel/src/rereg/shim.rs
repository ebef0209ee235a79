//! What the shim tells: it is looked up, because a program that is linked with it would not start without it.

use std::ffi::{CStr, c_int};
use std::mem;

/// How often the kernel itself has been asked to re-register.
pub(crate) fn asked() -> u32 {
    let function = symbol(c"cmid_rereg_shim_asked");
    // SAFETY: only the shim has such a symbol, and there it is a function of this type.
    let function: extern "C" fn() -> u32 = unsafe { mem::transmute(function) };
    function()
}

/// What the kernel says, past cmid and libibverbs, when it is asked to deallocate the PD that an MR was moved to last: an
/// errno, 0 if it did it, -1 if none was moved.
pub(crate) fn dealloc_pd() -> i32 {
    let function = symbol(c"cmid_rereg_shim_dealloc_pd");
    // SAFETY: the function of the shim, which has this type; not null (looked at).
    let function: extern "C" fn() -> c_int = unsafe { mem::transmute(function) };
    function()
}

fn symbol(name: &CStr) -> *mut libc::c_void {
    // SAFETY: the name is null-terminated.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(
        !symbol.is_null(),
        "the shim is not there: start this with LD_PRELOAD=target/release/libcmid_rereg_shim.so"
    );
    symbol
}
