//! The active side: connects to the server for the behaviours.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use cmid_blocking::{Blocking, Canceller, Connection, Endpoint, Error, Options};
use cmid_proto::datapath::DataPath;
use cmid_proto::{Errno, IdKey, Limits, PortSpace};

use crate::outcome::classified;
use crate::side::{Connected, Queues, SPAN, Side};
use crate::wire::Role;

/// Opens the device: each connection has a device of its own.
pub(crate) type Open<'a, D> = dyn Fn() -> Result<D> + Sync + 'a;

/// The client of the behaviours: how it opens the device, and the server.
pub(crate) struct Client<'a, D> {
    pub(crate) open: &'a Open<'a, D>,
    /// The local address to connect from.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) server: SocketAddr,
    /// Whether outcomes are printed at once.
    pub(crate) verbose: bool,
}

impl<D: DataPath> Client<'_, D> {
    fn device(&self) -> Result<D> {
        (self.open)()
    }

    /// Connects to the server, as [`Connection::connect`] does. The inner error is that of the connection.
    pub(crate) fn try_connect(
        &self,
        server: SocketAddr,
        role: Role,
        queues: Queues,
    ) -> Result<Result<Connected<D>, Error>> {
        let options =
            Options { source: self.source, private_data: &role.private_data(), timeout: SPAN, ..Options::default() };
        let connected =
            Connection::connect(self.device()?, server, &options, |device, to| Side::<D>::attach(device, to, queues));
        Ok(connected.map(|(connection, side)| Connected { side, connection }))
    }

    /// Connects to the server.
    pub(crate) fn connect(&self, role: Role, queues: Queues) -> Result<Connected<D>> {
        self.try_connect(self.server, role, queues)?.map_err(failure)
    }

    /// Connects to the server in the role that executes commands.
    pub(crate) fn serve(&self) -> Result<Connected<D>> {
        self.connect(Role::Serve, Queues::Plain)
    }

    /// Starts to connect, without waiting for the end.
    pub(crate) fn begin(&self, server: SocketAddr, role: Role) -> Result<Connecting<D>> {
        let canceller = Canceller::new().map_err(|errno| anyhow!("eventfd: {errno}"))?;
        let mut driver = Blocking::new(self.device()?, Limits::SINGLE, canceller);
        let endpoint =
            Endpoint { port_space: PortSpace::Tcp, src: self.source, dst: Some(server), settings: &[], timeout: SPAN };
        let id = driver.create_endpoint(&endpoint).map_err(failure)?;
        let drive = driver.drive();
        let side =
            drive.attach_qp(id, |device, to| Side::<D>::attach(device, to, Queues::Plain)).context("attaching a QP")?;
        let deadline = drive.within(SPAN);
        drive.connect(id, cmid_proto::ConnParam::default(), &role.private_data(), deadline).context("connecting")?;
        Ok(Connecting { driver, id, _side: side })
    }
}

/// A connect that may not have ended, with an id in synchronous mode.
pub(crate) struct Connecting<D: DataPath> {
    pub(crate) driver: Blocking<D>,
    pub(crate) id: IdKey,
    _side: Side<D>,
}

/// The error of a connection, classified by its errno.
pub(crate) fn failure(error: Error) -> anyhow::Error {
    let errno = error.errno();
    if matches!(error, Error::Core(_)) && [Errno::EOPNOTSUPP, Errno::ENOSYS].contains(&errno) {
        return classified("connecting", errno);
    }
    anyhow::Error::new(error)
}

/// Waits until a descriptor is readable, and reads nothing. False after `span`.
pub(crate) fn readable(fd: std::os::fd::BorrowedFd<'_>, span: Duration) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let span = Timespec::try_from(span).context("a time span")?;
    Ok(poll(&mut fds, Some(&span)).context("poll")? == 1)
}
