//! A connection of a queue: its QP, its memory, and the commands that are on it.
//!
//! A capsule is a block, which the QP has until the send completes. The data of a command that is not in its capsule is in a slot
//! of one region, which the target reads and writes by RDMA. It is copied out of there when the command is over, and never
//! borrowed: a target can write to the region at any time. Each connection has a protection domain and a region of its own, so what a
//! target sends late to an old connection is nowhere to be read.

use cmid_mio::proto::datapath::{
    Access, Attaching, Block, Caps, Completion, CreateError, Parts, Pool, SendWr, WcStatus, prelude::*,
};
use cmid_mio::proto::{Errno, Time};

use super::request::Tag;
use crate::queue::{Done, Queue, QueueError};
use crate::wire::{Command, Cqe, Sgl, Sqe, Transfer, WireError};

/// A receive is longer than a response, so that one which is too long is recognised here.
const RESPONSE_BLOCK: usize = 64;

/// The work request numbers of receives begin here. Those of sends are the identifiers of commands.
const RECEIVES: u64 = 1 << 16;

/// The completions of one poll, and the polls of one turn.
const BATCH: usize = 32;
const POLLS: usize = 32;

/// Why a connection is not to be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A work request has failed.
    #[error("{what}: {status}")]
    Completion {
        /// A send or a receive.
        what: &'static str,
        /// Its status.
        status: WcStatus,
    },
    /// A call of the device has failed.
    #[error("{what}: {errno}")]
    Device {
        /// The call.
        what: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The target has sent something wrong.
    #[error("the target has sent {0}")]
    Queue(#[from] QueueError),
    /// A response is not one.
    #[error("from the target: {0}")]
    Wire(#[from] WireError),
}

fn device(what: &'static str) -> impl Fn(Errno) -> LinkError {
    move |errno| LinkError::Device { what, errno }
}

/// The sizes of a queue and its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Its entries.
    pub(super) size: u16,
    /// The most bytes of a command.
    pub(super) transfer: usize,
    /// The most bytes in a capsule.
    pub(super) in_capsule: usize,
}

/// A command that is over.
pub(super) struct Over {
    pub(super) tag: Tag,
    pub(super) response: Cqe,
}

/// A command was not sent: the connection has no room, or is not to be used any more.
pub(super) struct Unsent {
    pub(super) tag: Tag,
    pub(super) error: Option<LinkError>,
}

pub(super) struct Link<D: DataPath> {
    qp: D::Qp,
    /// The completions of sends. They are polled with the receives, and awaited only for a command that was answered before:
    /// each wait costs two system calls and a change of threads.
    pub(super) sends: D::Cq,
    /// The completions of receives. If the QP fails, its receives do too.
    pub(super) receives: D::Cq,
    capsules: Pool<D::Piece>,
    region: D::Mr,
    shape: Shape,
    pub(super) queue: Queue<Tag>,
}

impl<D: DataPath> Link<D> {
    /// Creates the QP and its memory, and posts the receives.
    pub(super) fn attach(device: &mut D, to: Attaching<'_>, shape: Shape) -> Result<Self, CreateError> {
        let (size, entries) = (usize::from(shape.size), u32::from(shape.size));
        let pd = device.alloc_pd(to.id())?;
        let (sends, receives) = (device.create_cq(to.id(), entries)?, device.create_cq(to.id(), entries)?);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = pd.register(vec![0; size * shape.transfer], rights)?;
        let capsule = Sqe::LEN + shape.in_capsule;
        let capsules = pd.pool(vec![0; size * capsule], capsule, Access::empty())?;
        let responses = pd.pool(vec![0; size * RESPONSE_BLOCK], RESPONSE_BLOCK, Access::empty())?;
        let caps = Caps { max_send_wr: entries, max_recv_wr: entries, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &sends, &receives, caps)?;
        for number in 0..u64::from(shape.size) {
            if let Some(block) = responses.take() {
                qp.post_recv_blocks(RECEIVES + number, block)?;
            }
        }
        receives.arm()?;
        Ok(Link { qp, sends, receives, capsules, region, shape, queue: Queue::new(shape.size) })
    }

    /// The target has answered with the number of its receives, which limits the queue. No command was sent before.
    pub(super) fn limit(&mut self, size: u16) {
        self.queue = Queue::new(size);
    }

    /// Sends a command. Returns it if it was not sent.
    #[must_use]
    pub(super) fn send(&mut self, tag: Tag, deadline: Time) -> Option<Unsent> {
        let unsent = |tag, error| Some(Unsent { tag, error });
        // All capsules are in use while their sends have not completed.
        let Some(capsule) = self.capsules.take() else { return unsent(tag, None) };
        let cid = match self.queue.begin(tag, deadline) {
            Ok(cid) => cid,
            Err(tag) => return unsent(tag, None),
        };
        let error = self.post(cid, capsule).err()?;
        unsent(self.queue.cancel(cid)?, Some(error))
    }

    fn post(&mut self, cid: u16, mut capsule: Block<D::Piece>) -> Result<(), LinkError> {
        let Some(Command { entry, transfer }) = self.queue.tag(cid).map(Tag::command) else { return Ok(()) };
        let mut entry = Sqe { cid, ..*entry };
        let offset = Queue::<Tag>::slot(cid) * self.shape.transfer;
        let mut len = Sqe::LEN;
        let keyed = |region: &D::Mr, bytes: usize| {
            let remote = region.remote(offset);
            Sgl::Keyed { addr: remote.addr, len: bytes as u32, key: remote.rkey }
        };
        if transfer.len() > self.shape.transfer {
            return Err(LinkError::Device {
                what: "a command with more data than the queue has room for",
                errno: Errno::EINVAL,
            });
        }
        match transfer {
            Transfer::Nothing => {}
            Transfer::In(bytes) => entry.sgl = keyed(&self.region, bytes.len()),
            Transfer::Out(bytes) if bytes.len() <= self.shape.in_capsule => {
                entry.sgl = Sgl::InCapsule { len: bytes.len() as u32 };
                len += bytes.len();
                if let Some(room) = capsule.get_mut(Sqe::LEN..len) {
                    room.copy_from_slice(bytes);
                }
            }
            Transfer::Out(bytes) => {
                self.region.write(offset, bytes).map_err(device("the memory for data"))?;
                entry.sgl = keyed(&self.region, bytes.len());
            }
        }
        if let Some(room) = capsule.get_mut(..Sqe::LEN) {
            room.copy_from_slice(&entry.encode());
        }
        let posted = self.qp.post_send_blocks(SendWr::send(cid.into(), capsule.part(0..len)));
        posted.map_err(|unposted| device("a send")(unposted.into()))
    }

    /// Takes completions, at most so many that the connection does not keep others waiting. Returns whether there may be more.
    pub(super) fn poll(&mut self, over: &mut Vec<Over>) -> Result<bool, LinkError> {
        // A failed send comes first: the receives only tell that they were flushed.
        self.poll_sends(false, over)?;
        let mut batch = [Completion::default(); BATCH];
        for _ in 0..POLLS {
            let polled = self.receives.poll_or_arm(&mut batch).map_err(device("the completion queue"))?;
            for completion in batch.iter().take(polled) {
                self.take(completion, over)?;
            }
            if polled == 0 {
                let waits = self.queue.waits_for_sends();
                return if waits { self.poll_sends(true, over).map(|()| false) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    /// Takes the completions of sends, which are no more than the sends.
    fn poll_sends(&mut self, arms: bool, over: &mut Vec<Over>) -> Result<(), LinkError> {
        let mut batch = [Completion::default(); BATCH];
        loop {
            let polled = if arms { self.sends.poll_or_arm(&mut batch) } else { self.sends.poll(&mut batch) };
            let polled = polled.map_err(device("the completion queue"))?;
            for completion in batch.iter().take(polled) {
                self.take(completion, over)?;
            }
            if polled == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, completion: &Completion, over: &mut Vec<Over>) -> Result<(), LinkError> {
        let parts = self.qp.reclaim(completion);
        let is_receive = completion.wr_id >= RECEIVES;
        if !completion.is_success() {
            let what = if is_receive { "a receive has failed" } else { "a send has failed" };
            return Err(LinkError::Completion { what, status: completion.status });
        }
        let done = if is_receive {
            self.receive(completion, parts)?
        } else {
            // It was made of an identifier.
            self.queue.sent(completion.wr_id as u16)?
        };
        if let Some(Done { slot, mut tag, response }) = done {
            if response.status.is_success() {
                if let Transfer::In(buffer) = &mut tag.command_mut().transfer {
                    self.region.read(slot * self.shape.transfer, buffer).map_err(device("the memory for data"))?;
                }
            }
            over.push(Over { tag, response });
        }
        Ok(())
    }

    /// Reads a response. Its receive is posted again before the command ends, so there is one for each that is outstanding.
    fn receive(
        &mut self,
        completion: &Completion,
        parts: Option<Parts<D::Piece>>,
    ) -> Result<Option<Done<Tag>>, LinkError> {
        let Some(parts) = parts else { return Err(device("a receive without its block")(Errno::EIO)) };
        let len = completion.byte_len as usize;
        let bytes = parts.first().and_then(|part| part.get(..len)).unwrap_or_default();
        let response = Cqe::decode(bytes)?;
        let posted = self.qp.post_recv_blocks(completion.wr_id, parts);
        posted.map_err(|unposted| device("a receive")(unposted.into()))?;
        Ok(self.queue.answered(response)?)
    }
}
