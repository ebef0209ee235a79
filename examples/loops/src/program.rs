//! The program that the loops run: both sides of a connection on one driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use cmid_epoll::proto::datapath::{Access, Attaching, CreateError, DataPath, QpParts, SendWr, prelude::*};
use cmid_epoll::proto::handshake::{Incoming, Options, Session};
use cmid_epoll::proto::{Acks, ChannelKey, ConnParam, Drive, Poller, PortSpace};

/// The message of the client.
pub const MESSAGE: &[u8] = b"hello";

/// The options of both sides. With 7 retries, soft-RoCE would retry forever (hazard P48).
pub(crate) fn options() -> Options<'static> {
    Options { param: ConnParam { retry_count: 6, ..ConnParam::default() }, ..Options::default() }
}

/// A QP with its CQ, and its memory.
pub type Attached<D> = (QpParts<D>, <D as DataPath>::Mr);

/// Creates a QP with its CQ and its memory, and posts a receive.
///
/// # Errors
/// The errno of the device.
pub fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<Attached<D>, CreateError> {
    let mut parts = device.qp(to).attach()?;
    let mr = parts.pd.register(MESSAGE.to_vec(), Access::LOCAL_WRITE)?;
    parts.qp.post_recv(1, mr.sge(0..MESSAGE.len()))?;
    Ok((parts, mr))
}

/// A loop's function that waits for a descriptor too: that of the CQ of a connection.
pub type Watch<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>;

/// A server and a client.
#[derive(Debug)]
pub struct Program<D: DataPath> {
    channel: ChannelKey,
    client: Session<Attached<D>>,
    server: Option<Session<Attached<D>>>,
    has_arrived: bool,
}

impl<D: DataPath> Program<D> {
    /// Listens at an address, and starts to connect to it.
    ///
    /// # Errors
    /// The error of the device.
    pub fn start<P: Poller<D>>(drive: &mut Drive<D, P>, address: SocketAddr) -> io::Result<Self> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(listener, address)?;
        drive.listen(listener, 4)?;
        let client = Session::connect(drive, Some(channel), address, &options())?;
        Ok(Program { channel, client, server: None, has_arrived: false })
    }

    /// Handles all events and completions: the client sends the message, the server checks it and disconnects. Returns true
    /// when both sides have ended.
    ///
    /// # Errors
    /// A handshake failed, or the connection ended without the message.
    pub fn turn<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, watch: Watch<'_>) -> io::Result<bool> {
        while let Some(event) = drive.next_event(self.channel) {
            if event.id == self.client.id() {
                let Some(connected) = self.client.handle(drive, event, attach)? else { continue };
                let (QpParts { qp, cq, .. }, mr) = &mut connected.attached;
                watch(cq.fd())?;
                qp.post_send(SendWr::send(2, mr.sge(0..MESSAGE.len())))?;
            } else if let Some(server) = &mut self.server {
                let Some(connected) = server.handle(drive, event, attach)? else { continue };
                watch(connected.attached.0.cq.fd())?;
            } else if let Ok(request) = Incoming::new(drive, event) {
                self.server = Some(Session::accept(drive, request, &options(), attach)?);
            }
        }
        while let Some(_completion) = self.client.next_completion(drive)? {}
        let Some(server) = &mut self.server else { return Ok(false) };
        while let Some(completion) = server.next_completion(drive)? {
            let Some((_, mr)) = server.attached().filter(|_| completion.is_success()) else { continue };
            let mut bytes = [0; MESSAGE.len()];
            mr.read(0, &mut bytes)?;
            self.has_arrived = bytes == MESSAGE;
            server.disconnect(drive)?;
        }
        let is_over = self.client.is_over() && server.is_over();
        if is_over && !self.has_arrived { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(is_over) }
    }
}
