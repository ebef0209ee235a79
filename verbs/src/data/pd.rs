//! Protection domains.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use cmid_proto::Errno;

use crate::data::{Access, Context, Mr};
use crate::errno;
use crate::ffi::{self, ibv_pd};

/// A protection domain: memory of it can be used by QPs of it. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct Pd(pub(crate) Arc<PdInner>);

/// Destroyed when neither a handle, nor a QP, nor memory, nor an address handle needs it any more.
pub(crate) struct PdInner {
    raw: NonNull<ibv_pd>,
    /// The port of the id that it was made on.
    port_num: u8,
    // Dropped after the PD.
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread-safe, and a PD is tied to no thread.
unsafe impl Send for PdInner {}
// SAFETY: as above; nothing is ever written to the ibv_pd.
unsafe impl Sync for PdInner {}

impl Pd {
    pub(crate) fn alloc(context: Arc<Context>, port_num: u8) -> Result<Self, Errno> {
        // SAFETY: the context is open.
        let raw = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(errno::last)?;
        Ok(Pd(Arc::new(PdInner { raw, port_num, context })))
    }

    /// Registers memory: the whole buffer up to its length (ibv_reg_mr(3)). [`Mr::into_buffer`] gives it back.
    ///
    /// # Errors
    /// `EINVAL` for an empty buffer, or for [`Access::REMOTE_WRITE`] without [`Access::LOCAL_WRITE`]; `ENOMEM` when the lock
    /// limit is reached; else what the provider leaves. The buffer is dropped then.
    pub fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Mr, Errno> {
        Mr::register(Arc::clone(&self.0), buffer, access)
    }
}

impl PdInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    pub(crate) fn port_num(&self) -> u8 {
        self.port_num
    }

    pub(crate) fn is_on(&self, context: &Context) -> bool {
        self.context.as_ptr() == context.as_ptr()
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: allocated by ibv_alloc_pd and freed only here. QPs, MRs and AHs of it hold it, so none is left. If the kernel
        // refuses, it is leaked.
        let _ = unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd").finish_non_exhaustive()
    }
}
