//! The bindings of the crate rdma-sys in the place of `bindings`: generated in the build, and linked with the libraries.

pub(crate) use rdma_sys::*;

/// Does nothing: a program that has started is linked with libibverbs.
pub(crate) const fn load_ibverbs() -> Result<(), String> {
    Ok(())
}

/// Does nothing: a program that has started is linked with librdmacm.
pub(crate) const fn load_rdmacm() -> Result<(), String> {
    Ok(())
}

/// rdma-sys has no function of this name, so GIDs are read from sysfs.
///
/// # Safety
/// It does nothing.
pub(crate) unsafe fn _ibv_query_gid_table(
    _: *mut ibv_context,
    _: *mut ibv_gid_entry,
    _: usize,
    _: u32,
    _: usize,
) -> isize {
    -(libc::EOPNOTSUPP as isize)
}
