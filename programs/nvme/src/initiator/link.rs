//! A connection of a queue: its QP, its memory, and the commands that are on it.
//!
//! A capsule is a block, which the QP has until the send completes, or a later one if it is not signaled.
//! Data that does not fit into a capsule is read and written by the target, in one of two places:
//!
//! - a block of the application, to which a memory window is bound for this command. The target invalidates the key with its
//!   response, and the block is the application's again;
//! - a slot of the region of the connection, if the memory is not registered or there are no windows. It is copied, and never
//!   borrowed: a target can write to the region at any time. The region ends with the connection.

use std::mem;

use cmid_mio::proto::datapath::{
    Access, Attaching, Block, Caps, Completion, CreateError, Part, Parts, Pool, SendWr, Signaled, Unposted, WcStatus,
    prelude::*,
};
use cmid_mio::proto::{Errno, Time};

use super::buffer::{Buffer, Loan};
use super::memory::Memory;
use super::request::{Tag, TagOf};
use crate::queue::{Done, Queue, QueueError};
use crate::wire::{Command, Cqe, Sgl, Sqe, Transfer, WireError};

/// A receive is longer than a response, so that one which is too long is recognised here.
const RESPONSE_BLOCK: usize = 64;

/// The work request numbers of receives begin here, and those of binds. Those of sends are the identifiers of commands.
const RECEIVES: u64 = 1 << 16;
const BINDS: u64 = 1 << 17;

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
    /// The most bytes in a capsule. As many are copied at most, where longer data is lent.
    pub(super) in_capsule: usize,
    /// Whether blocks are lent, if the device can.
    pub(super) lends: bool,
}

/// A command that is over.
pub(super) struct Over<P> {
    pub(super) tag: Tag<Buffer<P>>,
    pub(super) response: Cqe,
}

/// A command was not sent: the connection has no room, or is not to be used any more.
pub(super) struct Unsent<P> {
    pub(super) tag: Tag<Buffer<P>>,
    pub(super) error: Option<LinkError>,
}

pub(super) struct Link<D: DataPath> {
    qp: D::Qp,
    /// A window for each slot; none if nothing is lent. They go before the QP, whose handle goes first.
    windows: Vec<D::Mw>,
    pd: D::Pd,
    /// The completions of sends. They are polled with the receives, and awaited only for a command that was answered before:
    /// each wait costs two system calls and a change of threads.
    pub(super) sends: D::Cq,
    /// The completions of receives. If the QP fails, its receives do too.
    pub(super) receives: D::Cq,
    capsules: Pool<D::Piece>,
    /// Of the capsules that are more than the entries, each may wait for the completion of a later send.
    signaled: Signaled,
    region: D::Mr,
    shape: Shape,
    pub(super) queue: Queue<TagOf<D>>,
    /// The completions of a poll.
    batch: Box<[Completion; BATCH]>,
}

impl<D: DataPath> Link<D> {
    /// Creates the QP and its memory, and posts the receives.
    pub(super) fn attach(
        device: &mut D,
        to: Attaching<'_>,
        shape: Shape,
        memory: &mut Option<Memory<D>>,
    ) -> Result<Self, CreateError> {
        let (size, entries) = (usize::from(shape.size), u32::from(shape.size));
        let pd = Memory::on(memory, device, to.id())?.pd.clone();
        // A device without windows says so here.
        let windows = (0..if shape.lends { size } else { 0 }).map(|_| pd.alloc_mw());
        let windows: Vec<D::Mw> = windows.collect::<Result<_, _>>().unwrap_or_default();
        // Those of commands, and those of sends before them whose completions are still to come.
        let capsule_count = shape.size + shape.size / 4;
        // A command is a bind and a send.
        let requests = entries + u32::from(capsule_count);
        let (sends, receives) = (device.create_cq(to.id(), requests)?, device.create_cq(to.id(), entries)?);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = pd.register(vec![0; size * shape.transfer], rights)?;
        let capsule = Sqe::LEN + shape.in_capsule;
        let capsules = pd.pool(vec![0; usize::from(capsule_count) * capsule], capsule, Access::empty())?;
        let responses = pd.pool(vec![0; size * RESPONSE_BLOCK], RESPONSE_BLOCK, Access::empty())?;
        let caps = Caps { max_send_wr: requests, max_recv_wr: entries, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &sends, &receives, caps)?;
        for number in 0..u64::from(shape.size) {
            if let Some(block) = responses.take() {
                qp.post_recv_blocks(RECEIVES + number, block)?;
            }
        }
        receives.arm()?;
        let (queue, batch) = (Queue::new(shape.size), Box::new([Completion::default(); BATCH]));
        let signaled = Signaled::one_in(u32::from(capsule_count - shape.size) + 1);
        Ok(Link { qp, windows, pd, sends, receives, capsules, signaled, region, shape, queue, batch })
    }

    /// Whether blocks are lent.
    pub(super) fn lends(&self) -> bool {
        !self.windows.is_empty()
    }

    /// The target has answered with the number of its receives, which limits the queue. No command was sent before.
    pub(super) fn limit(&mut self, size: u16) {
        self.queue = Queue::new(size);
    }

    /// Sends a command. Returns it if it was not sent.
    #[must_use]
    pub(super) fn send(&mut self, tag: TagOf<D>, deadline: Time) -> Option<Unsent<D::Piece>> {
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
        let Some(Command { entry, transfer }) = self.queue.tag_mut(cid).map(Tag::command_mut) else { return Ok(()) };
        let (mut entry, mut len) = (Sqe { cid, ..*entry }, Sqe::LEN);
        let (shape, slot) = (self.shape, Queue::<()>::slot(cid));
        let data = transfer.buffer().map_or(0, |buffer| buffer.len());
        if data > shape.transfer {
            return Err(LinkError::Device {
                what: "a command with more data than the queue has room for",
                errno: Errno::EINVAL,
            });
        }
        let writes = matches!(transfer, Transfer::In(_));
        let lent = match (transfer.buffer_mut(), self.windows.get_mut(slot)) {
            (Some(buffer), Some(window)) if data > shape.in_capsule => lend(&mut self.qp, cid, window, buffer, writes)?,
            _ => None,
        };
        // A window may be renewed when its command is over, so its bind is too.
        let is_lent = lent.is_some();
        entry.sgl = match (lent, transfer) {
            (_, Transfer::Nothing) => Sgl::Nothing,
            (Some(lent), Transfer::Out(_) | Transfer::In(_)) => lent,
            (None, Transfer::Out(bytes)) if data <= shape.in_capsule => {
                len += data;
                if let Some(room) = capsule.get_mut(Sqe::LEN..len) {
                    room.copy_from_slice(bytes);
                }
                Sgl::InCapsule { len: data as u32 }
            }
            (None, transfer) => {
                let offset = slot * shape.transfer;
                if let Transfer::Out(bytes) = transfer {
                    self.region.write(offset, bytes).map_err(device("the memory for data"))?;
                }
                let remote = self.region.remote(offset);
                Sgl::Keyed { addr: remote.addr, len: data as u32, key: remote.rkey, invalidates: false }
            }
        };
        if let Some(room) = capsule.get_mut(..Sqe::LEN) {
            room.copy_from_slice(&entry.encode());
        }
        let send = SendWr::send(cid.into(), capsule.part(0..len));
        let posted = self.signaled.post(&mut self.qp, send, is_lent);
        if !posted.map_err(|unposted| device("a send")(unposted.into()))? {
            self.queue.posted_unsignaled(cid);
        }
        Ok(())
    }

    /// Takes completions, at most so many that the connection does not keep others waiting. Returns whether there may be more.
    pub(super) fn poll(&mut self, over: &mut Vec<Over<D::Piece>>) -> Result<bool, LinkError> {
        // A failed send comes first: the receives only tell that they were flushed.
        self.poll_sends(false, over)?;
        for _ in 0..POLLS {
            let polled = self.receives.poll_or_arm(&mut *self.batch).map_err(device("the completion queue"))?;
            self.take_batch(polled, over)?;
            if polled == 0 {
                let waits = self.queue.waits_for_sends();
                return if waits { self.poll_sends(true, over).map(|()| false) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    /// Takes the completions of sends, which are no more than the sends. If it arms, there are none left, and the next one notifies.
    fn poll_sends(&mut self, arms: bool, over: &mut Vec<Over<D::Piece>>) -> Result<(), LinkError> {
        loop {
            let (sends, batch) = (&mut self.sends, &mut *self.batch);
            let polled = if arms { sends.poll_or_arm(batch) } else { sends.poll(batch) };
            let polled = polled.map_err(device("the completion queue"))?;
            self.take_batch(polled, over)?;
            if polled == 0 || (!arms && polled < BATCH) {
                return Ok(());
            }
        }
    }

    fn take_batch(&mut self, polled: usize, over: &mut Vec<Over<D::Piece>>) -> Result<(), LinkError> {
        (0..polled)
            .try_for_each(|at| self.batch.get(at).copied().map_or(Ok(()), |completion| self.take(&completion, over)))
    }

    fn take(&mut self, completion: &Completion, over: &mut Vec<Over<D::Piece>>) -> Result<(), LinkError> {
        let parts = self.qp.reclaim(completion);
        let what = match completion.wr_id {
            BINDS.. => "a bind",
            RECEIVES.. => "a receive",
            _ => "a send",
        };
        if !completion.is_success() {
            return Err(LinkError::Completion { what, status: completion.status });
        }
        let done = match completion.wr_id {
            BINDS.. => None,
            RECEIVES.. => self.receive(completion, parts)?,
            // It was made of an identifier.
            cid => self.queue.sent(cid as u16)?,
        };
        let Some(Done { slot, mut tag, response }) = done else { return Ok(()) };
        let kept = tag.command_mut().transfer.buffer_mut().filter(|buffer| buffer.is_lent());
        let renewed = match (kept, self.windows.get_mut(slot)) {
            (Some(buffer), Some(window)) => renew(&self.pd, window, buffer),
            _ => Ok(()),
        };
        over.push(Over { tag, response });
        renewed
    }

    /// Ends the windows, on a connection that has ended. The commands have their blocks back.
    pub(super) fn end_windows(&mut self) {
        for (window, tag) in self.windows.drain(..).zip(self.queue.tags_mut()) {
            let buffer = tag.and_then(|tag| tag.command_mut().transfer.buffer_mut());
            if let Some(buffer) = buffer.filter(|buffer| buffer.is_lent()) {
                end(window, buffer);
            }
        }
    }

    /// Reads a response. Its receive is posted again before the command ends, so there is one for each that is outstanding.
    fn receive(
        &mut self,
        completion: &Completion,
        parts: Option<Parts<D::Piece>>,
    ) -> Result<Option<Done<TagOf<D>>>, LinkError> {
        let Some(parts) = parts else { return Err(device("a receive without its block")(Errno::EIO)) };
        let len = completion.byte_len as usize;
        let bytes = parts.first().and_then(|part| part.get(..len)).unwrap_or_default();
        let response = Cqe::decode(bytes)?;
        let posted = self.qp.post_recv_blocks(completion.wr_id, parts);
        posted.map_err(|unposted| device("a receive")(unposted.into()))?;
        // While an error leaves the command outstanding.
        self.take_data(response)?;
        Ok(self.queue.answered(response)?)
    }

    /// Takes back what was lent for a command, or copies what it has read. The target has no access afterwards.
    fn take_data(&mut self, response: Cqe) -> Result<(), LinkError> {
        let slot = Queue::<()>::slot(response.cid);
        let Some(transfer) = self.queue.tag_mut(response.cid).map(|tag| &mut tag.command_mut().transfer) else {
            return Ok(());
        };
        let reads = matches!(transfer, Transfer::In(_)) && response.status.is_success();
        let Some(buffer) = transfer.buffer_mut() else { return Ok(()) };
        match self.windows.get_mut(slot).filter(|_| buffer.is_lent()) {
            None if reads => {
                let read = self.region.read(slot * self.shape.transfer, buffer);
                read.map_err(device("the memory for data"))
            }
            None => Ok(()),
            // It was polled that the target has invalidated the key. If not, the window ends with the command.
            Some(window) => {
                if let Some(part) = window.reclaim() {
                    buffer.take_back(part);
                }
                Ok(())
            }
        }
    }
}

/// Ends a window whose key the target has kept, and takes its block back. The key is not invalidated: the target may still do that,
/// and soft-RoCE's kernel does not survive both (hazard P43). The command was sent, so no bind of the window is in flight.
fn renew<P, W>(pd: &P, window: &mut W, buffer: &mut Buffer<W::Piece>) -> Result<(), LinkError>
where
    P: ProtectionDomain<Mw = W>,
    W: MemoryWindow,
{
    let other = pd.alloc_mw().map_err(|error| device("a window")(error.errno()))?;
    end(mem::replace(window, other), buffer);
    Ok(())
}

/// Ends a window, and takes its block back.
fn end<W: MemoryWindow>(window: W, buffer: &mut Buffer<W::Piece>) {
    // One that cannot end now, on a device that is gone, does so later.
    let parts = window.dealloc().unwrap_or_default();
    parts.into_iter().for_each(|part| buffer.take_back(part));
}

/// Binds a window to a block of the buffer, for one command. Returns `None` if it has none for this device.
fn lend<Q: QueuePair>(
    qp: &mut Q,
    cid: u16,
    window: &mut Q::Mw,
    buffer: &mut Buffer<Q::Piece>,
    writes: bool,
) -> Result<Option<Sgl>, LinkError>
where
    Q::Mw: MemoryWindow<Piece = Q::Piece>,
{
    let (part, access): (Part<Q::Piece>, _) = match buffer.lend(writes) {
        Some(Loan::ToRead(part)) => (part, Access::REMOTE_READ),
        Some(Loan::ToWrite(part)) => (part, Access::REMOTE_WRITE),
        None => return Ok(None),
    };
    let (addr, len) = (part.block().remote(part.range().start).addr, part.range().len() as u32);
    match qp.post_bind_block(BINDS + u64::from(cid), window, part, access) {
        Ok(()) => Ok(Some(Sgl::Keyed { addr, len, key: window.rkey(), invalidates: true })),
        // It is of a device that is gone, or of another initiator.
        Err(Unposted { given: Some(parts), .. }) => {
            parts.into_iter().for_each(|part| buffer.take_back(part));
            Ok(None)
        }
        Err(unposted) => Err(device("a bind")(unposted.into())),
    }
}
