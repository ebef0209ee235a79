//! The messages between clients and replicas over TCP: a greeting of each side, then requests and replies. Each request
//! and reply begins with its length in four bytes. Numbers are in network byte order.

use crate::links::VERSION;
use crate::protocol::{Index, RequestId, Term};

/// The greeting: `replog`, a zero, and the version.
pub const GREETING: [u8; 8] = [b'r', b'e', b'p', b'l', b'o', b'g', 0, VERSION];

/// The maximum number of bytes of the data of a record.
pub const DATA: usize = 32 << 10;

/// The maximum number of bytes of a request or reply.
pub const MAX: usize = DATA + 64;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Append a record. Any number of these requests can be under way.
    Append(RequestId, Vec<u8>),
    /// Return a record.
    Read(Index),
    /// Describe the replica.
    Status,
}

/// A reply of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The record is committed: a majority has stored it.
    Appended(RequestId, Index),
    /// The record is not accepted, because this replica does not lead. Contains the number of the leader, if it is
    /// known.
    NotLeader(RequestId, Option<u64>),
    /// The record.
    Record(Index, Vec<u8>),
    /// This replica does not have a record with this index as committed.
    Unknown(Index),
    /// The state of the replica.
    Status {
        /// The term.
        term: Term,
        /// The leader, if it is known.
        leader: Option<u64>,
        /// All records up to this one are committed.
        commit: Index,
        /// The index of the last record.
        last: Index,
    },
}

/// No replica has this number.
const NOBODY: u64 = u64::MAX;

fn encode(kind: u8, numbers: &[u64], data: &[u8], into: &mut Vec<u8>) {
    let len = 1 + 8 * numbers.len() + data.len();
    into.extend_from_slice(&(len as u32).to_be_bytes());
    into.push(kind);
    numbers.iter().for_each(|number| into.extend_from_slice(&number.to_be_bytes()));
    into.extend_from_slice(data);
}

/// Returns `N` numbers, and the rest.
fn numbers<const N: usize>(mut bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (first, rest) = bytes.split_first_chunk()?;
        *number = u64::from_be_bytes(*first);
        bytes = rest;
    }
    Some((numbers, bytes))
}

fn known(replica: u64) -> Option<u64> {
    (replica != NOBODY).then_some(replica)
}

/// Returns the length of the first frame of a stream, with the four bytes of its length. `Some(Err)` for a length above
/// the maximum.
#[must_use]
pub fn frame_len(bytes: &[u8]) -> Option<Result<usize, TooLong>> {
    let len = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    if len > MAX {
        return Some(Err(TooLong));
    }
    (bytes.len() >= 4 + len).then_some(Ok(4 + len))
}

/// A frame is too long for this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Request {
    /// Appends the frame of the request.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Request::Append(id, data) => encode(1, &[id.client, id.number], data, into),
            Request::Read(index) => encode(2, &[*index], &[], into),
            Request::Status => encode(3, &[], &[], into),
        }
    }

    /// Reads a frame without its length; `None` if it is not a request.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            1 => {
                let ([client, number], data) = numbers(rest)?;
                let fits = client != 0 && data.len() <= DATA;
                fits.then(|| Request::Append(RequestId { client, number }, data.to_vec()))
            }
            2 => numbers(rest).map(|([index], _)| Request::Read(index)),
            3 => Some(Request::Status),
            _ => None,
        }
    }
}

impl Reply {
    /// Appends the frame of the reply.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Reply::Appended(id, index) => encode(1, &[id.client, id.number, *index], &[], into),
            Reply::NotLeader(id, leader) => {
                encode(2, &[id.client, id.number, leader.unwrap_or(NOBODY)], &[], into);
            }
            Reply::Record(index, data) => encode(3, &[*index], data, into),
            Reply::Unknown(index) => encode(4, &[*index], &[], into),
            Reply::Status { term, leader, commit, last } => {
                encode(5, &[*term, leader.unwrap_or(NOBODY), *commit, *last], &[], into);
            }
        }
    }

    /// Reads a frame without its length; `None` if it is not a reply.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match kind {
            1 => {
                let ([client, number, index], _) = numbers(rest)?;
                Reply::Appended(RequestId { client, number }, index)
            }
            2 => {
                let ([client, number, leader], _) = numbers(rest)?;
                Reply::NotLeader(RequestId { client, number }, known(leader))
            }
            3 => {
                let ([index], data) = numbers(rest)?;
                Reply::Record(index, data.to_vec())
            }
            4 => numbers(rest).map(|([index], _)| Reply::Unknown(index))?,
            5 => {
                let ([term, leader, commit, last], _) = numbers(rest)?;
                Reply::Status { term, leader: known(leader), commit, last }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let id = RequestId { client: 1, number: 2 };
        for request in [Request::Append(id, b"x".to_vec()), Request::Read(3), Request::Status] {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(frame_len(&bytes), Some(Ok(bytes.len())));
            assert_eq!(frame_len(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Request::decode(&bytes[4..]), Some(request));
        }
        let status = Reply::Status { term: 1, leader: None, commit: 2, last: 3 };
        let replies = [
            Reply::Appended(id, 4),
            Reply::NotLeader(id, Some(1)),
            Reply::NotLeader(id, None),
            Reply::Record(4, b"x".to_vec()),
            Reply::Unknown(5),
            status,
        ];
        for reply in replies {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            assert_eq!(Reply::decode(&bytes[4..]), Some(reply));
        }
        assert_eq!(frame_len(&[0xff; 4]), Some(Err(TooLong)));
        assert_eq!(Request::decode(&[]), None);
    }
}
