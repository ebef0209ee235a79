//! What Identify returns.

use super::WireError;
use super::bytes::{text_at, u8_at, u16_at, u32_at, u64_at};

/// The bytes of each structure.
const LEN: usize = 4096;

fn check(what: &'static str, bytes: &[u8]) -> Result<(), WireError> {
    if bytes.len() == LEN { Ok(()) } else { Err(WireError::Length { what, len: bytes.len(), expected: LEN }) }
}

/// The controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdController {
    /// The serial number.
    pub serial: String,
    /// The model.
    pub model: String,
    /// The firmware revision.
    pub firmware: String,
    /// The most bytes of a command, as a power of two of [`Cap::page`](crate::controller::Cap::page); 0 for no limit.
    pub mdts: u8,
    /// Its number.
    pub cntlid: u16,
    /// The version of the specification: major in bits 31:16, minor in 15:8.
    pub version: u32,
    /// The optional events that it reports.
    pub oaes: u32,
    /// The type: 1 for I/O, 2 for discovery, 3 for administration; 0 where it does not tell.
    pub kind: u8,
    /// The granularity of the keep-alive timeout in units of 100 ms; 0 without keep-alive.
    pub kas: u16,
    /// The most commands at the same time; 0 where it does not tell.
    pub max_commands: u16,
    /// The highest number of a namespace.
    pub namespaces: u32,
    /// There is a volatile write cache: Flush is of use.
    pub has_cache: bool,
    /// Which SGLs it supports.
    pub sgls: u32,
    /// The NQN of the subsystem.
    pub subsystem: String,
    /// The bytes of a command capsule of an I/O queue, with the entry.
    pub capsule: usize,
    /// The distance of the data in a capsule from the entry, in units of 16 bytes.
    pub icdoff: u16,
}

impl IdController {
    /// Reads it.
    ///
    /// # Errors
    /// [`WireError`] for another length, and for a capsule that is shorter than a command or longer than 1 MiB.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let what = "Identify Controller";
        check(what, bytes)?;
        let ioccsz = u32_at(bytes, 1792);
        let kind = u8_at(bytes, 111);
        // A discovery controller has no I/O queues, and may tell no size.
        let is_legal = (4..=0x1_0000).contains(&ioccsz) || ioccsz == 0;
        if !is_legal {
            return Err(WireError::Field { what, field: "IOCCSZ", value: ioccsz.into() });
        }
        Ok(IdController {
            serial: text_at(bytes, 4, 20),
            model: text_at(bytes, 24, 40),
            firmware: text_at(bytes, 64, 8),
            mdts: u8_at(bytes, 77),
            cntlid: u16_at(bytes, 78),
            version: u32_at(bytes, 80),
            oaes: u32_at(bytes, 92),
            kind,
            kas: u16_at(bytes, 320),
            max_commands: u16_at(bytes, 514),
            namespaces: u32_at(bytes, 516),
            has_cache: u8_at(bytes, 525) & 1 != 0,
            sgls: u32_at(bytes, 536),
            subsystem: text_at(bytes, 768, 256),
            capsule: ioccsz as usize * 16,
            icdoff: u16_at(bytes, 1800),
        })
    }

    /// Returns how many bytes of data fit into a capsule of an I/O queue; 0 if the controller takes none there
    /// (`nvme_rdma_inline_data_size`, bit 20 of `SGLS`).
    #[must_use]
    pub fn data_in_capsule(&self) -> usize {
        let takes = self.sgls & 1 << 20 != 0 && self.icdoff == 0;
        if takes { self.capsule.saturating_sub(super::Sqe::LEN) } else { 0 }
    }
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdNamespace {
    /// Its size in blocks.
    pub size: u64,
    /// The blocks that can be used at the same time.
    pub capacity: u64,
    /// The blocks that are in use.
    pub used: u64,
    /// The length of a block as a power of two.
    pub block_shift: u8,
    /// The bytes of metadata of each block.
    pub metadata: u16,
}

impl IdNamespace {
    /// Reads it. A namespace that is not active has the size 0.
    ///
    /// # Errors
    /// [`WireError`] for another length, and for a block below 512 bytes or above 64 KiB.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let what = "Identify Namespace";
        check(what, bytes)?;
        let size = u64_at(bytes, 0);
        // Bits 6:5 are the upper ones of the format (Base 2.0).
        let flbas = u8_at(bytes, 26);
        let format = usize::from(flbas & 0xf | (flbas & 0x60) >> 1);
        let block_shift = u8_at(bytes, 128 + 4 * format + 2);
        if size != 0 && !(9..=16).contains(&block_shift) {
            return Err(WireError::Field { what, field: "LBADS", value: block_shift.into() });
        }
        let metadata = u16_at(bytes, 128 + 4 * format);
        Ok(IdNamespace { size, capacity: u64_at(bytes, 8), used: u64_at(bytes, 16), block_shift, metadata })
    }

    /// Returns the length of a block in bytes.
    #[must_use]
    pub fn block(&self) -> usize {
        1 << self.block_shift.min(16)
    }
}

/// Reads the numbers of the active namespaces: ascending, without zeros.
///
/// # Errors
/// [`WireError`] for another length, and for numbers that do not ascend.
pub fn namespace_list(bytes: &[u8]) -> Result<Vec<u32>, WireError> {
    let what = "the list of namespaces";
    check(what, bytes)?;
    let numbers: Vec<u32> =
        (0..LEN / 4).map(|number| u32_at(bytes, 4 * number)).take_while(|&nsid| nsid != 0).collect();
    match numbers.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(WireError::Field { what, field: "NSID", value: pair[1].into() }),
        None => Ok(numbers),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::put;
    use super::*;

    #[test]
    fn a_controller_is_read_from_the_offsets_of_the_specification() {
        let mut bytes = vec![0; LEN];
        put(&mut bytes, 4, b"serial              Linux\x1b[31m  ");
        put(&mut bytes, 77, &[5, 9, 0]);
        put(&mut bytes, 536, &(1_u32 << 20 | 5).to_le_bytes());
        put(&mut bytes, 1792, &260_u32.to_le_bytes());
        let id = IdController::decode(&bytes).expect("a controller");
        assert_eq!((id.serial.as_str(), id.model.as_str()), ("serial", "Linux\u{fffd}[31m"));
        assert_eq!((id.mdts, id.cntlid, id.capsule, id.data_in_capsule()), (5, 9, 4160, 4096));
        put(&mut bytes, 1800, &[1]);
        assert_eq!(IdController::decode(&bytes).expect("a controller").data_in_capsule(), 0);
    }

    #[test]
    fn a_capsule_of_another_size_is_refused() {
        let mut bytes = vec![0; LEN];
        for ioccsz in [3_u32, 0x1_0001, u32::MAX] {
            put(&mut bytes, 1792, &ioccsz.to_le_bytes());
            assert!(IdController::decode(&bytes).is_err_and(|error| error.to_string().starts_with("IOCCSZ")));
        }
        assert!(IdController::decode(&bytes[..4095]).is_err());
    }

    #[test]
    fn a_namespace_has_blocks_of_the_selected_format() {
        let mut bytes = vec![0; LEN];
        put(&mut bytes, 0, &[0, 1]);
        put(&mut bytes, 26, &[2]);
        put(&mut bytes, 128, &[0, 0, 9, 0, 0, 0, 0, 0, 8, 0, 12, 0]);
        let id = IdNamespace::decode(&bytes).expect("a namespace");
        assert_eq!((id.size, id.block(), id.metadata), (256, 4096, 8));
        bytes[26] = 1;
        assert!(IdNamespace::decode(&bytes).is_err());
    }

    #[test]
    fn a_list_ends_at_a_zero_and_ascends() {
        let mut bytes = vec![0; LEN];
        put(&mut bytes, 0, &[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(namespace_list(&bytes), Ok(vec![1, 7]));
        bytes[4] = 1;
        assert!(namespace_list(&bytes).is_err());
    }
}
