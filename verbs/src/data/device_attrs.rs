//! What a device can do.

use core::ffi::{CStr, c_char};

use cmid_proto::Errno;
use cmid_proto::datapath::{Atomics, DeviceAttrs, Maxima, Odp, OdpOps};

use crate::accounting::srq_slots::MAX_CAPACITY;
use crate::data::Context;
use crate::ffi::{c_int, ibv_device_attr_ex};

impl Context {
    /// Returns what the device can do.
    ///
    /// # Errors
    /// The errno of ibv_query_device(3).
    pub(crate) fn attrs(&self) -> Result<DeviceAttrs, Errno> {
        let attr = self.query()?;
        let mut attrs = DeviceAttrs::named(self.name().to_string_lossy().into_owned());
        attrs.firmware = text_of(&attr.fw_ver);
        attrs.node_guid = u64::from_be(attr.node_guid);
        attrs.sys_image_guid = u64::from_be(attr.sys_image_guid);
        (attrs.vendor_id, attrs.vendor_part_id) = (attr.vendor_id, attr.vendor_part_id);
        attrs.ports = attr.phys_port_cnt;
        attrs.max_responder_resources = in_u8(attr.max_qp_rd_atom);
        attrs.max_initiator_depth = in_u8(attr.max_qp_init_rd_atom);
        attrs.maxima = Maxima {
            qp_wr: count(attr.max_qp_wr),
            sge: count(attr.max_sge),
            // No call tells it: create_reasons.rs looks for it.
            inline: u32::MAX,
            cqe: count(attr.max_cqe) / self.entries_each(),
            comp_vectors: self.comp_vectors(),
            srq_wr: count(attr.max_srq_wr).min(MAX_CAPACITY),
            srq_sge: count(attr.max_srq_sge),
        };
        (attrs.max_qp, attrs.max_cq, attrs.max_mr) = (count(attr.max_qp), count(attr.max_cq), count(attr.max_mr));
        attrs.max_mr_size = attr.max_mr_size;
        attrs.atomics = match attr.atomic_cap {
            0 => Atomics::None,
            2 => Atomics::Global,
            _ => Atomics::Device,
        };
        attrs.odp = self.query_ex().map(odp_of).unwrap_or_default();
        Ok(attrs)
    }
}

/// `IBV_ODP_SUPPORT`, `IBV_ODP_SUPPORT_IMPLICIT`.
const ODP: u64 = 1;
const ODP_IMPLICIT: u64 = 1 << 1;

fn odp_of(attr: ibv_device_attr_ex) -> Odp {
    let (caps, of) = (attr.odp_caps, attr.odp_caps.per_transport_caps);
    if caps.general_caps & ODP == 0 {
        return Odp::default();
    }
    Odp {
        implicit: caps.general_caps & ODP_IMPLICIT != 0,
        rc: OdpOps::from_bits_retain(of.rc_odp_caps),
        ud: OdpOps::from_bits_retain(of.ud_odp_caps),
    }
}

fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Converts to the width of the two parameters, which are bytes (`struct rdma_conn_param`).
pub(super) fn in_u8(number: c_int) -> u8 {
    u8::try_from(number.clamp(0, c_int::from(u8::MAX))).unwrap_or(u8::MAX)
}

/// Returns the text of a string of C in an array, which need not end.
fn text_of(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|byte| byte.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firmware_version_ends_with_its_zero_or_with_its_array() {
        let text = |bytes: &[u8]| text_of(&bytes.iter().map(|byte| *byte as c_char).collect::<Vec<_>>());
        assert_eq!((text(b"1.2\0x"), text(b"1.2"), text(b"")), ("1.2".into(), "1.2".into(), String::new()));
    }

    #[test]
    fn on_demand_paging_is_that_of_each_transport_if_the_device_has_it() {
        // SAFETY: zeros are a value of it: integers.
        let mut attr: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
        (attr.odp_caps.per_transport_caps.rc_odp_caps, attr.odp_caps.per_transport_caps.ud_odp_caps) = (0b1101, 1);
        assert_eq!(odp_of(attr), Odp::default());
        attr.odp_caps.general_caps = ODP | ODP_IMPLICIT;
        let rc = OdpOps::SEND | OdpOps::WRITE | OdpOps::READ;
        assert_eq!(odp_of(attr), Odp { implicit: true, rc, ud: OdpOps::SEND });
    }

    #[test]
    fn depths_are_bytes() {
        assert_eq!([-1, 128, 256].map(in_u8), [0, 128, 255]);
    }
}
