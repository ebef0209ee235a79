//! What ends the exchange of messages, and why a message cannot be sent.

use core::time::Duration;

use super::header::VERSION;
use super::hello::HelloError;
use crate::words::debug_in_words;

/// Why the connection has failed: the peer breaks the protocol, or is gone. Close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum MessagesError {
    /// A packet is shorter than a header; its bytes.
    #[error("a packet of {0} bytes is shorter than a header")]
    Short(usize),
    /// A packet has another version.
    #[error("a packet has version {0}, this side {VERSION}")]
    Version(u8),
    /// A packet is of no known kind.
    #[error("a packet is of kind {0}, which does not exist")]
    Kind(u8),
    /// Bytes that must be zero are not.
    #[error("bytes 2 and 3 of a header are {0:#06x}, not zero")]
    Reserved(u16),
    /// The length in a header is not that of the packet or of its kind.
    #[error("a header says {header} bytes, and {received} follow it, or none may")]
    Length {
        /// The length in the header.
        header: u32,
        /// The bytes behind the header.
        received: usize,
    },
    /// A packet is missing, repeated, or of another connection.
    #[error("packet {received} arrives, and {expected} is the next one")]
    Number {
        /// The number of the next packet.
        expected: u32,
        /// That in the header.
        received: u32,
    },
    /// The peer has sent without a credit.
    #[error("the peer has sent a packet without a credit")]
    Overrun,
    /// The peer permits more packets than it has receives, or takes back what it has permitted.
    #[error("the peer permits {granted} packets more, and has {window} receives, of which {credits} are free")]
    Granted {
        /// The packets that the header permits beyond earlier ones, modulo 2^32.
        granted: u32,
        /// The free receives before.
        credits: u32,
        /// The number of its receives.
        window: u16,
    },
    /// The peer has taken more messages than were offered.
    #[error("the peer has taken a message that was not offered")]
    NotOffered,
    /// The peer has said goodbye before the message that it offered was taken.
    #[error("the peer has said goodbye, and its offered message is not taken")]
    OfferLeft,
    /// The peer has sent a message or a goodbye after its goodbye.
    #[error("the peer has sent after its goodbye")]
    AfterGoodbye,
    /// The peer has sent nothing for so long.
    #[error("the peer has sent nothing for {0:?}")]
    Silent(Duration),
    /// The peer has not said goodbye by the deadline of [`Messages::close`](super::Messages::close).
    #[error("the peer has not said goodbye in time")]
    NoGoodbye,
}

/// Why a message cannot be sent now. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// The peer has no receive free: send it after a later [`Messages::receive`](super::Messages::receive).
    #[error("the peer has no receive free")]
    NoCredit,
    /// It is longer than a receive of the peer.
    #[error("a message of {len} bytes, more than the maximum of {max}")]
    TooLong {
        /// The bytes of the message.
        len: usize,
        /// [`Messages::message_max`](super::Messages::message_max).
        max: usize,
    },
    /// This side has closed, or the connection has failed.
    #[error("the exchange of messages is closed")]
    Closed,
}

debug_in_words!(HelloError, MessagesError, NotSent);
