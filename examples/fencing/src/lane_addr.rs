//! The address of a lane, and its message.

use cmid_proto::datapath::{MemoryRegion, Remote};

/// The address, key and length of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneAddr {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u32,
}

impl LaneAddr {
    /// The size of the message in bytes.
    pub(crate) const LEN: usize = 16;

    pub(crate) fn of(lane: &impl MemoryRegion) -> Self {
        LaneAddr { addr: lane.addr(), rkey: lane.rkey(), len: lane.len() as u32 }
    }

    /// The address and key for a work request.
    pub(crate) fn remote(self) -> Remote {
        Remote { addr: self.addr, rkey: self.rkey }
    }

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        LaneAddr {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([i, j, k, l]),
            len: u32::from_be_bytes([m, n, o, p]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let lane_addr = LaneAddr { addr: 0x7f00_0102_0304_0506, rkey: 0xa1a2_a3a4, len: 4096 };
        assert_eq!(LaneAddr::decode(lane_addr.encode()), lane_addr);
    }
}
