//! Parses the kernel's answers from their bytes, in safe code.

use core::mem::offset_of;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use cmid_proto::datapath::{AhAttr, GlobalRoute};
use cmid_proto::{CmEvent, ConnParam, Datagram, Ece};
use libc::{AF_INET, AF_INET6};

use crate::kernel::abi::{In6, PRIVATE_DATA, Storage, offset};
use crate::kernel::location::Location;
use crate::sign::signed;

/// `struct rdma_ucm_event_resp`, as written by the kernel.
pub(crate) struct Answer<'a>(pub(crate) &'a [u8; offset::EVENT_LEN]);

impl<'a> Answer<'a> {
    /// Returns the `uid` that create, accept or join has passed.
    pub(crate) fn uid(&self) -> u64 {
        u64::from_ne_bytes(bytes(self.0, 0))
    }

    /// Returns the kernel's handle of the id, or of the membership.
    pub(crate) fn handle(&self) -> u32 {
        word(self.0, offset::EVENT_ID)
    }

    pub(crate) fn kind(&self) -> CmEvent {
        CmEvent::from_code(word(self.0, offset::EVENT_KIND))
    }

    pub(crate) fn status(&self) -> i32 {
        signed(word(self.0, offset::EVENT_STATUS))
    }

    /// All zeros on kernels older than the field.
    pub(crate) fn ece(&self) -> Ece {
        Ece { vendor_id: word(self.0, offset::EVENT_ECE), options: word(self.0, offset::EVENT_ECE + 4) }
    }

    fn param(&self) -> &'a [u8] {
        &self.0[offset::EVENT_PARAM..offset::EVENT_LEN_OLD]
    }

    pub(crate) fn conn(&self) -> ConnParam {
        let param = self.param();
        let [_, srq, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, _] =
            bytes(param, offset::CONN_PRIVATE_LEN);
        ConnParam {
            responder_resources,
            initiator_depth,
            flow_control: flow_control != 0,
            retry_count,
            rnr_retry_count,
            srq: srq != 0,
            qp_num: word(param, 0),
        }
    }

    /// Returns the private data of an event of a connected id.
    pub(crate) fn conn_private(&self) -> &'a [u8] {
        private(self.param(), 8, offset::CONN_PRIVATE_LEN)
    }

    /// Returns the argument of a USER event, in the byte order of the host (`arg32`).
    pub(crate) fn argument(&self) -> &'a [u8] {
        &self.param()[..8]
    }

    pub(crate) fn datagram(&self) -> Datagram {
        let param = self.param();
        Datagram { qp_num: word(param, 0), qkey: word(param, 4), path: path(&param[offset::UD_AH..offset::UD_PRIVATE]) }
    }

    /// Returns the private data of an event of a datagram id.
    pub(crate) fn ud_private(&self) -> &'a [u8] {
        private(self.param(), offset::UD_PRIVATE, offset::UD_PRIVATE_LEN)
    }
}

/// `struct ib_uverbs_ah_attr`.
fn path(ah: &[u8]) -> AhAttr {
    use crate::kernel::abi::AhAttr as C;
    let [sgid_index, hop_limit, traffic_class] = bytes(ah, offset_of!(C, sgid_index));
    let flow_label = word(ah, offset_of!(C, flow_label));
    let grh = GlobalRoute { dgid: bytes(ah, 0), flow_label, sgid_index, hop_limit, traffic_class };
    let [sl, src_path_bits, static_rate, is_global, port_num] = bytes(ah, offset_of!(C, sl));
    let dlid = u16::from_ne_bytes(bytes(ah, offset_of!(C, dlid)));
    AhAttr { grh: (is_global != 0).then_some(grh), dlid, sl, src_path_bits, static_rate, port_num }
}

/// Returns the private data at `at`. The byte at `len` is its length, at most 255, which is less than the field.
fn private(param: &[u8], at: usize, len: usize) -> &[u8] {
    &param[at..][..usize::from(param[len]).min(PRIVATE_DATA)]
}

fn word(from: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes(from, at))
}

/// Returns `N` bytes at a constant offset inside the answer.
fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut copied = [0; N];
    copied.copy_from_slice(&from[at..at + N]);
    copied
}

/// Returns the device in `struct rdma_ucm_query_addr_resp`; `None` while the id has none.
pub(crate) fn location(answer: &[u8]) -> Option<Location> {
    let guid = u64::from_ne_bytes(bytes(answer, 0));
    let location = Location { guid, index: word(answer, offset::ADDR_INDEX), port: answer[offset::ADDR_PORT] };
    (guid != 0).then_some(location)
}

/// Converts an address to the kernel's form with room for any family. Returns its length too.
pub(crate) fn storage(addr: &SocketAddr) -> (Storage, u16) {
    let mut raw = [0; 128];
    raw[..28].copy_from_slice(&in6(addr).0);
    (Storage(raw), if addr.is_ipv4() { 16 } else { 28 })
}

/// Converts an address to the kernel's form.
pub(crate) fn in6(addr: &SocketAddr) -> In6 {
    let mut raw = [0; 28];
    raw[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let family = match addr {
        SocketAddr::V4(v4) => {
            raw[4..8].copy_from_slice(&v4.ip().octets());
            AF_INET
        }
        SocketAddr::V6(v6) => {
            raw[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            raw[8..24].copy_from_slice(&v6.ip().octets());
            raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            AF_INET6
        }
    };
    raw[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    In6(raw)
}

/// Returns the address at an offset of the answer; `None` for another family.
pub(crate) fn address(from: &[u8], at: usize) -> Option<SocketAddr> {
    let raw: [u8; 28] = bytes(from, at);
    let port = u16::from_be_bytes(bytes(&raw, 2));
    match i32::from(u16::from_ne_bytes(bytes(&raw, 0))) {
        AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(bytes::<4>(&raw, 4)), port).into()),
        AF_INET6 => {
            let ip = Ipv6Addr::from(bytes::<16>(&raw, 8));
            Some(SocketAddrV6::new(ip, port, word(&raw, 4), word(&raw, 24)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_both_ways() {
        for text in ["10.99.0.1:4791", "0.0.0.0:0", "[fd99::1]:18515", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(address(&storage(&addr).0.0, 0), Some(addr));
        }
        assert_eq!(address(&[27; 128], 0), None);
    }
}
