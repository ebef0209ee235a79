//! The active side, and established connections of both sides.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cmid_proto::datapath::{Attaching, Completion, CompletionQueue, DataPath, Drain, Draining, QueuePair};
use cmid_proto::handshake::{BoxError, Connected, Options, Session};
use cmid_proto::{Drive, Errno, IdKey, Limits, Observer, PrivateData, ReceivedParam};
use cmid_proto::{State, Time, Transport};
use futures_core::Stream;
use tokio::task::consume_budget;

use crate::clock;
use crate::driver::{Channels, Tokio};
use crate::port::Port;
use crate::watch::Watch;

/// The time that [`Connection::next_completions`] waits for work requests that do not complete after the end of the
/// connection.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// A connection: an id with its own event channel, and the CQ of its QP. One task at a time uses it.
///
/// Its methods take `&mut self`, and their futures keep nothing: a branch of `tokio::select!` that has lost may have
/// been at any point, and the next call continues there. So one task can wait for completions, and for what other tasks
/// send it, such as the order to disconnect. The QP is not part of it, and can be used by another task.
///
/// Dropping it ends the connection at once, as destroying an id does. It does not wait for the peer.
///
/// `Send` if the device is, and not `Sync`. It moves between the threads of its runtime; see
/// [`leave_runtime`](Connection::leave_runtime) for another runtime.
///
/// ```
/// use cmid_tokio::proto::datapath::{Access, Attaching, Completion, CreateError, DataPath, SendWr, prelude::*};
/// use cmid_tokio::{Connection, Listener, Options};
/// use std::time::Duration;
///
/// /// A QP, its CQ for the connection, and what is sent.
/// fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<(D::Cq, (D::Qp, D::Mr)), CreateError> {
///     let mut made = device.qp(to).attach()?;
///     let mr = made.pd.register(b"hello".to_vec(), Access::LOCAL_WRITE)?;
///     made.qp.post_recv(1, mr.sge(0..5))?;
///     Ok((made.cq, (made.qp, mr)))
/// }
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let address = "10.0.0.2:7471".parse()?;
/// # let mut listener = Listener::bind(host.device(), address)?;
/// # let server = tokio::spawn(async move {
/// #     let (mut connection, _parts) = listener.accept().await?.accept(&Options::default(), attach).await?;
/// #     let received = connection.next_completions(&mut [Completion::default()]).await?;
/// #     connection.closed().await.map(|()| received)
/// # });
///
/// let options = Options { timeout: Duration::from_secs(5), ..Options::default() };
/// let (mut connection, (mut qp, mr)) = Connection::connect(host.device(), address, &options, attach).await?;
/// qp.post_send(SendWr::send(2, mr.sge(0..5)))?;
/// let mut some = [Completion::default()];
/// let polled = tokio::time::timeout(Duration::from_secs(5), connection.next_completions(&mut some)).await??;
/// assert!(polled == 1 && some[0].is_success());
/// connection.disconnect(Duration::from_secs(5)).await?;
/// # assert_eq!(server.await??, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection<D: DataPath, O: Observer = ()> {
    port: Port<D, O>,
    cq: D::Cq,
    watch: Watch,
    /// Whether the CQ notifies of its next completion.
    is_armed: bool,
    /// The time until which work requests may complete after the end of the connection.
    flushed_by: Option<Time>,
    /// Whether the stream has returned an error.
    is_told: bool,
    param: ReceivedParam,
    private_data: PrivateData,
}

impl<D: DataPath> Connection<D> {
    /// Connects to a listening peer. `attach` is called once the id has a device. It creates a CQ with a
    /// completion channel of its own, and the QP, whose sends and receives both report to that CQ. It returns the CQ with
    /// what the application keeps, such as the QP.
    ///
    /// # Errors
    /// The device could not start a request (such as `ENODEV`, `ENETUNREACH`), `attach` has failed, the peer has
    /// rejected the request or is unreachable, or [`Options::timeout`] has passed (`TimedOut`). The inner error is a
    /// [`HandshakeError`](cmid_proto::handshake::HandshakeError), with the event that ended the handshake, or the error of
    /// `attach`, which may be any error. An error releases all resources of the connection.
    ///
    /// # Cancel safety
    /// Dropping the future ends the connect: the id is destroyed, and what `attach` has returned is dropped. A peer that
    /// has accepted sees the end of the connection.
    pub async fn connect<Q, E: Into<BoxError>>(
        device: D,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<(D::Cq, Q), E>,
    ) -> io::Result<(Self, Q)> {
        Connection::observed(device, (), peer, options, attach).await
    }
}

impl<D: DataPath, O: Observer> Connection<D, O> {
    /// As [`connect`](Connection::connect), with an observer of each step.
    ///
    /// # Errors
    /// As [`connect`](Connection::connect), whose cancel safety holds too.
    pub async fn observed<Q, E: Into<BoxError>>(
        device: D,
        observer: O,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<(D::Cq, Q), E>,
    ) -> io::Result<(Self, Q)> {
        let mut driver = Tokio::observed(device, Limits::SINGLE, observer);
        let session = Session::connect(driver.drive(), None, peer, options)?;
        Connection::open(Port::of(driver, session.id()), session, attach).await
    }

    /// Waits for the end of a connect or accept.
    pub(crate) async fn open<Q, E: Into<BoxError>>(
        mut port: Port<D, O>,
        session: Session<(D::Cq, Q)>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<(D::Cq, Q), E>,
    ) -> io::Result<(Self, Q)> {
        let Connected { attached: (cq, attached), param, private_data, .. } = port.shake_hands(session, attach).await?;
        let (watch, is_armed, flushed_by, is_told) = (Watch::default(), false, None, false);
        Ok((Connection { port, cq, watch, is_armed, flushed_by, is_told, param, private_data }, attached))
    }

    /// Returns the peer's parameters: those of its reply, on the passive side those of its connection request.
    #[must_use]
    pub fn param(&self) -> ReceivedParam {
        self.param
    }

    /// Returns the peer's private data, of its reply or its connection request, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the state of the connection after the events that have been read.
    #[must_use]
    pub fn state(&self) -> State {
        self.port.state()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.driver.drive.local_addr(self.port.id)?)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.driver.drive.peer_addr(self.port.id)?)
    }

    /// Returns the id and its drive, for requests that this type does not have. Do not migrate the id.
    pub fn parts(&mut self) -> (IdKey, &mut Drive<D, Channels, O>) {
        (self.port.id, &mut self.port.driver.drive)
    }

    /// Returns the CQ, to poll it without waiting.
    pub fn cq(&mut self) -> &mut D::Cq {
        &mut self.cq
    }

    /// Ends the registration in the runtime that has polled the connection. The next future registers it in the
    /// runtime that polls it, which may be on another thread. Nothing is lost in between: events and completions wait in
    /// the kernel.
    pub fn leave_runtime(&mut self) {
        self.port.driver.leave_runtime();
        self.watch = Watch::default();
    }

    /// Waits until the connection has ended: the peer has disconnected, or this side has. Confirms the peer's disconnect,
    /// which flushes the own QP. [`next_completions`](Connection::next_completions) then returns what is left, and ends.
    /// A task that waits for completions need not call this.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed, `ECONNRESET` if the device has failed the connection; or the channel cannot
    /// be read.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing. The end of the connection is a state: each later call returns it.
    pub async fn closed(&mut self) -> io::Result<()> {
        loop {
            if let Some(end) = self.end()? {
                return end;
            }
            self.port.ready().await?;
        }
    }

    /// Waits for completions, successful or not, puts them into `into` oldest first, and returns their number. Returns 0
    /// only at the end of the connection, when all work requests have completed: after a disconnect of either side the
    /// posted ones complete with `WR_FLUSH_ERR`. `into` must not be empty.
    ///
    /// Those that do not complete within a second after the end are not waited for: see
    /// [`CompletionQueue::is_idle`], also for the receives that another QP on the same CQ has posted.
    ///
    /// A failed completion means that the QP has failed. The connection itself has not ended then, and the peer does not
    /// know: [`disconnect`](Connection::disconnect), or drop it. A peer that has lost its power is noticed by a send that
    /// fails, and by nothing else.
    ///
    /// # Errors
    /// At the end, as [`closed`](Connection::closed); before it, the errno of the CQ.
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no completion.
    pub async fn next_completions(&mut self, into: &mut [Completion]) -> io::Result<usize> {
        poll_fn(|context| self.poll_completions(into, context)).await
    }

    fn poll_completions(&mut self, into: &mut [Completion], context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Other tasks run, if the CQ is never empty.
        ready!(pin!(consume_budget()).poll(context));
        loop {
            if let Some(polled) = self.take_completions(into)? {
                return Poll::Ready(Ok(polled));
            }
            ready!(self.poll_ready(None, context))?;
        }
    }

    /// As [`next_completions`](Connection::next_completions), without waiting: `None` if there is nothing.
    pub(crate) fn take_completions(&mut self, into: &mut [Completion]) -> io::Result<Option<usize>> {
        loop {
            let polled = self.cq.poll(into)?;
            if polled > 0 {
                return Ok(Some(polled));
            }
            if self.is_armed {
                break;
            }
            // They would accumulate in the kernel.
            self.cq.take_notifications()?;
            self.cq.arm()?;
            // Earlier completions cause no notification: poll once more.
            self.is_armed = true;
        }
        let Some(end) = self.end()? else { return Ok(None) };
        let now = clock::now();
        if self.cq.is_idle() || now >= *self.flushed_by.get_or_insert(now.after(FLUSH_LIMIT)) {
            return end.map(|()| Some(0));
        }
        Ok(None)
    }

    /// Polls the CQ until each work request of the QP is polled, also unsignaled ones ([`Drain`]). Then the memory can be
    /// deregistered. It follows [`disconnect`](Connection::disconnect) or [`closed`](Connection::closed). `take` gets each
    /// completion, also those of other QPs on the CQ.
    ///
    /// # Errors
    /// A [`DrainError`](cmid_proto::datapath::DrainError): `TimedOut` after `limit`, with the number of requests that are left;
    /// `InvalidInput` before the end. The errno of the CQ.
    ///
    /// # Cancel safety
    /// `take` has got all completions that were polled. The next call goes on.
    pub async fn drain<Q: QueuePair>(
        &mut self,
        qp: &mut Q,
        limit: Duration,
        mut take: impl FnMut(Completion),
    ) -> io::Result<()> {
        let by = clock::now().after(limit);
        let mut drain = Drain::until(by);
        loop {
            self.port.settle()?;
            self.cq.take_notifications()?;
            // A refused drain does not arm it again.
            self.is_armed = false;
            if drain.poll(clock::now(), qp, &mut [&mut self.cq], &mut take)? == Draining::Over {
                return Ok(());
            }
            self.is_armed = true;
            self.flushed_by = None;
            poll_fn(|context| self.poll_ready(Some(by), context)).await?;
        }
    }

    /// Disconnects, and waits for the peer's confirmation: its own disconnect, or the drop of its connection; a task of
    /// it that waits for completions or for [`closed`](Connection::closed) confirms as well. Returns at once if the
    /// connection has ended already. Packets of the connection may still be under way afterwards.
    ///
    /// # Errors
    /// `TimedOut` if the peer does not confirm within `limit`, which may be zero; the own side has disconnected nevertheless,
    /// and the next call continues to wait. Otherwise as [`closed`](Connection::closed).
    ///
    /// # Cancel safety
    /// Dropping the future does not take the request back, once it was polled. The next call continues to wait, within
    /// its own limit.
    pub async fn disconnect(&mut self, limit: Duration) -> io::Result<()> {
        let end = clock::now().after(limit);
        if let Some(ended) = self.end()? {
            if !self.port.is_busy() {
                return ended;
            }
        } else {
            // A deadline of the request would end it for the next call too, and one that has passed refuses it.
            self.port.driver.drive.disconnect(self.port.id, Time::NEVER)?;
        }
        loop {
            // What has come before the limit counts, also if nothing has waited for it.
            self.port.driver.read_again();
            self.port.settle()?;
            if !self.port.is_busy() {
                break;
            } else if clock::now() >= end {
                return Err(Errno::ETIMEDOUT.into());
            }
            let due = self.port.driver.drive.next_timeout().map_or(end, |due| due.min(end));
            poll_fn(|context| self.port.driver.poll_ready(Some(due), context)).await?;
        }
        match self.port.driver.drive.core().sync_result(self.port.id) {
            Some(Err(errno)) => Err(errno.into()),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Whether the connection has ended, by the events that have been read.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.port.state(), State::Connected | State::PeerClosed)
    }

    pub(crate) fn is_iwarp(&mut self) -> bool {
        self.port.driver.drive.transport(self.port.id) == Some(Transport::Iwarp)
    }

    /// Reads events, and confirms a disconnect of the peer. Returns how the connection has ended, if it has.
    fn end(&mut self) -> io::Result<Option<io::Result<()>>> {
        self.port.settle()?;
        let mut state = self.port.state();
        if state == State::PeerClosed {
            self.port.driver.drive.disconnect(self.port.id, Time::NEVER)?;
            state = self.port.state();
        }
        let failures = [(State::Removed, Errno::ENODEV), (State::Failed, Errno::ECONNRESET)];
        let failure = failures.into_iter().find(|(failed, _)| *failed == state).map(|(_, errno)| errno);
        let end = failure.map_or(Ok(()), |errno| Err(errno.into()));
        Ok((state != State::Connected).then_some(end))
    }

    /// Ready if there may be an event or a completion, at the nearest deadline, or at a time of the caller.
    pub(crate) fn poll_ready(&mut self, of_caller: Option<Time>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_notified = self.watch.poll(self.cq.fd(), context)?.is_ready();
        self.is_armed &= !is_notified;
        let driver = &mut self.port.driver;
        let due = driver.drive.next_timeout().into_iter().chain(self.flushed_by).chain(of_caller).min();
        match driver.poll_ready(due, context)? {
            Poll::Pending if !is_notified => Poll::Pending,
            Poll::Pending | Poll::Ready(()) => Poll::Ready(Ok(())),
        }
    }
}

/// Nothing in it is pinned.
impl<D: DataPath, O: Observer> Unpin for Connection<D, O> {}

/// The completions, one at a time, as [`Connection::next_completions`]. Ends with the connection, and after an
/// error. A future that is dropped has taken none.
impl<D: DataPath, O: Observer> Stream for Connection<D, O> {
    type Item = io::Result<Completion>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_told {
            return Poll::Ready(None);
        }
        let mut one = [Completion::default()];
        let polled = ready!(self.poll_completions(&mut one, context));
        self.is_told = polled.is_err();
        let [completion] = one;
        Poll::Ready(polled.map(|polled| (polled > 0).then_some(completion)).transpose())
    }
}
