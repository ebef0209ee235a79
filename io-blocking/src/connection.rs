//! The active side, and established connections of both sides.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_proto::datapath::Attaching;
use cmid_proto::handshake::{BoxError, Connected, Options, Session};
use cmid_proto::{
    CmEvent, Device, Errno, Event, IdKey, Limits, Observer, Pollable, PrivateData, ReceivedParam, RefuseReason,
    Refused, RequestKind, State, Time,
};

use crate::cancel::Canceller;
use crate::driver::Blocking;
use crate::error::Error;
use crate::wait::{Ready, WaitFor};

/// A connection: an id in synchronous mode on its own driver. One thread at a time uses it.
///
/// Dropping it ends the connection at once, as destroying an id does.
///
/// `Send`, and not `Sync`: one thread at a time uses a driver. It can move to another thread, or be in a `Mutex`.
///
/// ```
/// use cmid_blocking::proto::datapath::{Access, Completion, QpParts, SendWr, prelude::*};
/// use cmid_blocking::{Connection, Listener, Options};
/// use std::{thread, time::Duration};
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// # let address = "10.0.0.2:7471".parse()?;
/// # let mut listener = Listener::bind(host.device(), address)?;
/// # let server = thread::spawn(move || -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
/// #     let (mut connection, (mut made, mr)) =
/// #         listener.accept(Duration::from_secs(5))?.accept(&Options::default(), |device, to| {
/// #             let mut made = device.qp(to).attach()?;
/// #             let mr = made.pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
/// #             made.qp.post_recv(1, mr.sge(0..64))?;
/// #             Ok::<_, cmid_sim::CreateError>((made, mr))
/// #         })?;
/// #     let mut some = [Completion::default()];
/// #     connection.next_completions(&mut made.cq, &mut some, Duration::from_secs(5))?;
/// #     let mut bytes = vec![0; some[0].byte_len as usize];
/// #     mr.read(0, &mut bytes)?;
/// #     connection.wait_closed(Duration::from_secs(5))?;
/// #     Ok(String::from_utf8(bytes)?)
/// # });
///
/// let options = Options { private_data: b"version 1", timeout: Duration::from_secs(5), ..Options::default() };
/// let (mut connection, mut made) = Connection::connect(host.device(), address, &options, QpParts::attach)?;
///
/// let mr = made.pd.register(b"hello".to_vec(), Access::empty())?;
/// made.qp.post_send(SendWr::send(1, mr.sge(0..5)))?;
/// let mut some = [Completion::default()];
/// let polled = connection.next_completions(&mut made.cq, &mut some, Duration::from_secs(5))?;
/// assert!(polled == 1 && some[0].is_success());
/// connection.disconnect(Duration::from_secs(5))?;
/// # assert_eq!(server.join().expect("the server does not panic").map_err(|error| error.to_string())?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection<D: Pollable, O: Observer = ()> {
    driver: Blocking<D, O>,
    id: IdKey,
    param: ReceivedParam,
    private_data: PrivateData,
    /// Whether a teardown has ended at its deadline.
    unsure: bool,
}

impl<D: Pollable> Connection<D> {
    /// Connects to a listening peer. `attach` is called once the id has a device; it creates the QP, and may fail with
    /// any error. [`QpParts::attach`](cmid_proto::datapath::QpParts::attach) is one.
    ///
    /// # Errors
    /// [`Error::Core`] if the device could not start the request (such as `ENODEV`, `ENETUNREACH`) or `attach` failed
    /// with a [`CreateError`](cmid_proto::datapath::CreateError), [`Error::Attach`] with another error of `attach`,
    /// [`Error::Ended`] if the peer rejected the request or is unreachable, [`Error::TimedOut`], [`Error::Cancelled`].
    /// An error releases all resources of the connection.
    pub fn connect<Q, E: Into<BoxError>>(
        device: D,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<(Self, Q), Error> {
        Connection::observed(device, (), None, peer, options, attach)
    }
}

impl<D: Pollable, O: Observer> Connection<D, O> {
    /// As [`connect`](Connection::connect), with an observer of each step, and with the canceller of all waits; `None`
    /// creates a new one.
    ///
    /// # Errors
    /// As for [`connect`](Connection::connect).
    pub fn observed<Q, E: Into<BoxError>>(
        device: D,
        observer: O,
        canceller: Option<Canceller>,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<(Self, Q), Error> {
        let mut driver = Blocking::observed(device, Limits::SINGLE, or_new(canceller)?, observer);
        let session = Session::connect(driver.drive(), None, peer, options)?;
        Connection::open(driver, session, attach)
    }

    /// Waits for the end of a connect or accept.
    pub(crate) fn open<Q, E: Into<BoxError>>(
        mut driver: Blocking<D, O>,
        session: Session<Q>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<(Self, Q), Error> {
        let Connected { id, attached, param, private_data, .. } = driver.shake_hands(session, attach)?;
        Ok((Connection { driver, id, param, private_data, unsure: false }, attached))
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
        self.driver.view().core().state(self.id).unwrap_or(State::Destroying)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        Device::local_addr(self.driver.view().device(), self.id)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        Device::peer_addr(self.driver.view().device(), self.id)
    }

    /// Returns the id and its driver, for requests that this type does not have. Take events only with
    /// [`next_event`](Connection::next_event), because the connection may have stored events that the driver has
    /// delivered.
    pub fn parts(&mut self) -> (IdKey, &mut Blocking<D, O>) {
        (self.id, &mut self.driver)
    }

    /// Returns the canceller of this connection's waits, for use from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// Replaces the canceller. After a cancel, this allows an orderly end of the connection.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.driver.set_canceller(canceller);
    }

    /// Returns the next event of the connection that no call waited for, such as DISCONNECTED.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if there is none within `timeout`, which may be zero; [`Error::Cancelled`];
    /// [`Error::Wait`]; [`Error::Core`] if the channel cannot be read.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Event, Error> {
        let end = self.driver.drive().within(timeout);
        loop {
            if let Ready::Event(event) = self.driver.ready(self.id, None, end, "next_event")? {
                return Ok(*event);
            }
        }
    }

    /// Waits for the next event of the connection, or until the caller's descriptor `fd` is readable, such as that of
    /// a CQ.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `timeout` passes first; otherwise as [`next_event`](Connection::next_event).
    pub fn wait_for(&mut self, fd: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<Ready, Error> {
        let end = self.driver.drive().within(timeout);
        self.driver.ready(self.id, fd, end, "wait_for")
    }

    /// Waits until the peer has disconnected or the device was removed ([`State::Removed`]). Drops the events before
    /// that. Returns at once if the connection has ended already. After a disconnect of the peer, call
    /// [`disconnect`](Connection::disconnect) or [`teardown`](Connection::teardown).
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `timeout` passes first; otherwise as [`next_event`](Connection::next_event).
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<(), Error> {
        let (end, mut last) = (self.driver.drive().within(timeout), false);
        loop {
            match self.driver.next_event(self.id).map(|event| event.cm()) {
                Some(Some(CmEvent::Disconnected | CmEvent::DeviceRemoval)) => return Ok(()),
                Some(_) => {}
                None if self.state() != State::Connected => return Ok(()),
                None => drop(self.driver.wait_until(WaitFor::EventOf(self.id), None, end, &mut last, "wait_closed")?),
            }
        }
    }

    /// Disconnects, or replies to the peer's disconnect, and waits for the confirmation. Packets of the connection
    /// may still be under way: see [`teardown`](Connection::teardown).
    ///
    /// # Errors
    /// [`Error::Core`] if there is no connection, [`Error::Ended`] if the device is removed, [`Error::TimedOut`] if
    /// the peer does not reply within `timeout`, which may be zero: the own side has disconnected nevertheless.
    /// [`Error::Cancelled`], [`Error::Wait`].
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = self.driver.drive().within(timeout);
        self.driver.finish_cancelled(self.id, deadline)?;
        let deadline = self.not_passed(deadline);
        self.driver.drive().disconnect(self.id, deadline)?;
        self.driver.finish(self.id, RequestKind::Disconnect)
    }

    /// Disconnects, or replies to the peer's disconnect, and waits until no packet of the connection can arrive any
    /// more. Memory that the peer could write to, and the QP's number, may then be used again, whatever the peer
    /// does. This takes the time wait of the path: half a second to two seconds on RoCE, longer if the peer does not
    /// reply.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `timeout`, which may be zero, passes first. Later events do not report the end of the time wait
    /// reliably, so the caller must then destroy the QP. [`Error::Core`] if there was no connection, [`Error::Ended`] if the
    /// device is removed, [`Error::Cancelled`], [`Error::Wait`].
    pub fn teardown(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = self.driver.drive().within(timeout);
        if self.driver.finish_cancelled(self.id, deadline)? == Some(RequestKind::Teardown) {
            self.note_teardown();
        }
        let deadline = self.not_passed(deadline);
        match self.driver.drive().teardown(self.id, deadline) {
            Ok(()) => {
                let ended = self.driver.finish(self.id, RequestKind::Teardown);
                self.note_teardown();
                ended
            }
            Err(cmid_proto::Error::Refused(Refused::Request { reason: RefuseReason::IsOver, .. })) => {
                if self.unsure {
                    Err(Error::TimedOut { during: RequestKind::Teardown.name() })
                } else {
                    Ok(())
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// This deadline, or if it has passed the next nanosecond: a request with a passed deadline is refused, and the peer is to be
    /// told.
    fn not_passed(&mut self, deadline: Time) -> Time {
        deadline.max(self.driver.drive().now().after(Duration::from_nanos(1)))
    }

    /// Records whether the last teardown ended at its deadline.
    fn note_teardown(&mut self) {
        self.unsure |= self.driver.view().core().sync_result(self.id) == Some(Err(Errno::ETIMEDOUT));
    }
}

pub(crate) fn or_new(canceller: Option<Canceller>) -> Result<Canceller, Error> {
    canceller.map_or_else(|| Canceller::new().map_err(Error::Canceller), Ok)
}
