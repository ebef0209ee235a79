//! A TCP connection that carries messages, never waits, and sends without delay.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Result, bail};
use ticker::wire::{Bytes, LEN};

/// The connection.
#[derive(Debug)]
pub(crate) struct Stream {
    stream: TcpStream,
    /// The part of the next message that has come.
    partial: Bytes,
    len: usize,
}

impl Stream {
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Stream { stream, partial: [0; LEN], len: 0 })
    }

    /// Sends a message. Few are under way, so the socket's buffer is never full.
    pub(crate) fn send(&mut self, bytes: &Bytes) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Returns the next message, if one has come completely.
    pub(crate) fn next_message(&mut self) -> Result<Option<Bytes>> {
        match self.stream.read(&mut self.partial[self.len..]) {
            Ok(0) => bail!("the peer has closed the connection"),
            Ok(read) => self.len += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if self.len < LEN {
            return Ok(None);
        }
        self.len = 0;
        Ok(Some(self.partial))
    }
}
