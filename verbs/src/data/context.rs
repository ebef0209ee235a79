//! Keeping a device's context open.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::net::SocketAddr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cmid_proto::Errno;
use parking_lot::Mutex;

use crate::data::anchor::{Anchor, Home};
use crate::data::devices::DeviceList;
use crate::data::vendor::Vendor;
use crate::ffi::{self, ibv_context, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_transport_type};
use crate::kernel::Location;
use crate::librdmacm::Channel;
use crate::process::Process;
use crate::{descriptors, errno};

/// A reference to a device context: one of librdmacm's, or one that this crate has opened.
///
/// librdmacm opens one `ibv_context` per device and stores it in each id that is bound to the device. It closes the
/// context when the device is removed and no id uses it. PDs and QPs do not count as users. The data path therefore has
/// its own id for each device that it uses.
pub(crate) struct Context {
    verbs: NonNull<ibv_context>,
    process: Process,
    /// Whether a DEVICE_REMOVAL was read.
    gone: AtomicBool,
    /// The location, for a context that was opened for ids of the kernel's connection manager.
    location: Option<Location>,
    _count: Count,
}

/// The object by which librdmacm counts a [`Context`] as used.
enum Count {
    /// An id that is bound to the device.
    Id(#[expect(dead_code, reason = "held to be dropped")] Anchor),
    /// The count that rdma_get_devices(3) has added.
    Listed(#[expect(dead_code, reason = "held to be dropped")] Listed),
    /// This crate has opened the context, without librdmacm.
    Opened(#[expect(dead_code, reason = "held to be dropped")] Opened),
}

/// A context of ibv_open_device(3); dropping it closes it.
struct Opened(NonNull<ibv_context>, Process);

/// One count that rdma_get_devices(3) has added to a device.
struct Listed(NonNull<ibv_context>, Process);

/// The contexts that the data path has opened. All objects of a device share one context, which records the removal of
/// the device.
#[derive(Clone)]
pub(crate) struct Contexts {
    owner: Arc<Home>,
    open: Arc<Mutex<Vec<Weak<Context>>>>,
}

impl Contexts {
    /// Creates an empty set. The ids that keep contexts open are created on this channel.
    pub(crate) fn new(channel: Channel) -> Self {
        Contexts { owner: Arc::new(Home::new(channel)), open: Arc::default() }
    }

    /// The process that created it.
    pub(crate) fn process(&self) -> Process {
        self.owner.process()
    }

    /// Returns the context in the `verbs` field of an existing id. The id is bound to this address and port of the
    /// device.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed meanwhile; the errors of [`Context::hold`].
    pub(crate) fn open(
        &self,
        verbs: NonNull<ibv_context>,
        port: u8,
        addr: Option<SocketAddr>,
    ) -> Result<Arc<Context>, Errno> {
        let mut all = self.open.lock();
        all.retain(|context| context.strong_count() > 0);
        if let Some(open) = all.iter().filter_map(Weak::upgrade).find(|open| open.is(verbs)) {
            return Ok(open);
        }
        let context = Arc::new(Context::hold(&self.owner, verbs, port, addr)?);
        all.push(Arc::downgrade(&context));
        Ok(context)
    }

    /// Called when an id has reported that its device is gone.
    pub(crate) fn removed(&self, verbs: NonNull<ibv_context>) {
        for context in self.open.lock().iter().filter_map(Weak::upgrade).filter(|open| open.is(verbs)) {
            context.set_gone();
        }
    }
}

// SAFETY: libibverbs is thread-safe: any thread may use a context, and release its count, at any time (librdmacm locks
// the count itself).
unsafe impl Send for Context {}
// SAFETY: libibverbs is thread-safe, and nothing is written to the ibv_context by this crate; the flag is atomic.
unsafe impl Sync for Context {}

impl Context {
    /// Keeps the context in the `verbs` field of an existing id open.
    ///
    /// If no address can be bound at the device (an id on the loopback address, or a device without addresses), it
    /// calls rdma_get_devices(3), which opens all devices.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed meanwhile, `ENOMEM`; the errors of [`Context::all`].
    fn hold(owner: &Arc<Home>, verbs: NonNull<ibv_context>, port: u8, addr: Option<SocketAddr>) -> Result<Self, Errno> {
        match Anchor::at(owner, verbs, port, addr) {
            Ok(anchor) => Ok(Context::new(verbs, anchor.process(), Count::Id(anchor))),
            Err(errno @ Errno::ENOMEM) => Err(errno),
            // The address exists, but not on this device.
            Err(errno @ Errno::ENODEV) if addr.is_some_and(|addr| !addr.ip().is_loopback()) => Err(errno),
            Err(_) => Self::all()?.into_iter().find(|context| context.is(verbs)).ok_or(Errno::ENODEV),
        }
    }

    /// Keeps the contexts of all devices open.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` without the descriptors to open all of them, because librdmacm never uses a device again that
    /// it cannot open here; the errno of rdma_get_devices(3).
    pub(crate) fn all() -> Result<Vec<Self>, Errno> {
        let process = Process::current()?;
        let devices = DeviceList::read()?.devices().len();
        descriptors::available(descriptors::LIST + devices * descriptors::CONTEXT)?;
        // SAFETY: null is allowed: the number of devices is then not returned.
        let list = errno::of_new(|| unsafe { ffi::rdma_get_devices(ptr::null_mut()) })?.as_ptr();
        let mut all = Vec::new();
        let mut entry = list;
        // SAFETY: the list ends with a null entry; the loop ends there, and has not passed it.
        while let Some(verbs) = NonNull::new(unsafe { *entry }) {
            // Takes over the count that rdma_get_devices added for this device.
            all.push(Context::new(verbs, process, Count::Listed(Listed(verbs, process))));
            // SAFETY: `entry` was not the last one.
            entry = unsafe { entry.add(1) };
        }
        // SAFETY: librdmacm allocated the array with malloc, and rdma_free_devices would free it with free. Each
        // `Listed` releases the count of its device, which that function would release too.
        unsafe { ffi::free(list.cast()) };
        Ok(all)
    }

    /// Opens a device (ibv_open_device(3)).
    ///
    /// # Errors
    /// The errno of ibv_open_device.
    ///
    /// # Safety
    /// The device is from a list of ibv_get_device_list(3) that is not freed.
    pub(crate) unsafe fn open(device: *mut ibv_device, location: Location) -> Result<Self, Errno> {
        let process = Process::current()?;
        // SAFETY: as the caller promises.
        let verbs = errno::of_new(|| unsafe { ffi::ibv_open_device(device) })
            .map_err(|errno| descriptors::cause(errno, descriptors::CONTEXT))?;
        let mut context = Context::new(verbs, process, Count::Opened(Opened(verbs, process)));
        context.location = Some(location);
        Ok(context)
    }

    fn new(verbs: NonNull<ibv_context>, process: Process, count: Count) -> Self {
        Context { verbs, process, gone: AtomicBool::new(false), location: None, _count: count }
    }

    /// Whether it was opened in another process, before a fork. The objects on it must not be ended in this one.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_other()
    }

    /// Whether it was opened for ids on the device at this location. The port does not matter.
    pub(crate) fn is_at(&self, location: &Location) -> bool {
        self.location.is_some_and(|own| (own.guid, own.index) == (location.guid, location.index))
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.verbs.as_ptr()
    }

    /// Returns the properties of the device (ibv_query_device(3)).
    pub(crate) fn query(&self) -> Result<ibv_device_attr, Errno> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open and the result has a place. It is zeroed, which is a value of the type.
        unsafe {
            errno::of_call(|| ffi::ibv_query_device(self.as_ptr(), attr.as_mut_ptr()))?;
            Ok(attr.assume_init())
        }
    }

    pub(super) fn vendor(&self) -> Result<Vendor, Errno> {
        Ok(Vendor(self.query()?.vendor_id))
    }

    /// Returns its extended properties, as far as the provider has filled them: zeros otherwise (ibv_query_device_ex(3)).
    ///
    /// # Errors
    /// The errno of the call; `EOPNOTSUPP` if the provider does not have it.
    pub(crate) fn query_ex(&self) -> Result<ibv_device_attr_ex, Errno> {
        // SAFETY: the context is open.
        unsafe { ffi::query_device_ex(self.as_ptr()) }
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: an open context has its device, and the device a name that ends with a zero and does not change.
        unsafe { CStr::from_ptr(ffi::ibv_get_device_name((*self.as_ptr()).device)) }
    }

    /// Whether the transport of the device is iWARP.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open; its device and the transport do not change.
        unsafe { (*(*self.as_ptr()).device).transport_type == ibv_transport_type::IBV_TRANSPORT_IWARP }
    }

    /// The number of entries of a CQ for each completion that its queues have room for. Soft-iWARP's needs one more for each
    /// send queue: it flushes the read that it is about to send twice (`siw_sq_flush`).
    pub(crate) fn entries_each(&self) -> u32 {
        if self.is_iwarp() { 2 } else { 1 }
    }

    /// The number of completion vectors of the device.
    pub(crate) fn comp_vectors(&self) -> u32 {
        // SAFETY: the context is open, and nothing writes the field after that.
        u32::try_from(unsafe { (*self.as_ptr()).num_comp_vectors }).unwrap_or(0)
    }

    /// Whether an id has reported that the device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn verbs(&self) -> NonNull<ibv_context> {
        self.verbs
    }

    /// Whether it is this context. An open context has an address of its own.
    pub(crate) fn is(&self, verbs: NonNull<ibv_context>) -> bool {
        self.verbs == verbs
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.1.is_other() {
            return;
        }
        // SAFETY: opened by ibv_open_device and closed only here. All objects on the device hold the context, so none
        // is left.
        let _ = unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if self.1.is_other() {
            return;
        }
        release(self.0);
    }
}

/// Releases one count of a device.
///
/// `rdma_free_devices` is given a list of one: in a longer one it reads a device's record again after it has freed it,
/// if the device was removed meanwhile (librdmacm 44 to 65).
fn release(device: NonNull<ibv_context>) {
    // SAFETY: malloc has no requirements.
    let list: *mut *mut ibv_context = unsafe { ffi::malloc(2 * size_of::<*mut ibv_context>()) }.cast();
    if list.is_null() {
        return; // A device that stays open is better than an abort.
    }
    // SAFETY: the list has room for two entries, is null-terminated, and comes from malloc, because rdma_free_devices
    // frees it. The function releases a count that rdma_get_devices added for this crate.
    unsafe {
        list.write(device.as_ptr());
        list.add(1).write(ptr::null_mut());
        ffi::rdma_free_devices(list);
    }
}
