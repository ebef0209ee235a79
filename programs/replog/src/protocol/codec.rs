//! Messages, frames and records as bytes, in network byte order.

use super::log::{Position, Record, RequestId};
use super::message::{Frame, Message};

/// The error for bytes that are not a message, frame or record of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes of another version of replog")]
pub struct Malformed;

/// Reads numbers from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes(4)?.try_into().map(u32::from_be_bytes).map_err(|_| Malformed)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.bytes(8)?.try_into().map(u64::from_be_bytes).map_err(|_| Malformed)
    }

    fn record(&mut self) -> Result<Record, Malformed> {
        let term = self.u64()?;
        let request = RequestId { client: self.u64()?, number: self.u64()? };
        let len = self.u32()? as usize;
        let data = self.bytes(len)?.to_vec();
        // A record without a request has client 0, which no client has.
        Ok(Record { term, request: (request.client != 0).then_some(request), data })
    }
}

fn put(into: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| into.extend_from_slice(&number.to_be_bytes()));
}

impl Record {
    /// The number of bytes besides the data.
    pub const HEADER: usize = 28;

    /// Appends the bytes of the record.
    ///
    /// # Panics
    /// If the data has 4 GiB or more.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let request = self.request.unwrap_or(RequestId { client: 0, number: 0 });
        put(into, &[self.term, request.client, request.number]);
        let len = u32::try_from(self.data.len()).expect("less than 4 GiB");
        into.extend_from_slice(&len.to_be_bytes());
        into.extend_from_slice(&self.data);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let record = reader.record()?;
        if reader.0.is_empty() { Ok(record) } else { Err(Malformed) }
    }
}

impl Frame {
    /// The number of bytes besides the records.
    pub const HEADER: usize = 36;

    /// Returns the bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEADER);
        put(&mut bytes, &[self.term, self.previous.term, self.previous.index, self.commit]);
        bytes.extend_from_slice(&(self.records.len() as u32).to_be_bytes());
        self.records.iter().for_each(|record| record.encode(&mut bytes));
        bytes
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let term = reader.u64()?;
        let previous = Position { term: reader.u64()?, index: reader.u64()? };
        let commit = reader.u64()?;
        let count = reader.u32()?;
        let records = (0..count).map(|_| reader.record()).collect::<Result<_, _>>()?;
        Ok(Frame { term, previous, commit, records })
    }
}

impl Message {
    /// The number of bytes of each message.
    pub const LEN: usize = 25;

    /// Returns the bytes of the message.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (kind, numbers) = match *self {
            Message::RequestVote { term, last } => (1, [term, last.term, last.index]),
            Message::Vote { term, granted } => (2, [term, granted.into(), 0]),
            Message::Heartbeat { term, commit, may_write } => (3, [term, commit, may_write.into()]),
            Message::Granted { term, last } => (4, [term, last, 0]),
            Message::Stored { term, index, frames } => (5, [term, index, frames]),
            Message::Mismatch { term, index, frames } => (6, [term, index, frames]),
        };
        let mut bytes = [kind; Self::LEN];
        for (into, number) in bytes[1..].chunks_mut(8).zip(numbers) {
            into.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let kind = reader.u8()?;
        let [term, a, b] = [reader.u64()?, reader.u64()?, reader.u64()?];
        Ok(match kind {
            1 => Message::RequestVote { term, last: Position { term: a, index: b } },
            2 => Message::Vote { term, granted: a == 1 },
            3 => Message::Heartbeat { term, commit: a, may_write: b == 1 },
            4 => Message::Granted { term, last: a },
            5 => Message::Stored { term, index: a, frames: b },
            6 => Message::Mismatch { term, index: a, frames: b },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let last = Position { term: 3, index: 9 };
        let messages = [
            Message::RequestVote { term: 4, last },
            Message::Vote { term: 4, granted: true },
            Message::Heartbeat { term: 4, commit: 8, may_write: true },
            Message::Granted { term: 4, last: 9 },
            Message::Stored { term: 4, index: 9, frames: 2 },
            Message::Mismatch { term: 4, index: 7, frames: 3 },
        ];
        for message in messages {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        let records = vec![
            Record { term: 4, request: None, data: vec![] },
            Record { term: 4, request: Some(RequestId { client: 1, number: 2 }), data: b"abc".to_vec() },
        ];
        let frame = Frame { term: 4, previous: last, commit: 8, records };
        let bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes), Ok(frame));
        for len in 0..bytes.len() {
            assert_eq!(Frame::decode(&bytes[..len]), Err(Malformed));
        }
    }
}
