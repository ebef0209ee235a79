//! Messages over a connection.

mod byte_listener;
mod bytes;
#[cfg(feature = "hyper-util")]
mod connector;
mod large;
mod message;
mod open;
mod traits;
mod turn;
mod wakers;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use cmid_proto::datapath::{Block, DataPath, Piece, Pool, Remote, Signaled};
use cmid_proto::messages::{HEADER, Messages, OFFER, Stage};
use cmid_proto::{Observer, Time};
use tokio::task::consume_budget;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::watch::in_runtime;
pub use byte_listener::ByteListener;
pub use bytes::ByteStream;
#[cfg(feature = "hyper-util")]
pub use connector::Connector;
use large::Reading;
pub use message::Message;
use wakers::{Half, Wakers};

/// Messages over a connection: framed, in order, with credits, so that no send meets a missing receive. Both sides are a
/// channel. The protocol is that of [`cmid_proto::messages`].
///
/// [`send`](Channel::send) and [`recv`](Channel::recv); as `futures` have it a `Stream` of [`Message`]s and a `Sink` of
/// bytes; as bytes for what runs on TCP, a [`ByteStream`]. A message that does not fit into one receive of the peer
/// ([`message_max`](Channel::message_max)) is read by the peer by RDMA, one at a time, if
/// [`ConnParam`](cmid_proto::ConnParam) permits reads.
///
/// Its memory moves into the work requests, so that a device never writes to what a future has borrowed, and a future may
/// be dropped at any point. A message is copied once on the sending side and not on the receiving one; a large one also
/// there, and in memory that is registered for it.
///
/// # Who makes its turns
///
/// There is no task of it. Each poll of any of its futures takes what has arrived in both directions, returns credits and
/// sends signs of life; after a poll that was not ready, its waker is called when one of these is due. So a task that
/// neither sends nor receives, for as long as the [`silence`](cmid_proto::messages::MessagesConfig::silence) that the
/// peer permits, is dead for the peer. Keep a `recv` among what the task awaits.
///
/// One task may wait for each half at a time, such as by `split` of `futures` or of [`tokio::io`].
///
/// # How it ends
///
/// [`close`](Channel::close), by both sides. A drop ends the connection at once: the peer's `recv` returns the messages that
/// have arrived, then `UnexpectedEof`. The first error is final: later calls return it again.
///
/// ```
/// use cmid_tokio::proto::messages::MessagesConfig;
/// use cmid_tokio::{Channel, Listener, Options};
/// use std::time::Duration;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let address = "10.0.0.2:7471".parse()?;
/// let mut listener = Listener::bind(host.device(), address)?;
/// let server = tokio::spawn(async move {
///     let incoming = listener.accept().await?;
///     let mut channel = Channel::accept(incoming, MessagesConfig::default(), &Options::default()).await?;
///     while let Some(message) = channel.recv().await? {
///         channel.send(&message.to_ascii_uppercase()).await?;
///     }
///     channel.close(Duration::from_secs(5)).await
/// });
///
/// let mut channel = Channel::connect(host.device(), address, MessagesConfig::default(), &Options::default()).await?;
/// channel.send(b"hello").await?;
/// let answer = channel.recv().await?.ok_or("the server has finished")?;
/// assert_eq!(&answer[..], b"HELLO");
/// channel.close(Duration::from_secs(5)).await?;
/// server.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Channel<D: DataPath, O: Observer = ()> {
    qp: D::Qp,
    receives: Pool<D::Piece>,
    sends: Pool<D::Piece>,
    messages: Messages,
    message_max: usize,
    keep_alive: Duration,
    /// The time that the last turn has read: what was due by then, it has done or tried.
    last_turn: Time,
    /// Messages that nobody has taken: at most as many as there are receives.
    arrived: VecDeque<Arrived<D::Piece>>,
    /// The first one of them, if it is offered.
    reading: Option<Reading<D::Mr>>,
    /// A message that the peer has not taken.
    offered: Option<D::Mr>,
    large_max: usize,
    /// A message of the sink whose credit was taken by a packet without a message.
    queued: Option<Vec<u8>>,
    peer_has_finished: bool,
    /// Whether a message may be lost: its send has failed.
    is_lost: bool,
    /// Once a request is flushed: when the QP has failed, unless the connection ends before.
    flushed_by: Option<Time>,
    is_iwarp: bool,
    /// One packet in half of the blocks.
    signaled: Signaled,
    /// Whether the end of the sends is posted ([`Drain::mark`](cmid_proto::datapath::Drain::mark)).
    is_marked: bool,
    failure: Option<Arc<io::Error>>,
    /// Whether the stream has returned the failure.
    is_told: bool,
    wakers: Arc<Wakers>,
    /// Of the descriptors and the timer of the connection: it wakes all of `wakers`.
    waker: Waker,
    connection: Connection<D, O>,
    /// Dropped last.
    pd: D::Pd,
}

/// A message that has arrived, or that the peer has offered, with the receive of the offer.
enum Arrived<P: Piece> {
    Message(Message<P>),
    Offer { at: Remote, len: u64, block: Block<P> },
}

/// The number of a work request: whose block it has.
#[derive(Clone, Copy)]
enum Work {
    Receive,
    Control,
    Message,
    Read,
}

/// Nothing in it is pinned.
impl<D: DataPath, O: Observer> Unpin for Channel<D, O> {}

impl<D: DataPath, O: Observer> Channel<D, O> {
    /// Returns the length of the longest message that fits into a packet, in bytes: the smaller one of both sides'
    /// [`packet`](cmid_proto::messages::MessagesConfig::packet), without the header. It is the longest one of the sink.
    #[must_use]
    pub fn message_max(&self) -> usize {
        self.message_max
    }

    /// Sets the length of the longest message that this side reads by RDMA, in bytes; a megabyte without it. A longer one that
    /// the peer offers ends the channel. One that fits into a packet is received whatever this is. So much memory is registered
    /// while a large message is received; if the process cannot have it, the channel ends too.
    pub fn set_large_max(&mut self, large_max: usize) {
        self.large_max = large_max;
    }

    /// Returns the connection, for its addresses and parameters. Do not take completions from it.
    pub fn connection(&mut self) -> &mut Connection<D, O> {
        &mut self.connection
    }

    /// As [`Connection::leave_runtime`]. Before the next poll in another runtime: an error of a runtime that is gone is final.
    pub fn leave_runtime(&mut self) {
        self.connection.leave_runtime();
    }

    /// Sends a message of any length that the peer takes. Waits until the peer has a receive for it, and a large one until the
    /// large one before is taken; not until it has arrived.
    ///
    /// # Errors
    /// `InvalidInput` for a message longer than [`message_max`](Channel::message_max), if a packet has no room for an offer
    /// of one; `BrokenPipe` after [`finish`](Channel::finish); what the registration of a large one says; else what has ended the channel, as for [`recv`](Channel::recv).
    ///
    /// # Cancel safety
    /// A future that is dropped before it was ready has sent nothing. The peer never sees a part of a message.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        poll_fn(|context| {
            let is_large = message.len() > self.message_max && self.message_max >= OFFER - HEADER;
            if is_large || message.len() <= self.message_max {
                ready!(self.poll_room(is_large, context))?;
            }
            let offers = is_large && !self.has_finished();
            Poll::Ready(if offers { self.offer(message) } else { self.send_now(&[message]) })
        })
        .await
    }

    /// Waits for the next message. `None` after the last one, if the peer has [finished](Channel::finish).
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer has ended the connection without that, `TimedOut` if it sends no sign of life,
    /// `InvalidData` with a [`MessagesError`](cmid_proto::messages::MessagesError) if it breaks the protocol; as
    /// [`Connection::closed`]; or a work request has failed.
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no message.
    pub async fn recv(&mut self) -> io::Result<Option<Message<D::Piece>>> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Sends no more messages, and waits until all are in the peer's memory. The peer's [`recv`](Channel::recv) returns
    /// `None` after them; its own messages still arrive. On iWARP they are then on their way, in TCP.
    ///
    /// # Errors
    /// As [`recv`](Channel::recv).
    ///
    /// # Cancel safety
    /// Dropping the future does not take it back, once it was polled and no message of the sink waited for a credit. The
    /// next call waits on.
    pub async fn finish(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_finish(context)).await
    }

    /// [Finishes](Channel::finish), and waits until the peer has too. Discards the messages that arrive until then. Drop
    /// the channel afterwards: no message is lost.
    ///
    /// # Errors
    /// `TimedOut` if the peer does not finish within `limit`; else as [`finish`](Channel::finish).
    ///
    /// # Cancel safety
    /// As [`finish`](Channel::finish). Messages may be discarded.
    pub async fn close(&mut self, limit: Duration) -> io::Result<()> {
        let exchange = async {
            self.finish().await?;
            while self.recv().await?.is_some() {}
            Ok(())
        };
        let late = || format!("the peer has not finished within {limit:?}");
        let closed = in_runtime(|| timeout(limit, exchange))?.await;
        closed.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, late())))
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Message<D::Piece>>>> {
        self.poll_turns(Half::Receive, context, |channel| {
            let message = channel.pop_message();
            (message.is_some() || channel.peer_has_finished).then_some(message)
        })
    }

    /// Takes the next message, if it is here.
    fn pop_message(&mut self) -> Option<Message<D::Piece>> {
        match self.arrived.pop_front()? {
            Arrived::Message(message) => Some(message),
            offer @ Arrived::Offer { .. } => {
                self.arrived.push_front(offer);
                None
            }
        }
    }

    /// Ready if a message can be sent, or offered.
    fn poll_room(&mut self, is_large: bool, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_turns(Half::Send, context, |channel| {
            let is_next = channel.queued.is_none() && !(is_large && channel.offered.is_some());
            let has_room = channel.has_room() && is_next;
            (channel.failure.is_none() && (channel.has_finished() || has_room)).then_some(())
        })
    }

    /// Ready if no message waits for a credit.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.queued.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.poll_turns(Half::Send, context, |channel| channel.queued.is_none().then_some(()))
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(context))?;
        self.messages.close(Time::NEVER);
        self.poll_turns(Half::Send, context, |channel| {
            let is_sent = !channel.is_lost && channel.sends.available() == channel.sends.blocks();
            // An offer that has arrived is not yet its message.
            let is_delivered = is_sent && channel.offered.is_none();
            let is_said = matches!(channel.messages.stage(), Stage::Closed | Stage::Over);
            // A peer that has finished may go without our goodbye.
            let has_gone = channel.peer_has_finished && channel.failure.is_some();
            (is_delivered && (is_said || has_gone)).then_some(())
        })
    }

    /// Makes turns for a task that waits for a half, until `poll` has its result or no turn is necessary. Pending also if
    /// other tasks are to run first.
    fn poll_turns<T>(
        &mut self,
        half: Half,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Self) -> Option<T>,
    ) -> Poll<io::Result<T>> {
        ready!(pin!(consume_budget()).poll(context));
        self.wakers.register(half, context);
        loop {
            self.turn(half);
            if let Some(result) = poll(self) {
                self.wakers.forget(half);
                return Poll::Ready(Ok(result));
            }
            self.intact()?;
            ready!(self.poll_ready());
        }
    }

    /// Whether this side sends no more messages.
    fn has_finished(&self) -> bool {
        !matches!(self.messages.stage(), Stage::Open | Stage::PeerClosed)
    }

    fn intact(&self) -> io::Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(io::Error::new(failure.kind(), Arc::clone(failure))))
    }
}

impl<D: DataPath, O: Observer> std::fmt::Debug for Channel<D, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (messages, arrived) = (&self.messages, self.arrived.len());
        f.debug_struct("Channel").field("messages", messages).field("arrived", &arrived).finish_non_exhaustive()
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
