//! The header of a packet: 16 bytes, big-endian.
//!
//! | byte | content |
//! | --- | --- |
//! | 0 | the version, 1 |
//! | 1 | the kind: 1 message, 2 control, 3 goodbye, 4 offer, 5 taken |
//! | 2, 3 | zero |
//! | 4 to 7 | the bytes of the message or offer that follows; 0 if there is none |
//! | 8 to 11 | the number of the packet, from 0, modulo 2^32 |
//! | 12 to 15 | the number of packets that the sender of this header has permitted so far, modulo 2^32 |
//!
//! An offer is 20 bytes: the address of the memory (8), its rkey (4), and the bytes of the message in it (8).

use super::error::MessagesError;
use crate::datapath::Remote;

/// The bytes of a header.
pub const HEADER: usize = 16;

/// The bytes of a packet that offers a message: a header and its content.
pub const OFFER: usize = HEADER + 20;

pub(super) const VERSION: u8 = 1;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message = 1,
    Control = 2,
    Goodbye = 3,
    Offer = 4,
    Taken = 5,
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
            4 => Kind::Offer,
            5 => Kind::Taken,
            _ => return Err(MessagesError::Kind(kind)),
        };
        if [r0, r1] != [0, 0] {
            return Err(MessagesError::Reserved(u16::from_be_bytes([r0, r1])));
        }
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        let fits = match kind {
            Kind::Message => true,
            Kind::Offer => message.len() == OFFER - HEADER,
            Kind::Control | Kind::Goodbye | Kind::Taken => message.is_empty(),
        };
        if len as usize != message.len() || !fits {
            return Err(MessagesError::Length { header: len, received: message.len() });
        }
        let number = u32::from_be_bytes([n0, n1, n2, n3]);
        let granted = u32::from_be_bytes([g0, g1, g2, g3]);
        Ok((Header { kind, len, number, granted }, message))
    }
}

/// Encodes the content of an offer.
pub(super) fn encode_offer(header: [u8; HEADER], at: Remote, len: u64) -> [u8; OFFER] {
    let mut bytes = [0; OFFER];
    bytes[..16].copy_from_slice(&header);
    bytes[16..24].copy_from_slice(&at.addr.to_be_bytes());
    bytes[24..28].copy_from_slice(&at.rkey.to_be_bytes());
    bytes[28..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Decodes the content of an offer.
pub(super) fn decode_offer(content: &[u8]) -> Option<(Remote, u64)> {
    let (addr, rest) = content.split_first_chunk()?;
    let (rkey, rest) = rest.split_first_chunk()?;
    let at = Remote { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rkey) };
    Some((at, u64::from_be_bytes(*rest.first_chunk()?)))
}
