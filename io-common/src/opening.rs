//! Connects and accepts in synchronous mode, with a driver that waits.

use std::net::SocketAddr;

use cmid_proto::datapath::Attaching;
use cmid_proto::handshake::{BoxError, Connected, DialTo, HandshakeError, Incoming, Session};
use cmid_proto::{Device, Drive, Errno, IdKey, Observer, Poller, PortSpace, PrivateData};

use crate::options::{Options, set};

/// A connect or accept under way, of an id in synchronous mode. `F` is the closure that creates the QP, called once.
#[derive(Debug)]
pub struct Opening<Q, F> {
    session: Session<Q>,
    attach: Option<F>,
}

impl<Q, F> Opening<Q, F> {
    /// Creates an id and begins to connect. The deadline counts from the time of the drive.
    ///
    /// # Errors
    /// A request was refused or failed.
    pub fn connect<D: Device, P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        peer: SocketAddr,
        options: &Options<'_>,
        attach: F,
    ) -> Result<Self, HandshakeError> {
        let id = drive.create_id(None, PortSpace::Tcp)?;
        set_all(drive, id, options)?;
        let private_data = PrivateData::copy_of(options.private_data);
        let to = DialTo { source: options.source, param: options.param, private_data, ..DialTo::new(peer) };
        Ok(Opening { session: Session::connect(drive, id, &to, options.timeout)?, attach: Some(attach) })
    }

    /// Accepts a request. The deadline counts from the time of the drive.
    ///
    /// # Errors
    /// As [`Session::accept`], or an option was refused.
    pub fn accept<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        drive: &mut Drive<D, P, O>,
        incoming: Incoming,
        options: &Options<'_>,
        attach: F,
    ) -> Result<Self, HandshakeError>
    where
        F: FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    {
        set_all(drive, incoming.id(), options)?;
        let session = Session::accept(drive, incoming, options.param, options.private_data, options.timeout, attach)?;
        Ok(Opening { session, attach: None })
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.session.id()
    }

    /// Returns true once the connection is established. Call it after the end of each request of the id.
    ///
    /// # Errors
    /// As [`Session::poll`]. The id is destroyed.
    pub fn poll<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<bool, HandshakeError>
    where
        F: FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    {
        let attach = &mut self.attach;
        let opened = self.session.poll(drive, |device, attaching| match attach.take() {
            Some(attach) => attach(device, attaching).map_err(Into::into),
            // A handshake calls it once.
            None => Err(Errno::EINVAL.into()),
        });
        opened.map(|opened| opened.is_some())
    }

    /// Returns the connection that is established.
    ///
    /// # Errors
    /// `ENOTCONN` before.
    pub fn into_connected(self) -> Result<Connected<Q>, Errno> {
        self.session.into_connected().ok_or(Errno::ENOTCONN)
    }
}

fn set_all<D: Device, P: Poller<D>, O: Observer>(
    drive: &mut Drive<D, P, O>,
    id: IdKey,
    options: &Options<'_>,
) -> Result<(), HandshakeError> {
    set(drive, id, options.settings)?;
    Ok(options.ece.map_or(Ok(()), |ece| drive.set_ece(id, ece))?)
}
