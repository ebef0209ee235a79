//! One side of a connection: its QP, its CQ, and messages over both.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_blocking::Connection;
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{Access, Caps, Completion, CreateError, Remote, SendWr, SrqCaps, prelude::*};
use cmid_proto::{Errno, Transport};

use crate::outcome::classified;
use crate::wire::{Kind, Message};

/// The limit of each wait.
pub(crate) const SPAN: Duration = Duration::from_secs(20);
/// Receives that are posted at a time.
const RECEIVES: usize = 4;
/// The messages that may wait to be handled. A client has one request at a time; one that sends more may do so for
/// ever.
const WAITING: usize = 8;
/// The place of the message to send, behind those of the receives.
const SEND_AT: usize = RECEIVES * Message::LEN;
/// Work requests in the send queue.
pub(crate) const DEPTH: u32 = 64;
/// The number of the work request that sends a message. The receives have the numbers of their places.
const SENT: u64 = 1 << 32;
/// The number of an empty RDMA write: see [`Side::reply`].
const EMPTY: u64 = SENT + 1;
/// The time without a reply after which one is posted.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many were posted, by all connections.
pub(crate) static EMPTY_WRITES: AtomicU32 = AtomicU32::new(0);
/// The number of the first work request that a behaviour posts.
pub(crate) const OWN: u64 = 1 << 33;
/// Empty polls between two looks at the connection.
const POLLS: u32 = 64;

/// The queues of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    /// With a receive queue of its own.
    Plain,
    /// With a shared receive queue.
    Shared,
    /// Sends of a message are inlined.
    Inline,
}

/// The objects of the data path of one side.
pub(crate) struct Side<D: DataPath> {
    pub(crate) qp: D::Qp,
    pub(crate) cq: D::Cq,
    pub(crate) pd: D::Pd,
    messages: D::Mr,
    srq: Option<D::Srq>,
    is_iwarp: bool,
    received: VecDeque<Message>,
    sent: bool,
    own: VecDeque<Completion>,
}

impl<D: DataPath> Side<D> {
    /// Creates the objects and posts receives. For [`Connection::connect`] and for an accept.
    pub(crate) fn attach(device: &mut D, to: Attaching<'_>, queues: Queues) -> Result<Self, CreateError> {
        let id = to.id();
        let (pd, cq) = (device.alloc_pd(id)?, device.create_cq(id, DEPTH + RECEIVES as u32)?);
        let bytes = vec![0; SEND_AT + Message::LEN];
        let messages = pd.register(bytes, Access::LOCAL_WRITE)?;
        let max_inline = if queues == Queues::Inline { Message::LEN as u32 } else { 0 };
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: RECEIVES as u32, max_inline, ..Caps::default() };
        let shared = SrqCaps { max_wr: RECEIVES as u32, max_sge: 1 };
        let srq = (queues == Queues::Shared).then(|| pd.create_srq(shared)).transpose()?;
        let qp = match &srq {
            Some(srq) => device.create_qp_with_srq(to, &pd, &cq, &cq, srq, caps)?,
            None => device.create_qp(to, &pd, &cq, &cq, caps)?,
        };
        let is_iwarp = device.transport(id) == Some(Transport::Iwarp);
        let (received, own) = (VecDeque::new(), VecDeque::new());
        let mut side = Side { qp, cq, pd, messages, srq, is_iwarp, received, sent: false, own };
        (0..RECEIVES).try_for_each(|place| side.post_receive(place))?;
        Ok(side)
    }

    fn post_receive(&mut self, place: usize) -> Result<(), Errno> {
        let at = place * Message::LEN;
        let sge = self.messages.sge(at..at + Message::LEN);
        match &mut self.srq {
            Some(srq) => srq.post_recv(place as u64, sge)?,
            None => self.qp.post_recv(place as u64, sge)?,
        }
        Ok(())
    }

    /// Registers memory of `len` bytes.
    pub(crate) fn register(&self, len: usize, access: Access) -> Result<D::Mr> {
        self.register_bytes(vec![0; len], access).map_err(|errno| classified("ibv_reg_mr", errno))
    }

    /// As [`Side::register`], with the contents.
    pub(crate) fn register_bytes(&self, bytes: Vec<u8>, access: Access) -> Result<D::Mr, Errno> {
        Ok(self.pd.register(bytes, access)?)
    }

    /// Polls once. Returns whether there was a completion.
    fn poll(&mut self) -> Result<bool> {
        let Some(completion) = self.cq.poll_one().context("ibv_poll_cq")? else { return Ok(false) };
        if completion.wr_id >= OWN {
            self.own.push_back(completion);
            return Ok(true);
        }
        ensure!(completion.is_success(), "a message ended with \"{}\"", completion.status);
        match completion.wr_id {
            SENT => self.sent = true,
            EMPTY => {}
            place => self.take_message(place)?,
        }
        Ok(true)
    }

    fn take_message(&mut self, place: u64) -> Result<()> {
        ensure!(self.received.len() < WAITING, "the peer sends more requests than are answered");
        let place = usize::try_from(place)?;
        let mut bytes = [0; Message::LEN];
        self.messages.read(place * Message::LEN, &mut bytes).context("reading a message")?;
        self.received.push_back(Message::from_bytes(&bytes)?);
        self.post_receive(place).context("ibv_post_recv")
    }

    /// Polls until `done` returns a value, for at most [`SPAN`]. Calls `look` now and then.
    fn poll_until<T>(
        &mut self,
        what: &str,
        look: impl FnMut() -> Result<()>,
        done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T> {
        let result = self.poll_for(SPAN, look, done)?;
        result.with_context(|| format!("{what} did not complete in {} s", SPAN.as_secs()))
    }

    /// As [`Side::poll_until`], for at most `span`. `None` after that.
    fn poll_for<T>(
        &mut self,
        span: Duration,
        mut look: impl FnMut() -> Result<()>,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>> {
        let end = Instant::now() + span;
        let mut empty = 0_u32;
        loop {
            if let Some(value) = done(self) {
                return Ok(Some(value));
            }
            if !self.poll()? {
                empty += 1;
                if empty % POLLS == 0 {
                    look()?;
                }
                if Instant::now() >= end {
                    return Ok(None);
                }
                thread::yield_now();
            }
        }
    }

    /// Sends a message and waits for its completion.
    pub(crate) fn send(&mut self, message: Message) -> Result<()> {
        self.messages.write(SEND_AT, &message.to_bytes()).context("writing a message")?;
        let sge = self.messages.sge(SEND_AT..SEND_AT + Message::LEN);
        self.qp.post_send(SendWr::send(SENT, sge)).context("ibv_post_send")?;
        self.poll_until("a send", || Ok(()), |side| std::mem::take(&mut side.sent).then_some(()))
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> Result<Message> {
        self.receive_while(|| Ok(()))
    }

    /// As [`Side::receive`]; an error of `look`, which is called now and then, ends the wait.
    pub(crate) fn receive_while(&mut self, look: impl FnMut() -> Result<()>) -> Result<Message> {
        self.poll_until("a receive", look, |side| side.received.pop_front())
    }

    /// Sends a request and returns the results of the reply.
    pub(crate) fn request(&mut self, kind: Kind, numbers: [u64; 3]) -> Result<[u64; 3]> {
        self.send(Message::new(kind, numbers))?;
        self.reply()?.done()
    }

    /// Waits for the reply to a request. On iWARP it posts an empty RDMA write after [`PATIENCE`]: soft-iWARP may leave
    /// the first message of a connection unread until more bytes come (hazard P49).
    fn reply(&mut self) -> Result<Message> {
        if self.is_iwarp {
            if let Some(message) = self.poll_for(PATIENCE, || Ok(()), |side| side.received.pop_front())? {
                return Ok(message);
            }
            EMPTY_WRITES.fetch_add(1, Ordering::Relaxed);
            let nowhere = Remote { addr: 0, rkey: 0 };
            self.qp
                .post_send(SendWr::write(EMPTY, self.messages.sge(0..0), nowhere))
                .context("posting an empty write")?;
        }
        self.receive()
    }

    /// Waits for the completion of a work request that the caller has posted.
    pub(crate) fn complete(&mut self) -> Result<Completion> {
        self.poll_until("a work request", || Ok(()), |side| side.own.pop_front())
    }

    /// As [`Side::complete`]; a status other than success is an error.
    pub(crate) fn succeed(&mut self, what: &str) -> Result<()> {
        let completion = self.complete().with_context(|| what.to_owned())?;
        ensure!(completion.is_success(), "{what} ended with \"{}\"", completion.status);
        Ok(())
    }
}

/// A connection of the client with its side of the data path.
pub(crate) struct Connected<D: DataPath> {
    pub(crate) side: Side<D>,
    pub(crate) connection: Connection<D>,
}

impl<D: DataPath> Connected<D> {
    /// Ends the connection and waits for the confirmation.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        self.connection.disconnect(SPAN).context("disconnecting")
    }
}
