//! The RDMA devices of this machine.

use cmid_proto::Errno;

use crate::data::Context;
use crate::ffi::{self, c_int};

/// The properties of a device (ibv_query_device(3)).
#[doc(alias("ibv_query_device", "ibv_device_attr"))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name, as rdma(8) shows it: `rxe0`, `mlx5_0`.
    pub name: String,
    /// The GUID of the node, as a number whose first byte is the most significant.
    pub node_guid: u64,
    /// The GUID of the system that contains the device, in the same form.
    pub sys_image_guid: u64,
    /// The vendor id.
    pub vendor_id: u32,
    /// The vendor's part id.
    pub vendor_part_id: u32,
    /// The number of ports; they are numbered from 1.
    pub ports: u8,
    /// RDMA reads and atomics that a QP serves at once: the maximum of `responder_resources`.
    pub max_responder_resources: u8,
    /// RDMA reads and atomics that a QP starts at once: the maximum of `initiator_depth`.
    pub max_initiator_depth: u8,
    /// Maximum number of work requests in one queue of a QP.
    pub max_qp_wr: u32,
    /// Maximum number of completions in one completion queue.
    pub max_cqe: u32,
}

/// Lists the devices that librdmacm can use now (rdma_get_devices(3)).
///
/// librdmacm opens every device of the machine for this and keeps it open for the life of the process: an rxe device
/// cannot be deleted until then. If librdmacm cannot open a device, it is missing from the list, and librdmacm never uses it
/// again: later lookups that lead to it end in ADDR_ERROR with status −1. So this call needs 8 free descriptors and 3 for
/// each device. It also closes a removed device once no id, PD, CQ or QP of it is left. A program that uses only
/// the devices of its ids does not need this call.
///
/// # Errors
/// `ENODEV` if there is none, `ELIBACC` without librdmacm, `EMFILE` without these descriptors, and otherwise as [`Verbs::open`](crate::Verbs::open); the errno of ibv_query_device(3).
#[doc(alias("rdma_get_devices", "ibv_get_device_list"))]
pub fn devices() -> Result<Vec<DeviceInfo>, Errno> {
    ffi::load_ibverbs().and_then(|()| ffi::load_rdmacm()).map_err(|error| error.errno())?;
    Context::all()?.iter().map(describe).collect()
}

fn describe(context: &Context) -> Result<DeviceInfo, Errno> {
    let attr = context.query()?;
    Ok(DeviceInfo {
        name: context.name().to_string_lossy().into_owned(),
        node_guid: u64::from_be(attr.node_guid),
        sys_image_guid: u64::from_be(attr.sys_image_guid),
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        ports: attr.phys_port_cnt,
        max_responder_resources: in_u8(attr.max_qp_rd_atom),
        max_initiator_depth: in_u8(attr.max_qp_init_rd_atom),
        max_qp_wr: u32::try_from(attr.max_qp_wr).unwrap_or(0),
        max_cqe: u32::try_from(attr.max_cqe).unwrap_or(0),
    })
}

/// Converts to the width of the two parameters, which are bytes (`struct rdma_conn_param`).
pub(crate) fn in_u8(number: c_int) -> u8 {
    u8::try_from(number.clamp(0, c_int::from(u8::MAX))).unwrap_or(u8::MAX)
}
