//! A connection with a peer: its QP, its memory, its work requests.

use std::hash::{DefaultHasher, Hasher as _};

use cmid_mio::proto::Errno;
use cmid_mio::proto::datapath::Attaching;
use cmid_mio::proto::datapath::{Access, Caps, CreateError, PostError, Remote, SendWr, WcOpcode, prelude::*};
use cmid_mio::proto::memory::{Change, Fallback, Policy};

use crate::protocol::{Frame, Message};

/// The bytes of the region that a peer writes frames into.
pub const REGION: usize = 256 << 10;

/// The maximum number of frames of a peer that are not read.
pub const FRAMES: usize = 32;

/// The maximum number of bytes of a frame: four fit into the region.
pub const FRAME: usize = REGION / 4;

/// A message, and for [`Message::Granted`] the address and key of the region.
const PACKET: usize = Message::LEN + 12;

/// The bytes of memory of a message.
const SLOT: usize = 64;

/// The number of messages that can be sent at once.
const SENDS: usize = 32;

/// The number of posted receives. Each message of the peer takes one, and each frame.
const RECVS: usize = FRAMES + 32;

/// The part of a `wr_id` above the number of the slot.
const SEND: u64 = 1 << 32;
const RECV: u64 = 2 << 32;
const WRITE: u64 = 3 << 32;

/// The result of a completion.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    Frame(Frame),
    /// The completion of an own request.
    Nothing,
}

pub(super) struct Connection<D: DataPath> {
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    pub(super) cq: D::Cq,
    /// Slots to receive into, then slots to send from.
    messages: D::Mr,
    /// The frames that this replica writes, at the offsets of the peer's region.
    frames: D::Mr,
    /// The region that the peer may write to while it leads.
    pub(super) region: D::Mr,
    _pd: D::Pd,
    /// The free slots to send from.
    free: Vec<usize>,
    /// The region of the peer, once it has granted it.
    remote: Option<Remote>,
    /// A hash of the region since the right to write was revoked.
    revoked: Option<u64>,
}

impl<D: DataPath> Connection<D> {
    /// Creates the QP and its memory, and posts the receives.
    pub(super) fn attach(device: &mut D, to: Attaching<'_>) -> Result<Self, CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let max_send_wr = (SENDS + FRAMES) as u32;
        let caps = Caps { max_send_wr, max_recv_wr: RECVS as u32, ..Caps::default() };
        let cq = device.create_cq(to.id(), max_send_wr + RECVS as u32)?;
        let register = |len| pd.register(vec![0; len], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno());
        let messages = register(SLOT * (RECVS + SENDS))?;
        let (frames, region) = (register(REGION)?, register(REGION)?);
        let qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let free = (RECVS..RECVS + SENDS).collect();
        let mut connection =
            Connection::<D> { qp, cq, messages, frames, region, _pd: pd, free, remote: None, revoked: None };
        (0..RECVS).try_for_each(|slot| connection.post_recv(slot))?;
        connection.cq.arm()?;
        Ok(connection)
    }

    fn post_recv(&mut self, slot: usize) -> Result<(), PostError> {
        self.qp.post_recv(RECV | slot as u64, self.messages.sge(slot * SLOT..(slot + 1) * SLOT))
    }

    /// Sends a message. Without a free slot the message is dropped, which the protocol permits.
    pub(super) fn send(&mut self, message: Message) -> Result<(), Errno> {
        let Some(slot) = self.free.pop() else { return Ok(()) };
        let mut packet = [0; PACKET];
        packet[..Message::LEN].copy_from_slice(&message.encode());
        let (addr, rkey) = packet[Message::LEN..].split_at_mut(8);
        addr.copy_from_slice(&self.region.addr().to_be_bytes());
        rkey.copy_from_slice(&self.region.rkey().to_be_bytes());
        self.messages.write(slot * SLOT, &packet)?;
        let range = slot * SLOT..slot * SLOT + PACKET;
        Ok(self.qp.post_send(SendWr::send(SEND | slot as u64, self.messages.sge(range)))?)
    }

    /// Writes a frame into the region of the peer. The immediate data is its offset.
    pub(super) fn write(&mut self, offset: u32, frame: &[u8]) -> Result<(), Errno> {
        let Remote { addr, rkey } = self.remote.ok_or(Errno::EINVAL)?;
        let from = offset as usize;
        // The peer has read the earlier frame in this place, so that frame is not in flight.
        self.frames.write(from, frame)?;
        let to = Remote { addr: addr.wrapping_add(offset.into()), rkey };
        let range = from..from + frame.len();
        Ok(self.qp.post_send(SendWr::write_imm(WRITE, self.frames.sge(range), to, offset))?)
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
        let mut bytes = vec![0; REGION];
        self.region.read(0, &mut bytes)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(hasher.finish())
    }

    /// Requests a notification of the next completion. Poll the CQ afterwards.
    pub(super) fn arm(&mut self) -> Result<(), Errno> {
        self.cq.take_notifications()?;
        self.cq.arm()
    }

    /// Takes the next completion. An error ends the connection.
    pub(super) fn receive(&mut self) -> Result<Option<Received>, Errno> {
        let Some(completion) = self.cq.poll_one()? else { return Ok(None) };
        if !completion.is_success() {
            return Err(Errno::EIO);
        }
        let slot = (completion.wr_id as u32) as usize;
        match completion.wr_id & !u64::from(u32::MAX) {
            SEND => self.free.push(slot),
            RECV if completion.opcode == WcOpcode::RECV_RDMA_WITH_IMM => {
                self.post_recv(slot)?;
                let mut bytes = vec![0; (completion.byte_len as usize).min(REGION)];
                self.region.read(completion.imm().unwrap_or(0) as usize, &mut bytes)?;
                let frame = Frame::decode(&bytes).map_err(|_| Errno::EIO)?;
                return Ok(Some(Received::Frame(frame)));
            }
            RECV => {
                let message = self.read_message(slot)?;
                self.post_recv(slot)?;
                return Ok(Some(Received::Message(message)));
            }
            _ => {}
        }
        Ok(Some(Received::Nothing))
    }

    fn read_message(&mut self, slot: usize) -> Result<Message, Errno> {
        let mut packet = [0; PACKET];
        self.messages.read(slot * SLOT, &mut packet)?;
        let (message, region) = packet.split_at(Message::LEN);
        let message = Message::decode(message).map_err(|_| Errno::EIO)?;
        if let (Message::Granted { .. }, Some((addr, rkey))) = (message, region.split_first_chunk()) {
            let rkey = u32::from_be_bytes(rkey.try_into().map_err(|_| Errno::EIO)?);
            self.remote = Some(Remote { addr: u64::from_be_bytes(*addr), rkey });
        }
        Ok(message)
    }
}
