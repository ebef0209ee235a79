//! What the devices can do, and what their ports are.

use cmid_proto::Errno;
use cmid_proto::datapath::{Atomics, DeviceAttrs, GidKind, LinkLayer, Maxima, PortAttrs, PortGid, PortState};

use crate::fabric::world::World;
use crate::index::{DeviceNo, HostNo};
use crate::kernel::gid::{PORT, gid_of};

/// `RXE_PORT_GID_TBL_LEN`; that of siw is 1.
const GID_TABLE_LEN: u32 = 1024;

impl World {
    /// Those of rxe (rxe_param.h), with the version that its library makes of none; or of siw (siw.h).
    pub(super) fn device_attrs(&self, device: DeviceNo) -> DeviceAttrs {
        let (is_iwarp, config) = (self.is_iwarp(device.host), &self.config);
        // A GUID of its own, locally administered.
        let guid = 2 << 56 | (device.host.0 as u64 & 0xffff_ffff) << 16 | u64::from(device.index);
        let mut attrs = DeviceAttrs::named(device.name().to_string());
        attrs.firmware = "0.0.0".into();
        (attrs.node_guid, attrs.sys_image_guid, attrs.ports) = (guid, guid, PORT);
        (attrs.vendor_id, attrs.vendor_part_id) = if is_iwarp { (0x62_6d74, 0) } else { (0xff_ffff, 0) };
        attrs.max_responder_resources = config.max_responder_resources;
        attrs.max_initiator_depth = config.max_initiator_depth;
        attrs.maxima = self.maxima(device.host);
        (attrs.max_qp, attrs.max_cq, attrs.max_mr) =
            if is_iwarp { (102_400, 102_400, 1_024_000) } else { (MANY, MANY, MANY) };
        attrs.max_mr_size = u64::MAX;
        attrs.atomics = if is_iwarp { Atomics::None } else { Atomics::Device };
        attrs
    }

    /// # Errors
    /// `EINVAL` for another port than the first.
    pub(super) fn port_attrs(&self, host: HostNo, port: u8) -> Result<PortAttrs, Errno> {
        let state = self.hosts.get(host.0).filter(|_| port == PORT).ok_or(Errno::EINVAL)?;
        let mut attrs = PortAttrs::in_state(if state.link_up { PortState::ACTIVE } else { PortState::DOWN });
        (attrs.max_mtu, attrs.active_mtu) = (MAX_MTU, self.config.mtu);
        (attrs.link_layer, attrs.width, attrs.lane_speed) = (LinkLayer::Ethernet, 1, 2500);
        attrs.gid_table_len = if self.is_iwarp(host) { 1 } else { GID_TABLE_LEN };
        Ok(attrs)
    }

    /// The addresses of a device of RoCE. iWARP has no use for its GID.
    pub(super) fn gids(&self, device: DeviceNo, port: u8) -> Result<Vec<PortGid>, Errno> {
        let state = self.hosts.get(device.host.0).filter(|_| port == PORT).ok_or(Errno::EINVAL)?;
        if self.is_iwarp(device.host) {
            return Ok(Vec::new());
        }
        let own = state.rdma.iter().zip(0..).filter(|(ip, _)| state.device_index(**ip) == device.index);
        let interface = Some(format!("eth{}", device.index));
        let entry =
            |(ip, index)| PortGid { index, gid: gid_of(ip), kind: GidKind::RoceV2, net_device: interface.clone() };
        Ok(own.map(|(ip, index)| entry((*ip, index))).collect())
    }
}

/// `DEFAULT_MAX_VALUE` of rxe.
const MANY: u32 = 1 << 20;
/// `IB_MTU_4096`.
const MAX_MTU: u32 = 4096;

/// The number of completion vectors of each device.
pub(crate) const COMP_VECTORS: u32 = 4;

/// Those of rxe (rxe_param.h).
const RXE: Maxima = Maxima {
    qp_wr: 1 << 20,
    sge: 32,
    inline: 512,
    cqe: (1 << 15) - 1,
    comp_vectors: COMP_VECTORS,
    srq_wr: 1 << 20,
    srq_sge: 27,
};

/// Those of siw (siw.h, siw-abi.h): `SIW_MAX_QP_WR`, `SIW_MAX_SGE`, `SIW_MAX_INLINE`, half of `SIW_MAX_CQE`, `SIW_MAX_SRQ_WR`.
const SIW: Maxima = Maxima {
    qp_wr: 1 << 15,
    sge: 6,
    inline: 80,
    cqe: 50 << 15,
    comp_vectors: COMP_VECTORS,
    srq_wr: 10 << 15,
    srq_sge: 6,
};

impl World {
    /// Returns the maximum capacities of a host's devices.
    pub(crate) fn maxima(&self, host: HostNo) -> Maxima {
        if self.is_iwarp(host) { SIW } else { RXE }
    }
}
