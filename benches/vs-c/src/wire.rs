//! What the two sides tell each other when they connect; `c/versus.h` has it as a struct.

use anyhow::{Context as _, Result};
use cmid_datapath::Remote;

/// What a client wants of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// A connection without QPs.
    Bare = 0,
    /// One with a QP on either side.
    Qp = 1,
    /// That what it sends is sent back.
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

/// What the private data of a request or of an answer tells: what is wanted, and where memory is.
pub(crate) fn read(data: &[u8]) -> Result<(u32, Remote)> {
    let bytes: &[u8; 16] = data.first_chunk().context("too little private data")?;
    let addr = u64::from_ne_bytes(*bytes.first_chunk().context("an address")?);
    let (rkey, wants) = bytes[8..].split_at(4);
    let number = |bytes: &[u8]| Ok::<_, anyhow::Error>(u32::from_ne_bytes(bytes.try_into()?));
    Ok((number(wants)?, Remote { addr, rkey: number(rkey)? }))
}
