//! Completion queue entries, which are the response capsules.

use super::bytes::{u16_at, u64_at};
use super::{Status, WireError};

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The dwords 0 and 1: the result of the command.
    pub result: u64,
    /// The head of the submission queue (`SQHD`).
    pub sq_head: u16,
    /// The identifier of the command (`CID`).
    pub cid: u16,
    /// The status.
    pub status: Status,
}

impl Cqe {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Reads it.
    ///
    /// # Errors
    /// [`WireError::Length`] for another length.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() != Cqe::LEN {
            return Err(WireError::Length { what: "a response", len: bytes.len(), expected: Cqe::LEN });
        }
        Ok(Cqe {
            result: u64_at(bytes, 0),
            sq_head: u16_at(bytes, 8),
            cid: u16_at(bytes, 12),
            // Bit 0 is the phase, which fabrics do not use.
            status: Status(u16_at(bytes, 14) >> 1),
        })
    }

    /// Returns it as bytes, as a target sends it.
    #[must_use]
    pub fn encode(&self) -> [u8; Cqe::LEN] {
        let mut bytes = [0; Cqe::LEN];
        bytes[..8].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cid.to_le_bytes());
        bytes[14..].copy_from_slice(&(self.status.0 << 1).to_le_bytes());
        bytes
    }
}

/// An asynchronous event: the result of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The type (bits 2:0): 0 for an error, 1 for SMART, 2 for a notice.
    pub kind: u8,
    /// What has happened (bits 15:8).
    pub info: u8,
    /// The log page that tells more and ends the event (bits 23:16).
    pub log_page: u8,
}

impl AsyncEvent {
    /// Reads it from the result of its request.
    #[must_use]
    pub fn of(result: u64) -> Self {
        let [low, info, log_page, ..] = result.to_le_bytes();
        AsyncEvent { kind: low & 7, info, log_page }
    }
}

impl std::fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind, self.info) {
            (2, 0) => f.write_str("the namespaces have changed"),
            (2, 3) => f.write_str("the access to a namespace has changed"),
            (2, 0xf0) => f.write_str("the discovery log has changed"),
            (0, info) => write!(f, "error {info}"),
            (1, info) => write!(f, "SMART {info}"),
            (kind, info) => write!(f, "event {kind}, {info:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_as_it_was_written() {
        let cqe = Cqe { result: 0x0102_0304_0506_0708, sq_head: 9, cid: 0xf00d, status: Status(0x4182) };
        assert_eq!(Cqe::decode(&cqe.encode()), Ok(cqe));
    }

    #[test]
    fn a_response_of_another_length_is_refused() {
        for len in [0, 15, 17] {
            let error = Cqe::decode(&vec![0; len]).expect_err("a wrong length");
            assert_eq!(error.to_string(), format!("a response has {len} bytes, and not 16"));
        }
    }

    #[test]
    fn an_event_is_told_in_words() {
        let event = AsyncEvent::of(0x04_00_02);
        assert_eq!((event.log_page, event.to_string()), (4, "the namespaces have changed".into()));
        assert_eq!(AsyncEvent::of(0x70_f0_02).to_string(), "the discovery log has changed");
    }
}
