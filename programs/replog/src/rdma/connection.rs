//! A connection with a peer: its QP, its memory, its work requests.

use std::hash::{DefaultHasher, Hasher as _};

use cmid_mio::proto::Errno;
use cmid_mio::proto::datapath::Attaching;
use cmid_mio::proto::datapath::{
    Access, Caps, Completion, CreateError, Parts, Pool, Remote, SendWr, Signaled, WcOpcode, prelude::*,
};
use cmid_mio::proto::memory::{Change, Fallback, Policy};

use crate::protocol::{Frame, Message};

/// The memory of a connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The region that a peer writes frames into.
    pub region: usize,
    /// The maximum number of frames of a peer that are not read.
    pub frames: usize,
    /// The number of messages that can be sent at once, and of receives for those of the peer. Each of its frames takes a
    /// receive too.
    pub messages: usize,
    /// The maximum length of a frame.
    pub frame: usize,
}

/// A region of 256 KiB, into which four of the longest frames fit.
impl Default for Memory {
    fn default() -> Self {
        Memory { region: 256 << 10, frames: 32, messages: 32, frame: 64 << 10 }
    }
}

/// A message, and for [`Message::Granted`] the address and key of the region.
const PACKET: usize = Message::LEN + 12;

/// The bytes of a block of frames. The device gathers a frame from several.
const BLOCK: usize = 8 << 10;

/// The result of a completion.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    Frame(Frame),
    /// The completion of an own request.
    Nothing,
}

pub(super) struct Connection<D: DataPath> {
    qp: D::Qp,
    pub(super) cq: D::Cq,
    /// Messages to send. The receives have the other blocks.
    messages: Pool<D::Piece>,
    /// One message in half of the blocks.
    signaled: Signaled,
    /// The frames that this replica writes into the peer's region.
    frames: Pool<D::Piece>,
    /// The region that the peer may write to while it leads.
    pub(super) region: D::Mr,
    len: usize,
    /// The region of the peer, once it has granted it.
    remote: Option<Remote>,
    /// A hash of the region since the right to write was revoked.
    revoked: Option<u64>,
}

impl<D: DataPath> Connection<D> {
    /// Makes a connection with this memory.
    pub(super) fn with(memory: Memory) -> impl FnOnce(&mut D, Attaching<'_>) -> Result<Self, CreateError> {
        move |device, to| Self::attach(device, to, memory)
    }

    /// Creates the QP and its memory, and posts the receives.
    fn attach(device: &mut D, to: Attaching<'_>, memory: Memory) -> Result<Self, CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let Memory { region: len, frames, messages, frame } = memory;
        let (sends, receives) = (messages, frames + messages);
        let max_send_wr = (sends + frames) as u32;
        let max_send_sge = frame.div_ceil(BLOCK) as u32;
        let caps = Caps { max_send_wr, max_recv_wr: receives as u32, max_send_sge, ..Caps::default() };
        let cq = device.create_cq(to.id(), max_send_wr + receives as u32)?;
        let region = pd.register(vec![0; len], Access::LOCAL_WRITE)?;
        let pool = |blocks, len| pd.pool(vec![0; blocks * len], len, Access::empty());
        // Each frame leaves the rest of a block unused.
        let (messages, frames) = (pool(receives + sends, PACKET)?, pool(len / BLOCK + frames, BLOCK.min(frame))?);
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let blocks = std::iter::from_fn(|| messages.take()).take(receives);
        qp.post_recvs_blocks(blocks.map(|block| (0, block))).map_err(|unposted| unposted.error.error)?;
        cq.arm()?;
        let (signaled, remote, revoked) = (Signaled::one_in(sends as u32 / 2), None, None);
        Ok(Connection { qp, cq, messages, signaled, frames, region, len, remote, revoked })
    }

    /// Sends a message. Without a free block the message is dropped, which the protocol permits. Most sends are unsignaled: a
    /// completion of each would wake the replica for nothing. Their blocks return with those of a later request.
    pub(super) fn send(&mut self, message: Message) -> Result<(), Errno> {
        let Some(mut packet) = self.messages.take() else { return Ok(()) };
        packet[..Message::LEN].copy_from_slice(&message.encode());
        let (addr, rkey) = packet[Message::LEN..].split_at_mut(8);
        addr.copy_from_slice(&self.region.addr().to_be_bytes());
        rkey.copy_from_slice(&self.region.rkey().to_be_bytes());
        self.signaled.post(&mut self.qp, SendWr::send(0, packet), false)?;
        Ok(())
    }

    /// Writes a frame into the region of the peer. The immediate data is its offset.
    pub(super) fn write(&mut self, offset: u32, frame: &[u8]) -> Result<(), Errno> {
        let Remote { addr, rkey } = self.remote.ok_or(Errno::EINVAL)?;
        let fill = |bytes: &[u8]| {
            let mut block = self.frames.take()?;
            block[..bytes.len()].copy_from_slice(bytes);
            Some(block.part(0..bytes.len()))
        };
        let frame: Parts<_> = frame.chunks(BLOCK).map(fill).collect::<Option<_>>().ok_or(Errno::ENOMEM)?;
        let to = Remote { addr: addr.wrapping_add(offset.into()), rkey };
        Ok(self.qp.post_send_blocks(SendWr::write_imm(0, frame, to, offset))?)
    }

    /// Permits the peer to write into the region, or revokes that right. On a device without ibv_rereg_mr this makes a
    /// new registration with another key.
    pub(super) fn permit(&mut self, writes: bool) -> Result<(), Errno> {
        let access = if writes { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::LOCAL_WRITE };
        if self.region.access() == Some(access) {
            return Ok(());
        }
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let change = Change::default().to_access(access);
        self.region.reregister(change, policy).result.map_err(|error| error.errno())?;
        if writes {
            self.revoked = None;
            return Ok(());
        }
        self.expect_no_writes()
    }

    /// Records a hash of the region for [`Connection::is_violated`].
    pub(super) fn expect_no_writes(&mut self) -> Result<(), Errno> {
        self.revoked = Some(self.hash()?);
        Ok(())
    }

    /// Whether the peer has written since its right was revoked, which is an error of the device.
    pub(super) fn is_violated(&self) -> bool {
        // A region that cannot be read has no hash.
        self.revoked.is_some_and(|revoked| self.hash().is_ok_and(|hash| hash != revoked))
    }

    fn hash(&self) -> Result<u64, Errno> {
        let mut bytes = vec![0; self.len];
        self.region.read(0, &mut bytes)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(hasher.finish())
    }

    /// Whether the CQ has notified. Takes the notifications.
    pub(super) fn has_notified(&self) -> bool {
        // What fails is found by the poll.
        self.cq.take_notifications() != Ok(0)
    }

    /// Requests a notification of the next completion. Poll the CQ afterwards.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        self.cq.take_notifications()?;
        self.cq.arm()
    }

    /// Handles a polled completion. An error ends the connection.
    pub(super) fn receive(&mut self, completion: &Completion) -> Result<Received, Errno> {
        if !completion.is_success() {
            return Err(Errno::EIO);
        }
        let blocks = self.qp.reclaim(completion).ok_or(Errno::EIO)?;
        let received = match completion.opcode {
            WcOpcode::RECV_RDMA_WITH_IMM => {
                let mut bytes = vec![0; (completion.byte_len as usize).min(self.len)];
                self.region.read(completion.imm().unwrap_or(0) as usize, &mut bytes)?;
                Received::Frame(Frame::decode(&bytes).map_err(|_| Errno::EIO)?)
            }
            WcOpcode::RECV => Received::Message(self.read_message(&blocks[0])?),
            // The blocks return to their pool.
            _ => return Ok(Received::Nothing),
        };
        self.qp.post_recv_blocks(0, blocks)?;
        Ok(received)
    }

    fn read_message(&mut self, packet: &[u8]) -> Result<Message, Errno> {
        let (message, region) = packet.split_at_checked(Message::LEN).ok_or(Errno::EIO)?;
        let message = Message::decode(message).map_err(|_| Errno::EIO)?;
        if let (Message::Granted { .. }, Some((addr, rkey))) = (message, region.split_first_chunk()) {
            let rkey = u32::from_be_bytes(rkey.try_into().map_err(|_| Errno::EIO)?);
            self.remote = Some(Remote { addr: u64::from_be_bytes(*addr), rkey });
        }
        Ok(message)
    }
}
