//! The functions of the shim, looked up at run time, because a program linked with the shim would not start without
//! it.

use std::ffi::{CStr, c_int};
use std::mem;

/// The number of re-registrations requested from the kernel.
pub(crate) fn count() -> u32 {
    let function = symbol(c"cmid_rereg_shim_count");
    // SAFETY: only the shim has such a symbol, and there it is a function of this type.
    let function: extern "C" fn() -> u32 = unsafe { mem::transmute(function) };
    function()
}

/// Requests the deallocation of the PD of the last moved MR from the kernel, without cmid and libibverbs. Returns the
/// errno, 0 for success, -1 if no MR was moved.
pub(crate) fn dealloc_pd() -> i32 {
    let function = symbol(c"cmid_rereg_shim_dealloc_pd");
    // SAFETY: the function of the shim, which has this type; not null (checked in `symbol`).
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
