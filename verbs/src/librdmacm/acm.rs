//! ibacm(8), for which librdmacm would wait.
//!
//! On InfiniBand and RoCE, librdmacm queries ibacm for a path before the kernel, in rdma_resolve_route(3). It uses a
//! blocking socket without a time limit, under a lock of the whole process (`ucma_ib_resolve` of librdmacm 44 to 64). So
//! librdmacm is refused where ibacm runs.
//!
//! librdmacm connects to ibacm once, before its first query, and never again if that fails (`ucma_ib_init`). Where
//! ibacm is absent, this module makes it try to connect when the process opens its first device, so that no later call
//! waits. An ibacm that starts afterwards is never asked: its paths come from the kernel's own query, as on a machine
//! without ibacm.

use core::mem::MaybeUninit;
use core::ptr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ffi::{self, rdma_addrinfo};
use crate::kernel::OpenError;

/// The paths where librdmacm looks for ibacm, as configured by rdma-core and its distributions: the port, then the
/// socket.
const PLACES: [&str; 4] = ["/run/ibacm.port", "/run/ibacm.sock", "/var/run/ibacm.port", "/var/run/ibacm.sock"];

/// Ensures that librdmacm, which is loaded, has no connection to ibacm, and makes none later.
///
/// # Errors
/// [`OpenError::WaitsForIbacm`].
pub(super) fn never_asked() -> Result<(), OpenError> {
    /// Whether librdmacm has looked for ibacm when there was none.
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if LOOKED.load(Ordering::Acquire) {
        return Ok(());
    }
    absent()?;
    query();
    // It may have started meanwhile.
    absent()?;
    LOOKED.store(true, Ordering::Release);
    Ok(())
}

fn absent() -> Result<(), OpenError> {
    let present = PLACES.iter().map(Path::new).find(|place| place.exists());
    present.map_or(Ok(()), |place| Err(OpenError::WaitsForIbacm(place.into())))
}

/// Makes librdmacm look for ibacm now, and find none. The result is ignored.
fn query() {
    // SAFETY: zeros are a value of it: integers and null pointers.
    let hints: rdma_addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut found = ptr::null_mut();
    // SAFETY: the names may be null, and the hints are valid during the call. The result has a place; after an error it
    // stays null, which may be freed.
    unsafe {
        ffi::rdma_getaddrinfo(ptr::null(), ptr::null(), &hints, &raw mut found);
        ffi::rdma_freeaddrinfo(found);
    }
}
