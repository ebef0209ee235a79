//! The private data of the connection manager: `nvme_rdma_cm_req`, `_rep` and `_rej` of the kernel.

use std::fmt;

use super::WireError;
use super::bytes::{put, u16_at};

/// The private data of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmRequest {
    /// The queue: 0 is that of the administrator.
    pub qid: u16,
    /// The entries of the submission queue, from 2 on. The wire has one less (`HSQSIZE`), except for `HRQSIZE`.
    pub size: u16,
}

impl CmRequest {
    /// Its length in bytes.
    pub const LEN: usize = 32;

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; CmRequest::LEN] {
        let mut bytes = [0; CmRequest::LEN];
        put(&mut bytes, 2, &self.qid.to_le_bytes());
        put(&mut bytes, 4, &self.size.to_le_bytes());
        put(&mut bytes, 6, &self.size.saturating_sub(1).to_le_bytes());
        bytes
    }

    /// Reads it, as a target does.
    ///
    /// # Errors
    /// The reason of a reject.
    pub fn decode(bytes: &[u8]) -> Result<Self, CmError> {
        if bytes.len() < CmRequest::LEN {
            return Err(CmError(1));
        }
        let [format, qid, receives, sends] = [0, 2, 4, 6].map(|offset| u16_at(bytes, offset));
        match (format, sends.checked_add(1)) {
            (1.., _) => Err(CmError(2)),
            (0, Some(size)) if size == receives && size >= 2 => Ok(CmRequest { qid, size }),
            (0, _) => Err(CmError(4)),
        }
    }
}

/// The private data of an accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmReply {
    /// The receives that the controller has posted for commands (`CRQSIZE`), at least 2 to be of use.
    pub receives: u16,
}

impl CmReply {
    /// The format and the number of receives. The rest is reserved.
    const LEN: usize = 4;

    /// Reads it. The connection manager may have appended zeros.
    ///
    /// # Errors
    /// [`WireError`] if it is too short, of another format, or has room for no command.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let what = "the private data of the accept";
        if bytes.len() < CmReply::LEN {
            return Err(WireError::Length { what, len: bytes.len(), expected: CmReply::LEN });
        }
        let (format, receives) = (u16_at(bytes, 0), u16_at(bytes, 2));
        if format != 0 {
            return Err(WireError::Field { what, field: "RECFMT", value: format.into() });
        }
        if receives < 2 {
            return Err(WireError::Field { what, field: "CRQSIZE", value: receives.into() });
        }
        Ok(CmReply { receives })
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        put(&mut bytes, 2, &self.receives.to_le_bytes());
        bytes
    }
}

/// Why a target has rejected a connection (`enum nvme_rdma_cm_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmError(pub u16);

impl CmError {
    /// The target has no resources now. Later it may have.
    pub const NO_RESOURCES: CmError = CmError(6);
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "invalid length of the private data",
            2 => "invalid format of the private data",
            3 => "invalid queue ID",
            4 => "invalid size of the host's submission queue: choose a smaller --queue-size",
            5 => "invalid size of the host's receive queue: choose a smaller --queue-size",
            6 => "the target has no resources",
            7 => "invalid number of RDMA reads (IRD)",
            8 => "invalid number of RDMA reads (ORD)",
            9 => "invalid controller ID",
            other => return write!(f, "reason {other}"),
        })
    }
}

/// The private data of a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmReject;

impl CmReject {
    /// Reads the reason; `None` if the target has sent none: it is not an NVMe target, or the connection manager rejects.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<CmError> {
        let reason = u16_at(bytes, 2);
        (bytes.len() >= 4 && u16_at(bytes, 0) == 0 && reason != 0).then_some(CmError(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_a_request_are_zero_based_where_the_kernel_has_them_so() {
        let bytes = CmRequest { qid: 3, size: 32 }.encode();
        assert_eq!(bytes[..8], [0, 0, 3, 0, 32, 0, 31, 0]);
        assert_eq!(CmRequest::decode(&bytes), Ok(CmRequest { qid: 3, size: 32 }));
        assert_eq!(CmRequest::decode(&bytes[..31]), Err(CmError(1)));
        let full = CmRequest { qid: 0, size: 0 }.encode();
        assert_eq!(CmRequest::decode(&full), Err(CmError(4)));
    }

    #[test]
    fn a_reply_without_room_for_a_command_is_refused() {
        assert_eq!(CmReply::decode(&CmReply { receives: 32 }.encode()), Ok(CmReply { receives: 32 }));
        let refused = |bytes: &[u8]| CmReply::decode(bytes).expect_err("an error").to_string();
        assert_eq!(refused(&[0; 32]), "CRQSIZE of the private data of the accept is 0");
        assert_eq!(refused(&[1, 0, 32, 0]), "RECFMT of the private data of the accept is 1");
        assert_eq!(refused(&[0]), "the private data of the accept has 1 bytes, and not 4");
    }

    #[test]
    fn a_reject_tells_its_reason_in_words() {
        let reason = CmReject::decode(&[0, 0, 4, 0]).expect("a reason");
        assert!(reason.to_string().contains("submission queue"));
        assert_eq!(CmReject::decode(&[0; 148]), None);
        assert_eq!(CmReject::decode(b"cmi"), None);
    }
}
