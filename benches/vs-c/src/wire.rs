//! The private data that the two sides exchange at the connection; `c/versus.h` defines it as a struct.

use anyhow::{Context as _, Result};
use cmid_proto::datapath::Remote;

/// The kind of connection that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// A connection without QPs.
    Bare = 0,
    /// A connection with a QP on both sides.
    Qp = 1,
    /// A connection on which the server sends all messages back.
    Echo = 2,
}

/// The private data of a request.
pub(crate) fn hello(wants: Wants, at: Remote) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&at.addr.to_ne_bytes());
    bytes[8..12].copy_from_slice(&at.rkey.to_ne_bytes());
    bytes[12..].copy_from_slice(&(wants as u32).to_ne_bytes());
    bytes
}

/// Parses the private data of a request or of an answer: the kind of connection, and the address and key of memory.
pub(crate) fn read(data: &[u8]) -> Result<(u32, Remote)> {
    let bytes: &[u8; 16] = data.first_chunk().context("too little private data")?;
    let addr = u64::from_ne_bytes(*bytes.first_chunk().context("an address")?);
    let (rkey, wants) = bytes[8..].split_at(4);
    let number = |bytes: &[u8]| Ok::<_, anyhow::Error>(u32::from_ne_bytes(bytes.try_into()?));
    Ok((number(wants)?, Remote { addr, rkey: number(rkey)? }))
}
