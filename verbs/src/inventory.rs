//! The RDMA devices of this machine.

use cmid_proto::Errno;
use cmid_proto::datapath::DeviceAttrs;

use crate::data::Context;
use crate::ffi;

/// Lists the devices that librdmacm can use now (rdma_get_devices(3)).
///
/// librdmacm opens every device of the machine for this and keeps it open for the life of the process: an rxe device
/// cannot be deleted until then. If librdmacm cannot open a device, it is missing from the list, and librdmacm never uses it
/// again: later lookups that lead to it end in ADDR_ERROR with status −1. So this call needs 8 free descriptors and 3 for
/// each device. It also closes a removed device once no id, PD, CQ or QP of it is left. A program that uses only
/// the devices of its ids does not need this call: [`RdmaDevice::attrs`](cmid_proto::datapath::RdmaDevice::attrs) has the same.
///
/// # Errors
/// `ENODEV` if there is none, `ELIBACC` without librdmacm, `EMFILE` without these descriptors, and otherwise as [`Verbs::open`](crate::Verbs::open); the errno of ibv_query_device(3).
#[doc(alias("rdma_get_devices", "ibv_get_device_list"))]
pub fn devices() -> Result<Vec<DeviceAttrs>, Errno> {
    ffi::load_ibverbs().and_then(|()| ffi::load_rdmacm()).map_err(|error| error.errno())?;
    Context::all()?.iter().map(Context::attrs).collect()
}
