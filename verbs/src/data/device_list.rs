//! The list of devices of libibverbs.

use core::ptr::NonNull;
use core::slice;

use cmid_proto::Errno;

use crate::ffi::{self, ibv_device};
use crate::{descriptors, errno};

/// The devices of this machine (ibv_get_device_list(3)); dropping it frees them, except those that are open.
pub(crate) struct DeviceList {
    first: NonNull<*mut ibv_device>,
    len: usize,
}

impl DeviceList {
    /// Lists the devices. The first list that has a device loads the providers of libibverbs, once in the life of the
    /// process: a provider that cannot be loaded then is missing for ever.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` if there are too few descriptors, before libibverbs is called; the errno of
    /// ibv_get_device_list: `ENOSYS` without the kernel module `ib_uverbs`, `ENOMEM`.
    pub(crate) fn read() -> Result<Self, Errno> {
        descriptors::available(descriptors::LIST)?;
        let mut len = 0;
        // SAFETY: the number has a place.
        let first = errno::of_new(|| unsafe { ffi::ibv_get_device_list(&raw mut len) })
            .map_err(|errno| descriptors::cause(errno, descriptors::LIST))?;
        Ok(DeviceList { first, len: usize::try_from(len).unwrap_or(0) })
    }

    /// Each device is valid as long as the list.
    pub(crate) fn devices(&self) -> &[*mut ibv_device] {
        // SAFETY: libibverbs has written `len` pointers there, and nothing writes to them until the drop.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: from ibv_get_device_list, and freed only here. An open device stays open after this.
        unsafe { ffi::ibv_free_device_list(self.first.as_ptr()) };
    }
}
