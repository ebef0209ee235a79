//! A QP with its CQ and its memory, for messages of [`LEN`] bytes.
//!
//! Sends are inline: the message is copied into the work request, so one send buffer is enough. One send in `SIGNALED`
//! is signaled; its completion frees the queue. Nothing is allocated after [`Port::open`].

use std::os::fd::BorrowedFd;

use cmid_epoll::proto::Errno;
use cmid_epoll::proto::datapath::{
    Access, Caps, Completion, CreateError, DataPath, GRH_LEN, PostError, SendFlags, SendOp, SendWr, To, WcStatus,
    prelude::*,
};
use cmid_epoll::proto::datapath::{AhAttr, Attaching};
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

/// Completions taken by one poll.
const BATCH: usize = 16;

/// The distance of two receive buffers in bytes: the GRH and a message, rounded up to cache lines.
const SLOT: usize = 128;

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
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    cq: D::Cq,
    receives: D::Mr,
    send: D::Mr,
    pd: D::Pd,
    /// The bytes before each received message.
    header: usize,
    completions: [Completion; BATCH],
    /// The range of the completions that are not handled yet, without its end.
    unhandled: (usize, usize),
    /// The receive of the last returned message. The next call posts it again, so that the post does not delay the
    /// answer to the message.
    spent: Option<u64>,
    /// Sends since the last signaled one.
    unsignaled: u32,
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
        let id = attaching.id();
        let (pd, cq) = (device.alloc_pd(id)?, device.create_cq(id, SENDS + receives)?);
        let caps = Caps { max_send_wr: SENDS, max_recv_wr: receives, max_inline: LEN as u32, ..Caps::default() };
        let qp = device.create_qp(attaching, &pd, &cq, &cq, caps)?;
        let register = |len| pd.register(vec![0; len], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno());
        let mut port = Port {
            receives: register(receives as usize * SLOT)?,
            send: register(LEN)?,
            qp,
            cq,
            pd,
            header,
            completions: [Completion::default(); BATCH],
            unhandled: (0, 0),
            spent: None,
            unsignaled: 0,
        };
        (0..receives).try_for_each(|slot| port.post_recv(u64::from(slot)))?;
        Ok(port)
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
        self.send.write(0, bytes)?;
        let is_signaled = self.unsignaled + 1 == SIGNALED;
        let flags = if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        self.qp.post_send(SendWr { wr_id: 0, op, sges: self.send.sge(0..LEN), flags })?;
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        Ok(())
    }

    /// Returns the next message, if one has arrived. Never waits.
    ///
    /// # Errors
    /// [`PortError`]. The port cannot be used any more.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<Bytes>, PortError> {
        loop {
            if let Some(slot) = self.spent.take() {
                self.post_recv(slot)?;
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
            if !done.opcode.is_recv() {
                continue;
            }
            self.spent = Some(done.wr_id);
            // A datagram of another length is not one of this protocol.
            if done.byte_len as usize == self.header + LEN {
                let mut bytes = [0; LEN];
                self.receives.read(done.wr_id as usize * SLOT + self.header, &mut bytes)?;
                return Ok(Some(bytes));
            }
        }
    }

    fn post_recv(&mut self, slot: u64) -> Result<(), PostError> {
        let start = slot as usize * SLOT;
        self.qp.post_recv(slot, self.receives.sge(start..start + self.header + LEN))
    }

    /// Makes [`fd`](Port::fd) readable at the next completion, for a program that sleeps. Call
    /// [`next_message`](Port::next_message) once more before it sleeps.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn arm(&self) -> Result<(), Errno> {
        self.cq.take_notifications()?;
        self.cq.arm()
    }

    /// Returns the descriptor of the CQ's completion channel.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.cq.fd()
    }
}
