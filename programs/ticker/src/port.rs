//! A QP with its CQ and its memory, for messages of [`LEN`] bytes.
//!
//! Messages move as blocks: into a send and back with its completion, into a receive and out with the message. One send
//! in `SIGNALED` is signaled; its completion returns the blocks of all before it. Sends are inline, which spares the
//! device the read of the block. Nothing is allocated after the first send.

use cmid_epoll::proto::Errno;
use cmid_epoll::proto::datapath::{
    Access, AhAttr, Attaching, Caps, Completion, CreateError, DataPath, GRH_LEN, Parts, Pool, PostError, QpParts,
    SendOp, SendWr, Signaled, To, WcStatus, prelude::*,
};
use thiserror::Error;

use crate::wire::{Bytes, LEN};

/// One send of this number is signaled.
const SIGNALED: u32 = 32;

/// The length of the send queue: several times [`SIGNALED`], and enough for a replay.
const SENDS: u32 = 256;

/// Receives of a connection: more than a replay and a snapshot need.
pub(crate) const MESSAGES: u32 = 256;

/// Receives of datagrams. A datagram without a receive is lost.
pub(crate) const DATAGRAMS: u32 = 1024;

/// Messages of a port that a round of the [reactor](crate::reactor) handles. A peer that sends without a pause delays neither
/// the other ports nor events and deadlines.
pub const BURST: usize = 64;

/// Completions taken by one poll.
const BATCH: usize = 16;

/// The bytes of a block to receive into: the GRH and a message, rounded up to cache lines.
const BLOCK: usize = 128;

/// A port cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    /// A work request failed, for example because the peer is gone.
    #[error("a work request failed: {0}")]
    Completion(WcStatus),
    /// A call of the device failed.
    #[error("a call of the data path failed: {0}")]
    Device(#[from] Errno),
    /// A receive cannot be posted.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// A QP with its CQ and memory.
pub struct Port<D: DataPath> {
    qp: D::Qp,
    cq: D::Cq,
    pd: D::Pd,
    /// The messages to send.
    sends: Pool<D::Piece>,
    /// The bytes before each received message.
    header: usize,
    completions: [Completion; BATCH],
    /// The range of the completions that are not handled yet, without its end.
    unhandled: (usize, usize),
    /// The receive of the last returned message. The next call posts it again, so that the post does not delay the
    /// answer to the message.
    spent: Option<Parts<D::Piece>>,
    /// One send in [`SIGNALED`].
    signaled: Signaled,
}

impl<D: DataPath> std::fmt::Debug for Port<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("qp", &self.qp.num()).finish_non_exhaustive()
    }
}

impl<D: DataPath> Port<D> {
    /// Creates the QP of a connection on an id, and posts all receives.
    ///
    /// # Errors
    /// The error of the object that was not created.
    pub fn open(device: &mut D, attaching: Attaching<'_>) -> Result<Self, CreateError> {
        Self::create(device, attaching, MESSAGES, 0)
    }

    /// As [`open`](Port::open), for datagrams.
    ///
    /// # Errors
    /// As [`open`](Port::open).
    pub fn open_datagram(device: &mut D, attaching: Attaching<'_>) -> Result<Self, CreateError> {
        Self::create(device, attaching, DATAGRAMS, GRH_LEN)
    }

    fn create(device: &mut D, attaching: Attaching<'_>, receives: u32, header: usize) -> Result<Self, CreateError> {
        let caps = Caps { max_send_wr: SENDS, max_recv_wr: receives, max_inline: LEN as u32, ..Caps::default() };
        let QpParts { mut qp, pd, cq } = device.qp(attaching).caps(caps).attach()?;
        let pool = |blocks, len| pd.pool(vec![0; blocks as usize * len], len, Access::empty());
        let (sends, to_receive) = (pool(SENDS, LEN)?, pool(receives, BLOCK)?);
        std::iter::from_fn(|| to_receive.take()).try_for_each(|block| qp.post_recv_blocks(0, block))?;
        Ok(Port {
            qp,
            cq,
            pd,
            sends,
            header,
            completions: [Completion::default(); BATCH],
            unhandled: (0, 0),
            spent: None,
            signaled: Signaled::one_in(SIGNALED),
        })
    }

    /// Creates an address handle for a destination.
    ///
    /// # Errors
    /// That of the creation.
    pub fn address_handle(&self, path: &AhAttr) -> Result<D::Ah, CreateError> {
        self.pd.create_ah(path)
    }

    /// Sends a message to the peer of the connection. `ENOMEM` while the send queue is full;
    /// [`next_message`](Port::next_message) takes the completions that free it.
    ///
    /// # Errors
    /// The error of the post.
    #[inline]
    pub fn send(&mut self, bytes: &Bytes) -> Result<(), Errno> {
        self.post(bytes, SendOp::Send)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// As [`send`](Port::send).
    #[inline]
    pub fn send_to(&mut self, bytes: &Bytes, to: To<'_, D::Ah>) -> Result<(), Errno> {
        self.post(bytes, SendOp::SendTo(to))
    }

    #[inline]
    fn post(&mut self, bytes: &Bytes, op: SendOp<'_, D::Ah>) -> Result<(), Errno> {
        let mut block = self.sends.take().ok_or(Errno::ENOMEM)?;
        block.copy_from_slice(bytes);
        self.signaled.post(&mut self.qp, SendWr::new(0, op, block), false)?;
        Ok(())
    }

    /// Returns the next message, if one has arrived. Never waits.
    ///
    /// # Errors
    /// [`PortError`]. The port cannot be used any more.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<Bytes>, PortError> {
        loop {
            if let Some(blocks) = self.spent.take() {
                self.qp.post_recv_blocks(0, blocks).map_err(PostError::from)?;
            }
            let (at, end) = self.unhandled;
            if at == end {
                self.unhandled = (0, self.cq.poll(&mut self.completions)?);
                if self.unhandled.1 == 0 {
                    return Ok(None);
                }
                continue;
            }
            self.unhandled.0 += 1;
            let Some(done) = self.completions.get(at) else { continue };
            if !done.is_success() {
                return Err(PortError::Completion(done.status));
            }
            // Those of a send, and of the sends before it, return to their pool.
            let blocks = self.qp.reclaim(done);
            if !done.opcode.is_recv() {
                continue;
            }
            let message = |blocks: &Parts<_>| blocks.first()?.get(self.header..)?.first_chunk().copied();
            // A datagram of another length is not one of this protocol.
            let is_message = done.byte_len as usize == self.header + LEN;
            let bytes = blocks.as_ref().filter(|_| is_message).and_then(message);
            self.spent = blocks;
            if bytes.is_some() {
                return Ok(bytes);
            }
        }
    }
}
