//! The passive side.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Attaching, CmEvent, CmOption, Errno, Event, IdKey, Limits, Pollable, PortSpace, PrivateData, ReceivedParam,
    Request, RequestKind, Time,
};

use crate::cancel::Canceller;
use crate::connection::{Connection, Options, canceller};
use crate::driver::{Blocking, Ready};
use crate::endpoint::{Endpoint, set};
use crate::error::Error;

/// Requests that a listener has read from the kernel and the application has not taken yet.
const WAITING: u32 = 1024;

/// How to listen.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions<'a> {
    /// Options of the id, such as the reuse of its address: set one after the other before it is bound.
    pub settings: &'a [CmOption],
    /// Requests that the kernel holds before it turns peers down; 0 or too many mean its maximum.
    pub backlog: i32,
    /// Whose [`cancel`](Canceller::cancel) ends every wait of the listener; `None`: a new one's.
    pub canceller: Option<Canceller>,
}

/// Accepts connection requests on an address. Dropping it rejects the requests that are not accepted.
#[derive(Debug)]
pub struct Listener<D: Pollable> {
    driver: Blocking<D>,
    id: IdKey,
}

impl<D: Pollable> Listener<D> {
    /// Binds to an address and listens. Port 0 selects a free one, see [`local_addr`](Listener::local_addr).
    ///
    /// # Errors
    /// [`Error::Core`] with `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV`, ...
    pub fn bind(device: D, addr: SocketAddr) -> Result<Self, Error> {
        Self::bind_with(device, addr, &ListenOptions::default())
    }

    /// As [`bind`](Listener::bind), with options.
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn bind_with(device: D, addr: SocketAddr, options: &ListenOptions<'_>) -> Result<Self, Error> {
        // The listener's channel, and that of a request on its way to a driver of its own.
        let limits = Limits { ids: WAITING, channels: 2, events: WAITING, groups: 0, ..Limits::SINGLE };
        let mut driver = Blocking::new(device, limits, canceller(options.canceller.as_ref())?);
        let id = driver.create_endpoint(&Endpoint {
            port_space: PortSpace::Tcp,
            src: Some(addr),
            dst: None,
            settings: options.settings,
            // A bind waits for nothing.
            timeout: Duration::ZERO,
        })?;
        driver.drive().listen(id, options.backlog)?;
        Ok(Listener { driver, id })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// What ends the waits of this listener from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// Another canceller from now on; after one that has cancelled, the listener can be used again.
    pub fn set_canceller(&mut self, canceller: Canceller) {
        self.driver.set_canceller(canceller);
    }

    /// Waits for the next connection request. After a wait that was cancelled or took too long nothing is lost: a
    /// request that came since is the next one.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes within `timeout`, which may be zero; [`Error::Cancelled`]; [`Error::Ended`]
    /// when the device goes, and from then on [`Error::Core`] (a listener on a wildcard address has no device and
    /// hears of none). [`Error::Core`] or [`Error::Wait`] also if the new id cannot have a driver of its own
    /// (`EMFILE`); the peer is then turned down.
    pub fn accept(&mut self, timeout: Duration) -> Result<Incoming<D>, Error> {
        let end = self.driver.drive().within(timeout);
        loop {
            let event = match self.driver.next_event(self.id) {
                Some(event) => event,
                None => {
                    let drive = self.driver.drive();
                    drive.core().would_refuse(drive.now(), self.id, &Request::GetRequest, Time::NEVER)?;
                    match self.driver.ready(self.id, None, end, "accept")? {
                        Ready::Event(event) => *event,
                        Ready::Descriptor => continue,
                    }
                }
            };
            match event.cm() {
                Some(CmEvent::ConnectRequest) => return self.take_in(event),
                Some(CmEvent::DeviceRemoval) => {
                    return Err(Error::Ended { during: "accept", errno: Errno::ENODEV, event: Box::new(event) });
                }
                // A change of the link address does not affect a listener.
                Some(_) | None => {}
            }
        }
    }

    fn take_in(&mut self, request: Event) -> Result<Incoming<D>, Error> {
        let (driver, id) = self.hand_over(request.id).inspect_err(|_| {
            // Nobody will ever answer it: gone already, or the peer is turned down now.
            let _ = self.driver.drive().destroy(request.id, Time::NEVER);
        })?;
        Ok(Incoming { driver, id, param: request.param, private_data: request.private_data })
    }

    /// Gives a new id a driver of its own, so that it can be used from another thread.
    fn hand_over(&mut self, id: IdKey) -> Result<(Blocking<D>, IdKey), Error> {
        let device: &D = self.driver.drive().device();
        let sibling = device.sibling();
        let mut driver = Blocking::new(sibling, Limits::SINGLE, canceller(None)?);
        self.driver.drive().migrate(id, None, Time::NEVER)?;
        let released_id = self.driver.drive().release(id)?;
        let id = driver.drive().adopt(released_id).map_err(|not| not.error)?;
        Ok((driver, id))
    }
}

/// A connection request that is not answered yet. Dropping it turns the peer down.
#[derive(Debug)]
pub struct Incoming<D: Pollable> {
    driver: Blocking<D>,
    id: IdKey,
    param: ReceivedParam,
    private_data: PrivateData,
}

impl<D: Pollable> Incoming<D> {
    /// The peer's parameters, mirrored.
    #[must_use]
    pub fn param(&self) -> ReceivedParam {
        self.param
    }

    /// The peer's private data, padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::peer_addr(self.driver.view().device(), self.id)
    }

    /// The local address that the peer connected to.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// The id and its driver, for what this face does not show: what the peer told of enhanced connection
    /// establishment, a rejection because of it.
    pub fn parts(&mut self) -> (IdKey, &mut Blocking<D>) {
        (self.id, &mut self.driver)
    }

    /// Accepts it and waits until the peer has confirmed. `attach` makes the QP and puts it on the id. The source of
    /// the options has no meaning here.
    ///
    /// # Errors
    /// [`Error::Core`] with `EINVAL` if the peer has gone, or if `attach` failed, [`Error::Ended`],
    /// [`Error::TimedOut`], [`Error::Cancelled`]. Nothing is left of it then.
    pub fn accept<Q>(
        mut self,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, Errno>,
    ) -> Result<(Connection<D>, Q), Error> {
        if let Some(canceller) = &options.canceller {
            self.driver.set_canceller(canceller.clone());
        }
        set(&mut self.driver, self.id, options.settings)?;
        if let Some(ece) = options.ece {
            self.driver.drive().set_ece(self.id, ece)?;
        }
        let qp = self.driver.drive().attach_qp(self.id, |device, attaching| attach(device, attaching))?;
        let deadline = self.driver.drive().within(options.timeout);
        self.driver.drive().accept(self.id, options.param, options.private_data, deadline)?;
        self.driver.finish(self.id, RequestKind::Accept)?;
        Ok((Connection::established(self.driver, self.id), qp))
    }

    /// Turns it down, with a reason of at most 148 bytes.
    ///
    /// # Errors
    /// [`Error::Core`], refused if the reason is too long, with `EINVAL` if the peer has gone.
    pub fn reject(mut self, reason: &[u8]) -> Result<(), Error> {
        Ok(self.driver.drive().reject(self.id, reason)?)
    }
}
