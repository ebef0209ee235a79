//! Keeping a device's context open.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cmid_proto::Errno;

use crate::data::pd::lock;
use crate::errno;
use crate::ffi::{self, ibv_context};

/// A reference to one of librdmacm's device contexts.
///
/// librdmacm opens one `ibv_context` per device, puts it into every id that is bound to the device, and closes it when
/// the device is gone and nothing counts on it. Ids count, PDs and QPs do not. `rdma_get_devices` is the one public
/// way to count: it adds one to every device that it returns, and `rdma_free_devices` takes it off again.
pub(crate) struct Context {
    verbs: NonNull<ibv_context>,
    /// Whether a DEVICE_REMOVAL was read.
    gone: AtomicBool,
}

/// The contexts that the data path has opened, so that all of a device's objects share one, and hear of its removal.
#[derive(Clone, Default)]
pub(crate) struct Contexts(Arc<Mutex<Vec<Weak<Context>>>>);

impl Contexts {
    /// The context that a living id has in its `verbs` field.
    ///
    /// # Errors
    /// `ENODEV` if the device has gone meanwhile.
    pub(crate) fn open(&self, verbs: NonNull<ibv_context>) -> Result<Arc<Context>, Errno> {
        let mut all = lock(&self.0);
        all.retain(|context| context.strong_count() > 0);
        if let Some(open) = all.iter().filter_map(Weak::upgrade).find(|open| open.is(verbs)) {
            return Ok(open);
        }
        let context = Context::hold(verbs)?;
        all.push(Arc::downgrade(&context));
        Ok(context)
    }

    /// An id told that its device is gone.
    pub(crate) fn removed(&self, verbs: NonNull<ibv_context>) {
        for context in lock(&self.0).iter().filter_map(Weak::upgrade).filter(|open| open.is(verbs)) {
            context.gone.store(true, Ordering::Release);
        }
    }
}

// SAFETY: libibverbs is thread-safe: a context may be used by, and its count dropped from, any thread at any time
// (librdmacm guards the count with its own lock).
unsafe impl Send for Context {}
// SAFETY: libibverbs is thread-safe, and nothing is written to the ibv_context by this crate; the flag is atomic.
unsafe impl Sync for Context {}

impl Context {
    /// Counts on the context that a living id has in its `verbs` field.
    ///
    /// # Errors
    /// `ENODEV` if the device has gone meanwhile.
    fn hold(verbs: NonNull<ibv_context>) -> Result<Arc<Self>, Errno> {
        let all = Self::all().map_err(|_| Errno::ENODEV)?;
        all.into_iter().find(|context| context.is(verbs)).map(Arc::new).ok_or(Errno::ENODEV)
    }

    /// Counts on the context of every device that is there.
    ///
    /// # Errors
    /// What rdma_get_devices(3) leaves.
    pub(crate) fn all() -> Result<Vec<Self>, Errno> {
        // SAFETY: the number of devices need not be reported.
        let list = unsafe { ffi::rdma_get_devices(ptr::null_mut()) };
        if list.is_null() {
            return Err(errno::last());
        }
        let mut all = Vec::new();
        let mut entry = list;
        // SAFETY: the list ends with a null entry; the loop ends there, and has not passed it.
        while let Some(verbs) = NonNull::new(unsafe { *entry }) {
            // It now has the count that rdma_get_devices added for this device.
            all.push(Context { verbs, gone: AtomicBool::new(false) });
            // SAFETY: `entry` was not the last one.
            entry = unsafe { entry.add(1) };
        }
        // SAFETY: librdmacm allocated the array with malloc, to be freed by rdma_free_devices with free. The counts that
        // function would take off are taken off one by one.
        unsafe { ffi::free(list.cast()) };
        Ok(all)
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.verbs.as_ptr()
    }

    /// Whether an id has told that the device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn is(&self, verbs: NonNull<ibv_context>) -> bool {
        self.verbs == verbs
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        release(self.verbs);
    }
}

/// Takes one count off a device.
///
/// `rdma_free_devices` is given a list of one: in a longer one it reads a device's record again after it has freed it,
/// if the device was removed meanwhile (librdmacm 44 to 65).
fn release(device: NonNull<ibv_context>) {
    // SAFETY: malloc has no requirements.
    let list: *mut *mut ibv_context = unsafe { ffi::malloc(2 * size_of::<*mut ibv_context>()) }.cast();
    if list.is_null() {
        return; // A device that stays open is better than an abort.
    }
    // SAFETY: the list has room for two entries, is null-terminated, and comes from malloc, as rdma_free_devices expects,
    // which frees it. The count that it takes off is one that rdma_get_devices added for us.
    unsafe {
        list.write(device.as_ptr());
        list.add(1).write(ptr::null_mut());
        ffi::rdma_free_devices(list);
    }
}
