//! Submission queue entries, and the scatter gather list entry in each.

use super::WireError;
use super::bytes::{array, put, u8_at, u16_at, u32_at, u64_at};

/// Bits 7:6 of the flags: the data pointer is an SGL (`PSDT`, `NVME_CMD_SGL_METABUF` of the kernel).
const SGL_FLAG: u8 = 0x40;

/// The SGL descriptor types of the RDMA transport: a keyed data block by address, the same with a key that the controller
/// invalidates (`NVME_SGL_FMT_INVALIDATE` of the kernel), and an offset in the capsule.
const KEYED: u8 = 0x40;
const KEYED_INVALIDATE: u8 = 0x4f;
const OFFSET: u8 = 0x01;

/// The data of a command (SGL descriptor 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// No data: a keyed data block of length 0.
    Nothing,
    /// Memory of the host, which the controller reads or writes by RDMA.
    Keyed {
        /// Its address.
        addr: u64,
        /// Its length in bytes, below 2^24.
        len: u32,
        /// Its remote key.
        key: u32,
        /// Whether the controller is to invalidate the key with its response, after which it has no access.
        invalidates: bool,
    },
    /// Data in the capsule, right behind the entry.
    InCapsule {
        /// Its length in bytes.
        len: u32,
    },
}

impl Sgl {
    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (addr, len, key, kind) = match self {
            Sgl::Nothing => (0, 0, 0, KEYED),
            Sgl::Keyed { addr, len, key, invalidates } => {
                (addr, len, key, if invalidates { KEYED_INVALIDATE } else { KEYED })
            }
            Sgl::InCapsule { len } => {
                put(&mut bytes, 8, &len.to_le_bytes());
                put(&mut bytes, 15, &[OFFSET]);
                return bytes;
            }
        };
        put(&mut bytes, 0, &addr.to_le_bytes());
        put(&mut bytes, 8, &len.to_le_bytes()[..3]);
        put(&mut bytes, 11, &key.to_le_bytes());
        put(&mut bytes, 15, &[kind]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let addr = u64_at(bytes, 0);
        match u8_at(bytes, 15) {
            OFFSET if addr == 0 => Ok(Sgl::InCapsule { len: u32_at(bytes, 8) }),
            OFFSET => Err(WireError::Field { what: "an SGL", field: "its offset", value: addr }),
            kind @ (KEYED | KEYED_INVALIDATE) => {
                let [a, b, c] = array(bytes, 8);
                let len = u32::from_le_bytes([a, b, c, 0]);
                let (key, invalidates) = (u32_at(bytes, 11), kind == KEYED_INVALIDATE);
                Ok(if len == 0 { Sgl::Nothing } else { Sgl::Keyed { addr, len, key, invalidates } })
            }
            other => Err(WireError::Field { what: "an SGL", field: "its type", value: other.into() }),
        }
    }
}

/// A submission queue entry. Commands of fabrics have their type in the first byte of `nsid`, and their fields in the words
/// 10 to 15 like all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe {
    /// The opcode (`OPC`).
    pub opcode: u8,
    /// The command identifier (`CID`), which the completion has too.
    pub cid: u16,
    /// The namespace identifier (`NSID`).
    pub nsid: u32,
    /// The data pointer (`DPTR`).
    pub sgl: Sgl,
    /// The command dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl Sqe {
    /// Its length in bytes.
    pub const LEN: usize = 64;

    /// Returns an entry without data, and without an identifier.
    #[must_use]
    pub fn new(opcode: u8, nsid: u32, cdw: [u32; 6]) -> Self {
        Sqe { opcode, cid: 0, nsid, sgl: Sgl::Nothing, cdw }
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Sqe::LEN] {
        let mut bytes = [0; Sqe::LEN];
        put(&mut bytes, 0, &[self.opcode, SGL_FLAG]);
        put(&mut bytes, 2, &self.cid.to_le_bytes());
        put(&mut bytes, 4, &self.nsid.to_le_bytes());
        put(&mut bytes, 24, &self.sgl.encode());
        for (number, word) in self.cdw.iter().enumerate() {
            put(&mut bytes, 40 + 4 * number, &word.to_le_bytes());
        }
        bytes
    }

    /// Reads it, as a target does. More bytes may follow: data in the capsule.
    ///
    /// # Errors
    /// [`WireError`] if it is too short, its flags are not those of an SGL, or its SGL has another type.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < Sqe::LEN {
            return Err(WireError::Length { what: "a command", len: bytes.len(), expected: Sqe::LEN });
        }
        let flags = u8_at(bytes, 1);
        if flags != SGL_FLAG {
            return Err(WireError::Field { what: "a command", field: "its flags", value: flags.into() });
        }
        Ok(Sqe {
            opcode: u8_at(bytes, 0),
            cid: u16_at(bytes, 2),
            nsid: u32_at(bytes, 4),
            sgl: Sgl::decode(&array::<16>(bytes, 24))?,
            cdw: std::array::from_fn(|number| u32_at(bytes, 40 + 4 * number)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let keyed = |invalidates| Sgl::Keyed { addr: u64::MAX, len: 0xff_ffff, key: 7, invalidates };
        for sgl in [Sgl::Nothing, keyed(false), keyed(true), Sgl::InCapsule { len: 4096 }] {
            let entry = Sqe { cid: 0x1234, sgl, ..Sqe::new(2, 1, [1, 2, 3, 4, 5, u32::MAX]) };
            assert_eq!(Sqe::decode(&entry.encode()), Ok(entry));
        }
    }

    /// As the kernel's `nvme_rdma_map_sg_single` and `nvme_rdma_map_sg_inline` write them.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let sgl = |invalidates| Sgl::Keyed { addr: 0x1122, len: 0x3344, key: 0x5566_7788, invalidates };
        let keyed = Sqe { sgl: sgl(false), ..Sqe::new(2, 1, [0; 6]) };
        assert_eq!(Sqe { sgl: sgl(true), ..keyed }.encode()[39], 0x4f);
        let bytes = keyed.encode();
        assert_eq!(bytes[..8], [2, 0x40, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[24..40], [0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0, 0x88, 0x77, 0x66, 0x55, 0x40]);
        let inside = Sqe { sgl: Sgl::InCapsule { len: 0x1_0000 }, ..keyed }.encode();
        assert_eq!(inside[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn an_entry_without_an_sgl_and_a_short_one_are_refused() {
        let mut bytes = Sqe::new(2, 1, [0; 6]).encode();
        bytes[39] = 0x50;
        assert!(Sqe::decode(&bytes).is_err_and(|error| error.to_string() == "its type of an SGL is 80"));
        bytes[1] = 0;
        assert!(Sqe::decode(&bytes).is_err());
        assert!(Sqe::decode(&bytes[..63]).is_err());
    }
}
