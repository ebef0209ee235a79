//! The protocol of client and server: the private data of a connect, and messages of a fixed size.

use anyhow::{Context as _, Result, ensure};

/// The first bytes of the private data of each connect. The last one is the version of this protocol.
const MAGIC: [u8; 5] = *b"cmid\x01";
/// The private data of the server's accept and reject.
pub(crate) const ACCEPTED: &[u8] = b"accepted by cmid-check";
pub(crate) const REJECTED: &[u8] = b"rejected by cmid-check";
/// The private data with which a listener that has moved rejects.
pub(crate) const MOVED: &[u8] = b"the listener has moved";

/// How the server treats a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Accepts it, and executes commands until the client disconnects.
    Serve,
    /// Rejects it.
    Reject,
    /// Accepts it and disconnects.
    Disconnect,
}

impl Role {
    const ALL: [Role; 3] = [Role::Serve, Role::Reject, Role::Disconnect];

    pub(crate) fn private_data(self) -> [u8; 6] {
        let [a, b, c, d, e] = MAGIC;
        [a, b, c, d, e, self as u8]
    }

    /// The role that a client requests. `None` for private data of another program.
    pub(crate) fn from_private_data(bytes: &[u8]) -> Option<Role> {
        let role = bytes.strip_prefix(&MAGIC)?.first()?;
        Role::ALL.into_iter().find(|known| *known as u8 == *role)
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request is done. Its results are the numbers.
    Done,
    /// The request failed; the first number is the errno.
    Failed,
    /// Return the numbers.
    Echo,
    /// Register memory with these rights. The reply has the address, the remote key and the first 8 bytes.
    Register,
    /// Bind a memory window. The reply has the address, the key of the window and that of the region.
    Bind,
    /// Invalidate the window.
    Unbind,
    /// Listen on a further port, which the reply has. A second reply follows once that listener has moved.
    Listen,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Done, Kind::Failed, Kind::Echo, Kind::Register, Kind::Bind, Kind::Unbind, Kind::Listen];
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) numbers: [u64; 3],
}

impl Message {
    /// The length in bytes.
    pub(crate) const LEN: usize = 32;

    pub(crate) fn new(kind: Kind, numbers: [u64; 3]) -> Self {
        Message { kind, numbers }
    }

    pub(crate) fn to_bytes(self) -> [u8; Message::LEN] {
        let mut bytes = [0; Message::LEN];
        let words = [self.kind as u64].into_iter().chain(self.numbers);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Message::LEN]) -> Result<Self> {
        let mut words = [0; Message::LEN / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [kind, numbers @ ..] = words;
        let known = Kind::ALL.into_iter().find(|known| *known as u64 == kind);
        Ok(Message { kind: known.with_context(|| format!("the peer sent a message of kind {kind}"))?, numbers })
    }

    /// Checks that a request is done, and returns its results.
    pub(crate) fn done(self) -> Result<[u64; 3]> {
        let [errno, ..] = self.numbers;
        if self.kind == Kind::Failed {
            return Err(crate::outcome::classified("the server", errno_of(errno)));
        }
        ensure!(self.kind == Kind::Done, "the server replied with {:?}", self.kind);
        Ok(self.numbers)
    }
}

fn errno_of(number: u64) -> cmid_proto::Errno {
    cmid_proto::Errno(i32::try_from(number).unwrap_or(cmid_proto::Errno::EIO.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        for kind in Kind::ALL {
            let message = Message::new(kind, [1, u64::MAX, 3]);
            assert_eq!(Message::from_bytes(&message.to_bytes()).ok(), Some(message));
        }
        assert!(Message::from_bytes(&[7; Message::LEN]).is_err());
    }

    #[test]
    fn private_data_of_other_programs_has_no_role() {
        for role in Role::ALL {
            let mut padded = role.private_data().to_vec();
            padded.extend([0; 50]);
            assert_eq!(Role::from_private_data(&padded), Some(role));
        }
        assert_eq!(Role::from_private_data(b"rping"), None);
        assert_eq!(Role::from_private_data(b"cmid\x01\xff"), None);
        assert_eq!(Role::from_private_data(b""), None);
    }
}
