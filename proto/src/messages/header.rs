//! The header of a packet: 16 bytes, big-endian.
//!
//! | byte | content |
//! | --- | --- |
//! | 0 | the version, 1 |
//! | 1 | the kind: 1 message, 2 control, 3 goodbye |
//! | 2, 3 | zero |
//! | 4 to 7 | the bytes of the message that follows; 0 if there is none |
//! | 8 to 11 | the number of the packet, from 0, modulo 2^32 |
//! | 12 to 15 | the number of packets that the sender of this header has permitted so far, modulo 2^32 |

use super::error::MessagesError;

/// The bytes of a header.
pub const HEADER: usize = 16;

pub(super) const VERSION: u8 = 1;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message = 1,
    Control = 2,
    Goodbye = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) len: u32,
    pub(super) number: u32,
    pub(super) granted: u32,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION;
        bytes[1] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..].copy_from_slice(&self.granted.to_be_bytes());
        bytes
    }

    /// Decodes a packet into its header and its message. All that can be checked without a state is checked.
    pub(super) fn decode(packet: &[u8]) -> Result<(Header, &[u8]), MessagesError> {
        let Some((header, message)) = packet.split_first_chunk::<HEADER>() else {
            return Err(MessagesError::Short(packet.len()));
        };
        let [version, kind, r0, r1, l0, l1, l2, l3, n0, n1, n2, n3, g0, g1, g2, g3] = *header;
        if version != VERSION {
            return Err(MessagesError::Version(version));
        }
        let kind = match kind {
            1 => Kind::Message,
            2 => Kind::Control,
            3 => Kind::Goodbye,
            _ => return Err(MessagesError::Kind(kind)),
        };
        if [r0, r1] != [0, 0] {
            return Err(MessagesError::Reserved(u16::from_be_bytes([r0, r1])));
        }
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        if len as usize != message.len() || (kind != Kind::Message && len != 0) {
            return Err(MessagesError::Length { header: len, received: message.len() });
        }
        let number = u32::from_be_bytes([n0, n1, n2, n3]);
        let granted = u32::from_be_bytes([g0, g1, g2, g3]);
        Ok((Header { kind, len, number, granted }, message))
    }
}
