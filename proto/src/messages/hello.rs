//! What each side tells the other one before the first message, in the private data of the connect and the accept.

use core::time::Duration;

use super::header::{HEADER, VERSION};

/// The bytes of [`MessagesConfig::hello`].
pub const HELLO: usize = 16;

const MAGIC: [u8; 4] = *b"cmsg";

/// The least number of receives of a side: two that messages may take, and two that are kept for control packets.
pub const WINDOW_MIN: u16 = 4;

/// The limits of one side. The two sides of a connection may have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagesConfig {
    /// The number of receives that this side has posted before it connects or accepts, at least [`WINDOW_MIN`]. A program that
    /// waits for a message while it holds the receives of earlier ones holds at most `window` - 4 of them: two are for packets
    /// without a message, one is that of the message, and a sign of life of the peer may always have taken one.
    pub window: u16,
    /// The bytes of each of these receives: a header of [`HEADER`] bytes, and the longest message that this side takes.
    pub packet: u32,
    /// This side sends at least one packet in this time, in whole milliseconds, at least 1.
    pub keep_alive: Duration,
    /// A peer that sends nothing for so long is dead. At least twice the `keep_alive` of the peer. If the program holds all
    /// `window` - 2 receives that messages take, at least twice its own, too: the peer then may answer packets of this side only.
    pub silence: Duration,
}

impl Default for MessagesConfig {
    /// 32 receives of 4096 bytes, a sign of life each second, and 5 s of silence.
    fn default() -> Self {
        MessagesConfig { window: 32, packet: 4096, keep_alive: Duration::from_secs(1), silence: Duration::from_secs(5) }
    }
}

/// The limits of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) window: u16,
    pub(super) packet: u32,
    keep_alive_ms: u32,
}

/// Why two sides cannot exchange messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The private data is too short, or of another program.
    #[error("the peer has sent no hello")]
    NoHello,
    /// The peer has another version of the protocol.
    #[error("the peer has version {0} of the protocol, this side {VERSION}")]
    Version(u8),
    /// The number of receives is less than [`WINDOW_MIN`].
    #[error("{whose} window of {window} is less than {WINDOW_MIN}")]
    Window {
        /// `own` or `the peer's`.
        whose: &'static str,
        /// The number.
        window: u16,
    },
    /// A receive has no room for a message behind the header.
    #[error("{whose} packets of {packet} bytes have no room for a message")]
    Packet {
        /// `own` or `the peer's`.
        whose: &'static str,
        /// The bytes of a receive.
        packet: u32,
    },
    /// A side sends no signs of life.
    #[error("{whose} keep_alive is less than a millisecond")]
    NoKeepAlive {
        /// `own` or `the peer's`.
        whose: &'static str,
    },
    /// The peer sends too rarely.
    #[error("a peer that sends each {peer:?} would be taken for dead after {silence:?}: allow twice as long")]
    KeepAlive {
        /// The peer's `keep_alive`.
        peer: Duration,
        /// The own `silence`.
        silence: Duration,
    },
}

impl MessagesConfig {
    fn own(&self) -> Hello {
        let keep_alive_ms = u32::try_from(self.keep_alive.as_millis()).unwrap_or(u32::MAX);
        Hello { window: self.window, packet: self.packet, keep_alive_ms }
    }

    /// Returns what the peer has to know, at the beginning of the private data of the connect or the accept. The
    /// application's own private data may follow.
    #[must_use]
    pub fn hello(&self) -> [u8; HELLO] {
        let own = self.own();
        let mut hello = [0; HELLO];
        hello[..4].copy_from_slice(&MAGIC);
        hello[4] = VERSION;
        hello[6..8].copy_from_slice(&own.window.to_be_bytes());
        hello[8..12].copy_from_slice(&own.packet.to_be_bytes());
        hello[12..].copy_from_slice(&own.keep_alive_ms.to_be_bytes());
        hello
    }

    /// Checks what the documentation of each field asks of this side alone. [`Messages::new`](super::Messages::new) does, too.
    ///
    /// # Errors
    /// [`HelloError::Window`], [`HelloError::Packet`] and [`HelloError::NoKeepAlive`], of the own side.
    pub fn check(&self) -> Result<(), HelloError> {
        self.own().check("own")
    }

    /// Decodes the peer's hello, and checks that both sides fit.
    pub(super) fn meet(&self, private_data: &[u8]) -> Result<Hello, HelloError> {
        self.check()?;
        let Some((hello, _)) = private_data.split_first_chunk::<HELLO>() else { return Err(HelloError::NoHello) };
        let [a, b, c, d, version, _, w0, w1, p0, p1, p2, p3, k0, k1, k2, k3] = *hello;
        if [a, b, c, d] != MAGIC {
            return Err(HelloError::NoHello);
        }
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let peer = Hello {
            window: u16::from_be_bytes([w0, w1]),
            packet: u32::from_be_bytes([p0, p1, p2, p3]),
            keep_alive_ms: u32::from_be_bytes([k0, k1, k2, k3]),
        };
        peer.check("the peer's")?;
        let keep_alive = Duration::from_millis(peer.keep_alive_ms.into());
        if keep_alive * 2 > self.silence {
            return Err(HelloError::KeepAlive { peer: keep_alive, silence: self.silence });
        }
        Ok(peer)
    }
}

impl Hello {
    fn check(&self, whose: &'static str) -> Result<(), HelloError> {
        if self.window < WINDOW_MIN {
            return Err(HelloError::Window { whose, window: self.window });
        }
        if self.packet as usize <= HEADER {
            return Err(HelloError::Packet { whose, packet: self.packet });
        }
        if self.keep_alive_ms == 0 {
            return Err(HelloError::NoKeepAlive { whose });
        }
        Ok(())
    }
}
