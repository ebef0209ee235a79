//! The passive side.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{Errno, IdKey, Limits, Pollable, PortSpace, PrivateData, ReceivedParam, Time, Verb};

use crate::cancel::Canceller;
use crate::connection::{Connection, Options, canceller};
use crate::driver::{Blocking, wait_error};
use crate::error::Error;

/// Requests that a listener has taken from the kernel and nobody has asked for yet.
const WAITING: u32 = 1024;

/// Takes connection requests on an address.
#[derive(Debug)]
pub struct Listener<D> {
    driver: Blocking<D>,
    id: IdKey,
    /// A request is being waited for, or has come and was not taken.
    asked: bool,
}

impl<D: Pollable> Listener<D> {
    /// Binds to an address and listens. Port 0 asks for a free one, see [`local_addr`](Listener::local_addr).
    ///
    /// # Errors
    /// [`Error::Core`] with `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV`, ...
    pub fn bind(device: D, addr: SocketAddr) -> Result<Self, Error> {
        let limits = Limits { ids: WAITING, channels: 4, events: WAITING, groups: 0 };
        let mut driver = Blocking::new(device, limits, Canceller::new().map_err(Error::Wait)?);
        let id = driver.drive().create_id(None, PortSpace::Tcp)?;
        driver.drive().bind(id, addr)?;
        driver.drive().listen(id, 0)?;
        Ok(Listener { driver, id, asked: false })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// What the device says.
    pub fn local_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::local_addr(self.driver.view().device(), self.id)
    }

    /// What ends the waits of this listener from another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        self.driver.canceller().clone()
    }

    /// Waits for the next connection request.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes within `timeout`; [`Error::Cancelled`]; [`Error::Ended`] when the device goes.
    pub fn accept(&mut self, timeout: Duration) -> Result<Incoming<D>, Error> {
        let during = "accept";
        let end = self.driver.drive().within(timeout);
        // One that was cancelled or took too long is still open: a request that came since is not lost.
        if !self.asked {
            self.driver.drive().get_request(self.id, Time::NEVER)?;
            self.asked = true;
        }
        while self.driver.drive().core().sync_result(self.id).is_none() {
            let left = end.since(self.driver.drive().now());
            self.driver.wait(Some(left)).map_err(|errno| wait_error(errno, during))?;
            if left.is_zero() && self.driver.drive().core().sync_result(self.id).is_none() {
                return Err(Error::TimedOut { during });
            }
        }
        self.asked = false;
        self.driver.finish(self.id, Verb::GetRequest)?;
        let Some(event) = self.driver.drive().core().sync_event(self.id) else {
            return Err(Error::TimedOut { during });
        };
        self.hand_over(event.id, event.param, event.private_data).inspect_err(|_| {
            // Nobody will ever answer it: gone already, or the peer is turned down now.
            let _ = self.driver.drive().destroy(event.id, Time::NEVER);
        })
    }

    /// Gives a new id a driver of its own, so that it can be used from another thread.
    fn hand_over(&mut self, id: IdKey, param: ReceivedParam, private_data: PrivateData) -> Result<Incoming<D>, Error> {
        let device: &D = self.driver.drive().device();
        let sibling = device.sibling();
        let mut driver = Blocking::new(sibling, Limits::SINGLE, Canceller::new().map_err(Error::Wait)?);
        self.driver.drive().migrate(id, None, Time::NEVER)?;
        let loose = self.driver.drive().release(id)?;
        let id = driver.drive().adopt(loose).map_err(|not| not.error)?;
        Ok(Incoming { driver, id, param, private_data })
    }
}

/// A connection request that is not answered yet. Dropping it turns the peer down.
#[derive(Debug)]
pub struct Incoming<D> {
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
    /// What the device says.
    pub fn peer_addr(&self) -> Result<SocketAddr, Errno> {
        cmid_proto::Device::peer_addr(self.driver.view().device(), self.id)
    }

    /// Accepts it and waits until the peer has confirmed. `attach` makes the QP and puts it on the id. The source of the
    /// options has no meaning here.
    ///
    /// # Errors
    /// [`Error::Core`] with `EINVAL` if the peer has gone, [`Error::Ended`], [`Error::TimedOut`], [`Error::Cancelled`].
    pub fn accept<Q>(
        mut self,
        options: &Options<'_>,
        attach: impl FnOnce(&mut D, IdKey) -> Result<Q, Errno>,
    ) -> Result<(Connection<D>, Q), Error> {
        if options.canceller.is_some() {
            self.driver = self.driver.with_canceller(canceller(options)?);
        }
        let qp = self.driver.drive().attach_qp(self.id, |device, id| attach(device, id))?;
        let deadline = self.driver.drive().within(options.timeout);
        self.driver.drive().accept(self.id, options.param, options.private_data, deadline)?;
        self.driver.finish(self.id, Verb::Accept)?;
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
