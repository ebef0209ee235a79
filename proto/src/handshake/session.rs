//! A connection as one value.

mod released;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use super::{Connected, Dial, DialTo, HandshakeError, Incoming, Options, Serve};
use crate::cm_event::CmEvent;
use crate::datapath::{Attaching, Completion, CompletionQueue, CreateError, DataPath, Drain, QpParts, QueuePair};
use crate::device::Device;
use crate::drive::{Drive, Observer, Poller};
use crate::errno::Errno;
use crate::error::{BoxError, Error};
use crate::event::{Event, EventKind};
use crate::key::{ChannelKey, IdKey};
use crate::private_data::PrivateData;
use crate::request::PortSpace;
use crate::state::State;
use crate::time::Time;

pub use released::ReleasedSession;

/// A connection from its connect or request until its id is destroyed. `Q` is what the closure `attach` returns. It is a pair of
/// [`QpParts`] and any value of the program, such as its memory: only then there is [`next_completion`](Session::next_completion),
/// by which the session ends in the order of docs/shutdown.md.
///
/// The program passes the events of the id to [`handle`](Session::handle), and calls
/// [`next_completion`](Session::next_completion) after each wait until there is none. A disconnect of the peer is
/// answered. After either side's disconnect the posted work requests complete, then the QP is destroyed, then the id:
/// [`is_over`](Session::is_over). [`Options::timeout`] is the time limit of each of the two parts, the handshake and the
/// end, and is a deadline of the id, so it needs no timer. On iWARP the end of the connection is that of TCP, and the session
/// is over with what has been flushed by then.
///
/// A client sends a word, and the server disconnects when it has it:
///
/// ```
/// use cmid_proto::datapath::{Access, Attaching, CreateError, DataPath, QpParts, SendWr, prelude::*};
/// use cmid_proto::handshake::{Incoming, Options, Session};
/// use cmid_proto::{Acks, Drive, Limits, PortSpace};
/// # use cmid_sim::{Config, Fabric, SimDevice};
///
/// type Attached<D> = (QpParts<D>, <D as DataPath>::Mr);
///
/// fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<Attached<D>, CreateError> {
///     let mut made = device.qp(to).attach()?;
///     let mr = made.pd.register(b"hello".to_vec(), Access::LOCAL_WRITE)?;
///     made.qp.post_recv(1, mr.sge(0..5))?;
///     Ok((made, mr))
/// }
///
/// # let fabric = Fabric::new(Config::default());
/// # let device = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]).device();
/// # fn wait(fabric: &Fabric, drive: &mut Drive<SimDevice>) -> Result<(), &'static str> {
/// #     fabric.advance_to(fabric.next_due().ok_or("nothing is due")?);
/// #     drive.set_now(fabric.now());
/// #     drive.readable_all();
/// #     let _next = drive.run(64);
/// #     Ok(())
/// # }
/// let mut drive = Drive::new(device, Limits::default()); // or that of a driver
/// let channel = drive.open_channel(Acks::OnDelivery)?;
/// let (listener, address) = (drive.create_id(Some(channel), PortSpace::Tcp)?, "10.0.0.2:7471".parse()?);
/// drive.bind(listener, address)?;
/// drive.listen(listener, 8)?;
///
/// let mut client = Session::connect(&mut drive, Some(channel), address, &Options::default())?;
/// let (mut server, mut word) = (None::<Session<Attached<_>>>, [0; 5]);
/// loop {
///     while let Some(event) = drive.next_event(channel) {
///         if event.id == client.id() {
///             let Some(connected) = client.handle(&mut drive, event, attach)? else { continue };
///             let (made, mr) = &mut connected.attached;
///             made.qp.post_send(SendWr::send(2, mr.sge(0..5)))?;
///         } else if let Some(server) = &mut server {
///             server.handle(&mut drive, event, attach)?;
///         } else {
///             let request = Incoming::new(&mut drive, event).map_err(|event| event.to_string())?;
///             server = Some(Session::accept(&mut drive, request, &Options::default(), attach)?);
///         }
///     }
///     while let Some(_sent_or_flushed) = client.next_completion(&mut drive)? {}
///     if let Some(server) = &mut server {
///         while let Some(completion) = server.next_completion(&mut drive)? {
///             if let Some((_, mr)) = server.attached().filter(|_| completion.is_success()) {
///                 mr.read(0, &mut word)?;
///                 server.disconnect(&mut drive)?;
///             }
///         }
///         if server.is_over() && client.is_over() {
///             break;
///         }
///     }
///     wait(&fabric, &mut drive)?; // the wait of the loop, and a turn of the driver
/// }
/// assert_eq!(&word, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "its id lives until the session is over or cancelled"]
pub struct Session<Q> {
    id: IdKey,
    opening: Option<Opening<Q>>,
    connected: Option<Connected<Q>>,
    limit: Duration,
    /// Whether a completion has failed.
    has_failed: bool,
    end: End,
}

enum Opening<Q> {
    Dial(Dial<Q>),
    Serve(Serve<Q>),
}

/// How far a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// This side has disconnected, the peer not yet.
    Begun,
    /// No event is necessary any more, only completions.
    Both,
    /// The last send of the QP is posted.
    Marked,
    /// The id is destroyed.
    Over,
}

/// Without what `attach` has returned.
impl<Q> fmt::Debug for Session<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<Q> Session<Q> {
    fn new(id: IdKey, opening: Opening<Q>, limit: Duration) -> Self {
        Session { id, opening: Some(opening), connected: None, limit, has_failed: false, end: End::NotYet }
    }

    /// Creates an id of [`PortSpace::Tcp`] on a channel, or in synchronous mode (`None`), and begins to connect.
    ///
    /// # Errors
    /// As [`Dial::start`], or an option was refused; there is then no id.
    pub fn connect<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        channel: Option<ChannelKey>,
        peer: SocketAddr,
        options: &Options<'_>,
    ) -> Result<Self, HandshakeError> {
        let id = drive.create_id(channel, PortSpace::Tcp)?;
        Session::connect_on(drive, id, peer, options)
    }

    /// As [`connect`](Session::connect), on an id that the application has created.
    ///
    /// # Errors
    /// As [`Dial::start_on`], or an option was refused; the id is then destroyed.
    pub fn connect_on<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        id: IdKey,
        peer: SocketAddr,
        options: &Options<'_>,
    ) -> Result<Self, HandshakeError> {
        let deadline = options.begin(drive, id)?;
        let &Options { source, param, private_data, timeout, .. } = options;
        let to = DialTo { source, param, private_data: PrivateData::copy_of(private_data), ..DialTo::new(peer) };
        Ok(Session::new(id, Opening::Dial(Dial::start_on(drive, id, &to, deadline)?), timeout))
    }

    /// Accepts a request: as [`Incoming::accept`], with the QP that `attach` creates.
    ///
    /// # Errors
    /// As [`Incoming::accept`], or an option was refused; the id is then destroyed.
    pub fn accept<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        drive: &mut Drive<D, P, O>,
        incoming: Incoming,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<Self, HandshakeError> {
        let id = incoming.id();
        let deadline = options.begin(drive, id)?;
        let &Options { param, private_data, timeout, .. } = options;
        let serve = incoming.accept(drive, param, private_data, deadline, |drive, id| attach_qp(drive, id, attach))?;
        Ok(Session::new(id, Opening::Serve(serve), timeout))
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.id
    }

    /// Whether the connection is established, and neither side has disconnected. After a failed completion, which no event
    /// follows, it is open until this side disconnects.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end == End::NotYet && self.connected.is_some()
    }

    /// Returns what `attach` has returned, from the end of the handshake on.
    pub fn attached(&mut self) -> Option<&mut Q> {
        Some(&mut self.connected.as_mut()?.attached)
    }

    /// Returns what the handshake has brought, such as memory to deregister at the end. Before the end, the connection is the
    /// caller's from now on.
    #[must_use]
    pub fn into_connected(self) -> Option<Connected<Q>> {
        self.connected
    }

    /// Whether the id is destroyed, after an error too.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end == End::Over
    }

    /// Takes an event of the id and acks it. Returns the connection if it is established by this event. Ignores events of
    /// other ids. `attach` creates the QP of a side that connects, and is called once; it may fail with any error.
    ///
    /// # Errors
    /// As [`Dial::handle`] and [`Serve::handle`]; then the session is over. After the handshake, as [`Drive::teardown`].
    pub fn handle<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        mut event: Event,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<Option<&mut Connected<Q>>, HandshakeError> {
        let opened = match &mut self.opening {
            Some(Opening::Dial(dial)) => dial.handle(drive, event, |drive, id| attach_qp(drive, id, attach)),
            Some(Opening::Serve(serve)) => serve.handle(drive, event),
            None => {
                let acked = event.ack_token.take().map_or(Ok(()), |ack_token| drive.ack(ack_token));
                // The ack of another id's event is refused if that id is gone.
                if event.id == self.id {
                    acked.map_err(Error::from)?;
                    self.note(drive, matches!(event.kind, EventKind::Cm(CmEvent::Disconnected | CmEvent::Rejected)))?;
                }
                return Ok(None);
            }
        };
        self.opened(opened)
    }

    /// Synchronous mode: as [`handle`](Session::handle), with the event of a request that has ended. Call it after each
    /// wait of the handshake. `attach` is taken when it is called. The other events of the id come on its
    /// [channel](crate::Core::channel), for `handle`.
    ///
    /// # Errors
    /// As [`handle`](Session::handle).
    pub fn poll<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        attach: &mut Option<impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>>,
    ) -> Result<Option<&mut Connected<Q>>, HandshakeError> {
        let opened = match &mut self.opening {
            Some(Opening::Dial(dial)) => dial.poll(drive, |drive, id| match attach.take() {
                Some(attach) => attach_qp(drive, id, attach),
                // A handshake calls it once.
                None => Err(Errno::EINVAL.into()),
            }),
            Some(Opening::Serve(serve)) => serve.poll(drive),
            None => return Ok(None),
        };
        self.opened(opened)
    }

    fn opened(
        &mut self,
        opened: Result<Option<Connected<Q>>, HandshakeError>,
    ) -> Result<Option<&mut Connected<Q>>, HandshakeError> {
        self.connected = opened.inspect_err(|_| self.end = End::Over)?;
        let is_open = self.connected.is_some();
        self.opening.take_if(|_| is_open);
        Ok(self.connected.as_mut())
    }

    /// An event after the handshake: the state of the id tells what it means. `is_answer`: that of the peer to a disconnect.
    fn note<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        is_answer: bool,
    ) -> Result<(), Error> {
        match drive.core().state(self.id) {
            Some(State::Connected | State::Disconnecting) => return Ok(()),
            Some(State::Closing) if !is_answer => return Ok(()),
            Some(State::PeerClosed) => return self.leave(drive),
            Some(_) | None => {}
        }
        // A later event, such as TIMEWAIT_EXIT, changes nothing.
        if matches!(self.end, End::NotYet | End::Begun) {
            self.end = End::Both;
        }
        Ok(())
    }

    /// Disconnects. Nothing is posted from now on. Does nothing before the connection is established, nor if it has ended
    /// already.
    ///
    /// # Errors
    /// As [`Drive::teardown`].
    pub fn disconnect<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<(), Error> {
        if self.is_open() { self.leave(drive) } else { Ok(()) }
    }

    /// Disconnects, or answers the disconnect of the peer.
    fn leave<D: Device, P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<(), Error> {
        let end = match drive.core().state(self.id) {
            Some(State::Connected) => End::Begun,
            Some(State::PeerClosed) => End::Both,
            // An event tells of the end.
            Some(_) | None => return Ok(()),
        };
        drive.teardown(self.id, drive.within(self.limit))?;
        self.end = end;
        Ok(())
    }

    /// Destroys the QP and the id at once, at any step. Does nothing once the id is gone, or goes when its acks are given. What
    /// `attach` has returned stays with the session. A connected peer is told once; a loss of that message is not repaired
    /// (`cm_destroy_id`).
    ///
    /// # Errors
    /// As [`Drive::destroy`]. The session is then not over, and another call tries again: also to destroy what an error of the
    /// handshake has left, whose own destroy has failed.
    pub fn cancel<D: DataPath, P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<(), Error> {
        if !matches!(drive.core().state(self.id), None | Some(State::Destroying)) {
            // Refused if the device is removed, or there is none: the QP then ends with the id.
            let _ = drive.detach_qp(self.id, |device, id| device.destroy_qp(id));
            drive.destroy(self.id, Time::NEVER)?;
        }
        (self.opening, self.end) = (None, End::Over);
        Ok(())
    }
}

impl<D: DataPath, M> Session<(QpParts<D>, M)> {
    /// Returns the descriptor of the CQ: it is readable when [`next_completion`](Session::next_completion) has returned
    /// `None` before and there is more now. `None` before the connection is established, and once the session is over.
    #[cfg(unix)]
    #[must_use]
    pub fn cq_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connected.as_ref().filter(|_| !self.is_over()).map(|connected| connected.attached.0.cq.fd())
    }

    /// Returns the oldest completion of the CQ, which is the QP's own. After `None` the CQ is armed. After a failed one, which
    /// no event follows, the next call disconnects; so does each one after a disconnect that has failed. At the end it posts a send without bytes if unsignaled ones are left, as
    /// [`Drain`] does; when nothing is left, or the limit has passed, it destroys the QP and the id.
    ///
    /// # Errors
    /// That of a poll of the CQ, of a disconnect or a destroy, which the next call repeats.
    pub fn next_completion<P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<Option<Completion>, Error> {
        // A peer that is not answered yet has closed if the answer has failed.
        if self.is_open() && (self.has_failed || drive.core().state(self.id) == Some(State::PeerClosed)) {
            self.leave(drive)?;
        }
        let mut one = [Completion::default()];
        while let Some(connected) = self.connected.as_mut().filter(|_| self.end != End::Over) {
            let (QpParts { qp, cq, .. }, _) = &mut connected.attached;
            let polled = cq.poll_or_arm(&mut one);
            let polled = polled.map_err(|errno| drive.data_failure("poll_cq", self.id, errno, None));
            if polled.is_ok_and(|polled| polled > 0) {
                let [completion] = one;
                if self.end == End::Marked && completion.wr_id == Drain::MARK {
                    continue;
                }
                self.has_failed |= !completion.is_success();
                return Ok(Some(completion));
            }
            let left = qp.unpolled();
            // The deadline of the teardown ends it, and so does the end of the time wait. On iWARP there is neither: a
            // device flushes at once, or not at all.
            let is_closing = drive.core().state(self.id) == Some(State::Closing);
            match self.end {
                // In synchronous mode no event tells of the answer.
                End::Begun if drive.core().sync_result(self.id).is_some() => self.end = End::Both,
                End::NotYet | End::Begun | End::Over => return polled.map(|_none| None),
                End::Both if polled.is_ok() && left.sends > 0 && Drain::mark(qp) => self.end = End::Marked,
                End::Both | End::Marked if left.is_none() || !is_closing => self.cancel(drive)?,
                End::Both | End::Marked => return polled.map(|_none| None),
            }
            // Not before the end is looked at, because a CQ of a removed device fails each time.
            polled?;
        }
        Ok(None)
    }
}

/// Attaches the QP that `attach` creates. An error of a creation becomes one of the request, which names the call; another
/// error stays as it is.
fn attach_qp<D: Device, P: Poller<D>, O: Observer, Q, E: Into<BoxError>>(
    drive: &mut Drive<D, P, O>,
    id: IdKey,
    attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
) -> Result<Q, BoxError> {
    let made = drive.try_attach_qp(id, |device, attaching| attach(device, attaching).map_err(E::into));
    made.map_err(|error: BoxError| {
        let creation = error.downcast::<CreateError>().map(|error| *error);
        match creation.or_else(|error| error.downcast::<Errno>().map(|errno| (*errno).into())) {
            Ok(error) => drive.creation_failure(id, error).into(),
            Err(other) => other,
        }
    })
}
