//! The list of devices of libibverbs, and the RDMA devices of the ids of the kernel's connection manager.

use core::ffi::c_char;
use core::ptr::NonNull;
use core::slice;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Weak};

use cmid_proto::datapath::{CreateReason, DeviceName};
use cmid_proto::{Errno, Outcome};
use parking_lot::Mutex;

use crate::data::Context;
use crate::data::device_attrs::in_u8;
use crate::ffi::{self, ibv_device};
use crate::kernel::{Depths, Location, NO_INDEX};
use crate::{descriptors, errno};

/// The open devices. All objects on a device share its context. A device is closed after its last object.
#[derive(Clone, Default)]
pub(crate) struct Devices(Arc<Mutex<Vec<Known>>>);

struct Known {
    guid: u64,
    index: u32,
    limits: Depths,
    context: Weak<Context>,
}

impl Known {
    fn is_at(&self, location: Location) -> bool {
        (self.guid, self.index) == (location.guid, location.index)
    }
}

impl Devices {
    /// Creates an empty set. Loads the providers of libibverbs, so that a later moment without descriptors does not disable
    /// them.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`. A machine without devices is no error.
    pub(crate) fn new() -> Result<Self, Errno> {
        match DeviceList::read() {
            Err(errno @ Errno(libc::EMFILE | libc::ENFILE)) => Err(errno),
            Ok(_) | Err(_) => Ok(Devices::default()),
        }
    }

    /// Returns the device at a location. Opens it if it is not open.
    ///
    /// # Errors
    /// `ENODEV` if libibverbs has no such device; the errno of the list, of ibv_open_device(3) and ibv_query_device(3).
    pub(crate) fn open(&self, location: Location) -> Result<Arc<Context>, Errno> {
        let mut all = self.0.lock();
        let known = all.iter().position(|known| known.is_at(location));
        if let Some(context) = known.and_then(|at| all[at].context.upgrade()) {
            if !context.is_gone() {
                return Ok(context);
            }
        }
        let context = Arc::new(open(location)?);
        let limits = limits(&context)?;
        if let Some(at) = known {
            all.swap_remove(at);
        }
        let Location { guid, index, .. } = location;
        all.push(Known { guid, index, limits, context: Arc::downgrade(&context) });
        Ok(context)
    }

    /// Returns the limits of the device at a location. Opens it once to query them.
    ///
    /// # Errors
    /// As [`Devices::open`].
    pub(crate) fn limits(&self, location: Location) -> Result<Depths, Errno> {
        let known = self.0.lock().iter().find(|known| known.is_at(location)).map(|known| known.limits);
        known.map_or_else(|| limits(&*self.open(location)?), Ok)
    }

    /// Returns the name of the device at a location, as far as libibverbs lists it.
    pub(crate) fn name(location: Location) -> Option<DeviceName> {
        let list = DeviceList::read().ok()?;
        let found = list.devices().iter().find(|device| is_at(**device, location))?;
        // SAFETY: the device is from the list, which is not freed yet.
        Some(DeviceName::new(&bytes_of(unsafe { &(**found).name })))
    }

    /// Returns the reason if the node of the device at a location cannot be opened. libibverbs lists no device without its
    /// node, so the errno is `ENODEV` then, and sysfs tells the name of the node.
    pub(crate) fn node_error(location: Location, errno: Errno) -> Option<CreateReason> {
        let nodes = fs::read_dir("/sys/class/infiniband_verbs").ok()?.filter_map(Result::ok);
        let of_device = nodes.filter(|node| guid_of(&node.path()) == Some(location.guid));
        let failed = of_device.filter_map(|node| Some((node_opens(&node.file_name()).err()?, node.file_name())));
        let mut reasons = failed.filter(|(of_open, _)| *of_open == errno || errno == Errno::ENODEV);
        let (errno, node) = reasons.next()?;
        Some(CreateReason::Node { node: DeviceName::new(node.as_bytes()), errno })
    }

    /// Called when an id has reported that its device is gone.
    pub(crate) fn removed(&self, location: Location) {
        let mut all = self.0.lock();
        for context in all.iter().filter(|known| known.is_at(location)).filter_map(|known| known.context.upgrade()) {
            context.set_gone();
        }
        all.retain(|known| !known.is_at(location));
    }
}

fn open(location: Location) -> Result<Context, Errno> {
    let list = DeviceList::read()?;
    let found = list.devices().iter().find(|device| is_at(**device, location)).ok_or(Errno::ENODEV)?;
    // SAFETY: the device is from the list.
    node_opens(OsStr::from_bytes(&bytes_of(unsafe { &(**found).dev_name })))?;
    // SAFETY: the device is from the list, which is not freed yet.
    unsafe { Context::open(*found, location) }
}

/// Opens the node of a device once. libibverbs replaces the errno of a failure, and looks for 5 seconds for a node that is
/// missing (`open_cdev`).
///
/// # Errors
/// The errno of open(2): `EACCES` or `EPERM` without permission; `ENOENT` without the node, if libibverbs has listed the
/// device nevertheless.
fn node_opens(name: &OsStr) -> Outcome {
    let path = Path::new("/dev/infiniband").join(name);
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// Returns the GUID of the device of a node in sysfs, in network order.
fn guid_of(node: &Path) -> Option<u64> {
    let device = fs::read_to_string(node.join("ibdev")).ok()?;
    let guid = fs::read_to_string(Path::new("/sys/class/infiniband").join(device.trim()).join("node_guid")).ok()?;
    u64::from_str_radix(&guid.trim().replace(':', ""), 16).map(u64::to_be).ok()
}

/// Returns the bytes of a string of C before its end.
fn bytes_of(name: &[c_char]) -> Vec<u8> {
    name.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect()
}

/// Several devices can have one GUID. The kernel's number distinguishes them if both sides have it.
fn is_at(device: *mut ibv_device, location: Location) -> bool {
    // SAFETY: the device is from a list that is not freed yet.
    let (index, guid) = unsafe { (ffi::ibv_get_device_index(device), ffi::ibv_get_device_guid(device)) };
    match u32::try_from(index) {
        Ok(index) if location.index != NO_INDEX => index == location.index,
        Ok(_) | Err(_) => guid == location.guid,
    }
}

fn limits(context: &Context) -> Result<Depths, Errno> {
    let attr = context.query()?;
    Ok(Depths { responder_resources: in_u8(attr.max_qp_rd_atom), initiator_depth: in_u8(attr.max_qp_init_rd_atom) })
}

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
