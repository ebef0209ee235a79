//! The messages. Each is one frame of [`LEN`] bytes with fixed fields in network byte order, and starts with the
//! version of the protocol.

use thiserror::Error;
use zerocopy::byteorder::big_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// The version of the protocol. Programs reject peers of other versions.
pub const VERSION: u8 = 1;

/// The length of each message, in bytes.
pub const LEN: usize = 32;

/// The bytes of a message.
pub type Bytes = [u8; LEN];

/// The number of instruments, which are numbered from 0.
pub const INSTRUMENTS: usize = 16;

/// The largest sequence number, so that sums of sequence numbers do not overflow.
pub const SEQUENCE_MAX: u64 = 1 << 62;

/// A message that this program cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// It is of another version of the protocol.
    #[error("protocol version {0} where this program has version {VERSION}: run the same version of ticker everywhere")]
    Version(u8),
    /// Its kind is unknown.
    #[error("an unknown message of kind {0}")]
    Kind(u8),
    /// Its instrument is not below [`INSTRUMENTS`].
    #[error("instrument {0} does not exist: there are {INSTRUMENTS}")]
    Instrument(u16),
    /// Its sequence number is above [`SEQUENCE_MAX`].
    #[error("sequence number {0}")]
    Sequence(u64),
}

/// A price of an instrument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Its number in the session of the feed, from 1 on.
    pub sequence: u64,
    /// The number of the instrument, below [`INSTRUMENTS`].
    pub instrument: u16,
    /// The quantity that is offered.
    pub quantity: u32,
    /// The price, in hundredths.
    pub price: u64,
}

/// The messages of the feed: by multicast, and over the connection that fills gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Market {
    /// Multicast: the next tick.
    Tick(Tick),
    /// Multicast, while there are no ticks: the sequence number of the next tick, by which a receiver detects the loss
    /// of the last one.
    Heartbeat {
        /// The next sequence number.
        next: u64,
    },
    /// Receiver to feed: send the ticks from `from` to before `to` again.
    Replay {
        /// The first one.
        from: u64,
        /// The end, which is not included.
        to: u64,
    },
    /// Feed to receiver: a tick of a replay.
    Replayed(Tick),
    /// Feed to receiver: the replay is not possible, because the feed has not kept these ticks.
    Gone,
    /// Receiver to feed: send the last tick of each instrument.
    Snapshot,
    /// Feed to receiver: a tick of a snapshot.
    Image(Tick),
    /// Feed to receiver: the snapshot is complete. It includes all ticks before `next`.
    SnapshotEnd {
        /// The first tick that is not included.
        next: u64,
    },
    /// Receiver to feed, while no request is due: keeps the connection alive.
    Alive,
}

/// A message of the feed with its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarketMessage {
    /// The session of the feed. Each start of the feed has a larger one.
    pub session: u64,
    /// The message.
    pub market: Market,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MarketFrame {
    version: u8,
    kind: u8,
    instrument: U16,
    quantity: U32,
    session: U64,
    sequence: U64,
    /// The price, or the end of a range.
    value: U64,
}

impl MarketMessage {
    /// Returns its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (kind, tick) = match self.market {
            Market::Tick(tick) => (1, tick),
            Market::Heartbeat { next } => (2, Tick { sequence: next, ..Tick::default() }),
            Market::Replay { from, to } => (3, Tick { sequence: from, price: to, ..Tick::default() }),
            Market::Replayed(tick) => (4, tick),
            Market::Gone => (5, Tick::default()),
            Market::Snapshot => (6, Tick::default()),
            Market::Image(tick) => (7, tick),
            Market::SnapshotEnd { next } => (8, Tick { sequence: next, ..Tick::default() }),
            Market::Alive => (9, Tick::default()),
        };
        transmute!(MarketFrame {
            version: VERSION,
            kind,
            instrument: tick.instrument.into(),
            quantity: tick.quantity.into(),
            session: self.session.into(),
            sequence: tick.sequence.into(),
            value: tick.price.into(),
        })
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError`].
    #[inline]
    pub fn decode(bytes: &Bytes) -> Result<Self, WireError> {
        let frame: MarketFrame = transmute!(*bytes);
        check_version(frame.version)?;
        let (next, value) = (frame.sequence.get(), frame.value.get());
        let instrument = frame.instrument.get();
        if usize::from(instrument) >= INSTRUMENTS {
            return Err(WireError::Instrument(instrument));
        }
        if next > SEQUENCE_MAX {
            return Err(WireError::Sequence(next));
        }
        let tick = Tick { sequence: next, instrument, quantity: frame.quantity.get(), price: value };
        let market = match frame.kind {
            1 => Market::Tick(tick),
            2 => Market::Heartbeat { next },
            3 => Market::Replay { from: next, to: value },
            4 => Market::Replayed(tick),
            5 => Market::Gone,
            6 => Market::Snapshot,
            7 => Market::Image(tick),
            8 => Market::SnapshotEnd { next },
            9 => Market::Alive,
            other => return Err(WireError::Kind(other)),
        };
        Ok(MarketMessage { session: frame.session.get(), market })
    }
}

/// An order: a limit order to buy or to sell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The number of the order, larger than that of the trader's previous order.
    pub number: u64,
    /// The number of the instrument.
    pub instrument: u16,
    /// The quantity to buy; negative to sell.
    pub quantity: i32,
    /// The limit of the price, in hundredths.
    pub price: u64,
    /// The sequence number of the tick that caused it.
    pub tick: u64,
}

/// The messages of order entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Trader to exchange: an order.
    New(Order),
    /// Exchange to trader: the order with this number is accepted.
    Accepted(u64),
    /// Exchange to trader: the order with this number is refused.
    Refused(u64),
    /// Trader to exchange, while there are no orders: keeps the connection alive.
    Alive,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryFrame {
    version: u8,
    kind: u8,
    instrument: U16,
    quantity: I32,
    number: U64,
    tick: U64,
    price: U64,
}

impl Entry {
    /// Returns its bytes.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> Bytes {
        let (kind, order) = match *self {
            Entry::New(order) => (21, order),
            Entry::Accepted(number) => (22, Order { number, ..Order::default() }),
            Entry::Refused(number) => (23, Order { number, ..Order::default() }),
            Entry::Alive => (24, Order::default()),
        };
        transmute!(EntryFrame {
            version: VERSION,
            kind,
            instrument: order.instrument.into(),
            quantity: order.quantity.into(),
            number: order.number.into(),
            tick: order.tick.into(),
            price: order.price.into(),
        })
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, WireError> {
        let frame: EntryFrame = transmute!(*bytes);
        check_version(frame.version)?;
        let instrument = frame.instrument.get();
        if usize::from(instrument) >= INSTRUMENTS {
            return Err(WireError::Instrument(instrument));
        }
        let number = frame.number.get();
        let (quantity, price, tick) = (frame.quantity.get(), frame.price.get(), frame.tick.get());
        match frame.kind {
            21 => Ok(Entry::New(Order { number, instrument, quantity, price, tick })),
            22 => Ok(Entry::Accepted(number)),
            23 => Ok(Entry::Refused(number)),
            24 => Ok(Entry::Alive),
            other => Err(WireError::Kind(other)),
        }
    }
}

#[inline]
fn check_version(version: u8) -> Result<(), WireError> {
    if version == VERSION { Ok(()) } else { Err(WireError::Version(version)) }
}

/// The service of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Replays and snapshots of a feed.
    Replay,
    /// Order entry.
    Orders,
}

/// The length of [`Service::hello`].
pub const HELLO_LEN: usize = 8;

impl Service {
    /// The private data of a connection request, and of its rejection: the name of the protocol, its version, the
    /// service.
    #[must_use]
    pub const fn hello(self) -> [u8; HELLO_LEN] {
        let service = match self {
            Service::Replay => b'R',
            Service::Orders => b'O',
        };
        [b't', b'i', b'c', b'k', b'e', b'r', VERSION, service]
    }

    /// The name of the program that offers the service, for error texts.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Service::Replay => "ticker feed",
            Service::Orders => "ticker exchange",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Tick = Tick { sequence: SEQUENCE_MAX, instrument: 15, quantity: 7, price: 1 << 40 };

    #[test]
    fn each_message_is_read_as_it_was_written() {
        for market in [
            Market::Tick(TICK),
            Market::Heartbeat { next: 9 },
            Market::Replay { from: 3, to: 1 << 50 },
            Market::Replayed(TICK),
            Market::Gone,
            Market::Snapshot,
            Market::Image(TICK),
            Market::SnapshotEnd { next: 1 },
            Market::Alive,
        ] {
            let message = MarketMessage { session: 1 << 60, market };
            assert_eq!(MarketMessage::decode(&message.encode()), Ok(message));
        }
        let order = Order { number: 8, instrument: 2, quantity: -5, price: 100, tick: 77 };
        for entry in [Entry::New(order), Entry::Accepted(8), Entry::Refused(u64::MAX), Entry::Alive] {
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
    }

    #[test]
    fn what_is_not_of_this_version_is_an_error() {
        let mut bytes = MarketMessage { session: 1, market: Market::Gone }.encode();
        bytes[0] = 2;
        assert_eq!(MarketMessage::decode(&bytes), Err(WireError::Version(2)));
        assert_eq!(Entry::decode(&bytes), Err(WireError::Version(2)));
        bytes[..2].copy_from_slice(&[VERSION, 21]);
        assert_eq!(MarketMessage::decode(&bytes), Err(WireError::Kind(21)));
        bytes[1] = 1;
        assert_eq!(Entry::decode(&bytes), Err(WireError::Kind(1)));
        bytes[2..4].copy_from_slice(&16_u16.to_be_bytes());
        assert_eq!(MarketMessage::decode(&bytes), Err(WireError::Instrument(16)));
        assert_eq!(Entry::decode(&bytes), Err(WireError::Instrument(16)));
        let late = MarketMessage { session: 1, market: Market::Heartbeat { next: SEQUENCE_MAX + 1 } };
        assert_eq!(MarketMessage::decode(&late.encode()), Err(WireError::Sequence(SEQUENCE_MAX + 1)));
    }
}
