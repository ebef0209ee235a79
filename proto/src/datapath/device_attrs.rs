//! What a device can do, and what its ports are.

use alloc::string::String;
use core::net::Ipv6Addr;

use super::Maxima;
use super::numbers::names;

/// What a device can do (ibv_query_device(3)).
#[doc(alias("ibv_query_device", "ibv_device_attr"))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttrs {
    /// Its name, as rdma(8) shows it: `rxe0`, `mlx5_0`.
    pub name: String,
    /// The version of its firmware.
    pub firmware: String,
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
    /// The largest capacities of one queue. Those of a QP together may be less.
    pub maxima: Maxima,
    /// The number of QPs that the device can have at a time.
    pub max_qp: u32,
    /// The number of CQs.
    pub max_cq: u32,
    /// The number of MRs.
    pub max_mr: u32,
    /// The length of an MR, in bytes.
    pub max_mr_size: u64,
    /// How far its atomic operations are atomic.
    pub atomics: Atomics,
    /// Which work requests may name memory that is registered with [`Access::ON_DEMAND`](super::Access::ON_DEMAND).
    pub odp: Odp,
}

impl DeviceAttrs {
    /// Creates the attributes of a device of which nothing is known but its name: zeros, no atomic operations.
    #[must_use]
    pub const fn named(name: String) -> Self {
        let maxima = Maxima { qp_wr: 0, sge: 0, inline: 0, cqe: 0, comp_vectors: 0, srq_wr: 0, srq_sge: 0 };
        DeviceAttrs {
            name,
            firmware: String::new(),
            node_guid: 0,
            sys_image_guid: 0,
            vendor_id: 0,
            vendor_part_id: 0,
            ports: 0,
            max_responder_resources: 0,
            max_initiator_depth: 0,
            maxima,
            max_qp: 0,
            max_cq: 0,
            max_mr: 0,
            max_mr_size: 0,
            atomics: Atomics::None,
            odp: Odp { implicit: false, rc: OdpOps::empty(), ud: OdpOps::empty() },
        }
    }
}

/// What a device does with memory whose pages it fetches on demand (`struct ibv_odp_caps`, ibv_query_device_ex(3)).
/// Nothing if it has no such support, as the software devices of Linux 6.12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias("ibv_odp_caps", "ibv_query_device_ex"))]
pub struct Odp {
    /// Whether one MR can be the whole address space.
    pub implicit: bool,
    /// The work requests of connected QPs.
    pub rc: OdpOps,
    /// The work requests of datagram QPs.
    pub ud: OdpOps,
}

bitflags::bitflags! {
    /// Kinds of work requests (`enum ibv_odp_transport_cap_bits`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpOps: u32 {
        /// Sends.
        const SEND = 1;
        /// Receives.
        const RECV = 1 << 1;
        /// RDMA writes, here and at the peer.
        const WRITE = 1 << 2;
        /// RDMA reads.
        const READ = 1 << 3;
        /// Atomic operations.
        const ATOMIC = 1 << 4;
        /// Receives of an SRQ.
        const SRQ_RECV = 1 << 5;
        /// Others of a later kernel.
        const _ = !0;
    }
}

/// How far the atomic operations of a device are atomic (`enum ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_atomic_cap")]
pub enum Atomics {
    /// It has none.
    None,
    /// Among the QPs of this device.
    Device,
    /// Among all devices and the CPU.
    Global,
}

/// What a port is now (ibv_query_port(3)).
#[doc(alias("ibv_query_port", "ibv_port_attr"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttrs {
    /// Its state.
    pub state: PortState,
    /// The largest MTU that it can have, in bytes; 0 if it is not known.
    pub max_mtu: u32,
    /// Its MTU, in bytes: the most bytes of a datagram, and of a packet of a connection; 0 if it is not known.
    pub active_mtu: u32,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// What it is connected to.
    pub link_layer: LinkLayer,
    /// The number of lanes; 0 if it is not known.
    pub width: u8,
    /// The speed of a lane, in Mb/s; 0 if it is not known. Soft-RoCE and soft-iWARP report 2500 on any link.
    pub lane_speed: u32,
    /// The number of entries of the table of GIDs, most of which may be empty.
    pub gid_table_len: u32,
}

impl PortAttrs {
    /// Creates the attributes of a port in this state, of which nothing else is known: zeros.
    #[must_use]
    pub const fn in_state(state: PortState) -> Self {
        let link_layer = LinkLayer::Unspecified;
        PortAttrs { state, max_mtu: 0, active_mtu: 0, lid: 0, link_layer, width: 0, lane_speed: 0, gid_table_len: 0 }
    }
}

/// The state of a port (`enum ibv_port_state`).
#[doc(alias = "ibv_port_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortState(pub u32);

names! { PortState, other "port state";
    /// No link.
    DOWN = 1;
    /// The link is being configured.
    INIT = 2;
    /// The link is configured, and carries no data yet.
    ARMED = 3;
    /// It works.
    ACTIVE = 4;
}

/// What a port is connected to (`IBV_LINK_LAYER_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// Not known.
    Unspecified,
    /// A network of InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE and iWARP.
    Ethernet,
}

/// An entry of a port's table of GIDs (`struct ibv_gid_entry`).
#[doc(alias("ibv_gid_entry", "ibv_query_gid_ex", "ibv_query_gid_table"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGid {
    /// The index, [`GlobalRoute::sgid_index`](super::GlobalRoute::sgid_index) of a path.
    pub index: u32,
    /// The GID, in network byte order.
    pub gid: [u8; 16],
    /// What packets with it are.
    pub kind: GidKind,
    /// The name of the network interface that it is of; `None` on InfiniBand, and if the interface is gone.
    pub net_device: Option<String>,
}

impl PortGid {
    /// Returns the GID as an IP address, which it is with RoCE v2.
    #[must_use]
    pub fn ip(&self) -> core::net::IpAddr {
        Ipv6Addr::from(self.gid).to_canonical()
    }
}

/// What packets with a GID are (`enum ibv_gid_type`).
#[doc(alias = "ibv_gid_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand; also the GIDs of iWARP, which has no use for them.
    InfiniBand,
    /// RoCE version 1: Ethernet.
    RoceV1,
    /// RoCE version 2: UDP over IP.
    RoceV2,
    /// Not known.
    Unknown,
}
