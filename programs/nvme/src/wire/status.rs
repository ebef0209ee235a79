//! The status of a completion.

use std::fmt;

/// The status field without the phase: the code in bits 7:0, its type in bits 10:8, `DNR` in bit 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Success.
    pub const SUCCESS: Status = Status(0);
    /// An address beyond the end of the namespace.
    pub const LBA_OUT_OF_RANGE: Status = Status(0x4080);
    /// A parameter of Connect.
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x4182);

    /// The command has succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// The same command would fail again (`DNR`, do not retry).
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// The type and the code.
    const fn parts(self) -> (u16, u16) {
        (self.0 >> 8 & 7, self.0 & 0xff)
    }

    /// The words of the specification: Base 2.0, figures 96 to 101, and the codes of fabrics.
    fn words(self) -> Option<&'static str> {
        Some(match self.parts() {
            (0, 0x00) => "success",
            (0, 0x01) => "invalid command opcode",
            (0, 0x02) => "invalid field in command",
            (0, 0x03) => "command ID conflict",
            (0, 0x04) => "data transfer error",
            (0, 0x05) => "commands aborted due to power loss notification",
            (0, 0x06) => "internal error",
            (0, 0x07) => "command abort requested",
            (0, 0x08) => "command aborted due to SQ deletion",
            (0, 0x0b) => "invalid namespace or format",
            (0, 0x0c) => "command sequence error",
            (0, 0x0d) => "invalid SGL segment descriptor",
            (0, 0x0e) => "invalid number of SGL descriptors",
            (0, 0x0f) => "data SGL length invalid",
            (0, 0x11) => "SGL descriptor type invalid",
            (0, 0x16) => "SGL offset invalid",
            (0, 0x18) => "host identifier inconsistent format",
            (0, 0x19) => "keep alive timer expired",
            (0, 0x1a) => "keep alive timeout invalid",
            (0, 0x20) => "namespace is write protected",
            (0, 0x22) => "transient transport error",
            (0, 0x80) => "LBA out of range",
            (0, 0x81) => "capacity exceeded",
            (0, 0x82) => "namespace not ready",
            (0, 0x83) => "reservation conflict",
            (1, 0x00) => "completion queue invalid",
            (1, 0x01) => "invalid queue identifier",
            (1, 0x02) => "invalid queue size",
            (1, 0x05) => "asynchronous event request limit exceeded",
            (1, 0x09) => "invalid log page",
            (1, 0x0d) => "feature identifier not saveable",
            (1, 0x80) => "incompatible format, or conflicting attributes",
            (1, 0x81) => "controller busy, or invalid protection information",
            (1, 0x82) => "invalid parameters: is the NQN right? Or a write to a range that can only be read",
            (1, 0x83) => "discovery is to begin again",
            (1, 0x84) => "this host may not connect",
            (1, 0x90) => "discovery has changed: read it again",
            (1, 0x91) => "authentication required",
            (2, 0x80) => "write fault",
            (2, 0x81) => "unrecovered read error",
            (2, 0x82) => "guard check error",
            (2, 0x85) => "compare failure",
            (2, 0x86) => "access denied",
            (2, 0x87) => "deallocated or unwritten logical block",
            (3, 0x00) => "internal path error",
            (3, 0x01) => "asymmetric access: persistent loss",
            (3, 0x02) => "asymmetric access: inaccessible",
            (3, 0x03) => "asymmetric access: transition",
            _ => return None,
        })
    }
}

/// In words, with the numbers.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = self.parts();
        match self.words() {
            Some(words) => f.write_str(words)?,
            None => f.write_str("status")?,
        }
        write!(f, " (type {kind}, code {code:#04x}{})", if self.is_final() { ", final" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words() {
        assert_eq!(Status::LBA_OUT_OF_RANGE.to_string(), "LBA out of range (type 0, code 0x80, final)");
        assert_eq!(Status(0x7ff).to_string(), "status (type 7, code 0xff)");
        assert!(Status(0x4182).to_string().starts_with("invalid parameters"));
    }

    #[test]
    fn only_the_code_and_its_type_decide_about_success() {
        assert!(Status(0x4000).is_success() && Status(0x3800).is_success());
        assert!(!Status(0x0100).is_success() && !Status(1).is_success());
    }
}
