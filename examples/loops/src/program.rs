//! The program that the loops run: both sides of a connection on one driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_epoll::proto::datapath::{Access, Attaching, CreateError, DataPath, QpParts, SendWr, prelude::*};
use cmid_epoll::proto::handshake::{DialTo, Incoming, Session};
use cmid_epoll::proto::{Acks, ChannelKey, ConnParam, Drive, IdKey, Poller, PortSpace};

/// The message of the client.
pub const MESSAGE: &[u8] = b"hello";

/// The limit of each step.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// The parameters of both sides. With 7 retries, soft-RoCE would retry forever (hazard P48).
pub(crate) fn param() -> ConnParam {
    ConnParam { responder_resources: 1, initiator_depth: 1, retry_count: 6, ..ConnParam::default() }
}

/// A QP with its CQ, and its memory.
pub type Attached<D> = (QpParts<D>, <D as DataPath>::Mr);

/// Creates a QP with its CQ and its memory, and posts a receive.
///
/// # Errors
/// The errno of the device.
pub fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<Attached<D>, CreateError> {
    let mut parts = device.qp(to).attach()?;
    let mr = parts.pd.register(MESSAGE.to_vec(), Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
    parts.qp.post_recv(1, mr.sge(0..MESSAGE.len()))?;
    Ok((parts, mr))
}

/// A server and a client.
#[derive(Debug)]
pub struct Program<D: DataPath> {
    channel: ChannelKey,
    client: IdKey,
    sessions: Vec<Session<Attached<D>>>,
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
        let client = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let to = DialTo { param: param(), ..DialTo::new(address) };
        let sessions = vec![Session::connect(drive, client, &to, LIMIT)?];
        Ok(Program { channel, client, sessions, has_arrived: false })
    }

    /// Handles all events and completions: the client sends the message, the server checks it and disconnects. `watch` is
    /// called with the descriptor of each CQ: the loop then waits for it too. Returns true when both sides have ended.
    ///
    /// # Errors
    /// A handshake failed, or the connection ended without the message.
    pub fn turn<P: Poller<D>>(
        &mut self,
        drive: &mut Drive<D, P>,
        mut watch: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        while let Some(event) = drive.next_event(self.channel) {
            let event = match Incoming::new(drive, event) {
                Ok(request) => {
                    self.sessions.push(Session::accept(drive, request, param(), &[], LIMIT, attach::<D>)?);
                    continue;
                }
                Err(event) => event,
            };
            let Some(session) = self.sessions.iter_mut().find(|it| it.id() == event.id) else { continue };
            let Some(connected) = session.handle(drive, event, attach::<D>)? else { continue };
            let (QpParts { qp, cq, .. }, mr) = &mut connected.attached;
            watch(cq.fd())?;
            if connected.id == self.client {
                qp.post_send(SendWr::send(2, mr.sge(0..MESSAGE.len())))?;
            }
        }
        for session in &mut self.sessions {
            while let Some(done) = session.next_completion(drive)? {
                let Some((_, mr)) = session.attached().filter(|_| done.wr_id == 1 && done.is_success()) else {
                    continue;
                };
                let mut bytes = [0; MESSAGE.len()];
                mr.read(0, &mut bytes)?;
                self.has_arrived = bytes == MESSAGE;
                session.disconnect(drive)?;
            }
        }
        let is_over = self.sessions.len() == 2 && self.sessions.iter().all(Session::is_over);
        if is_over && !self.has_arrived { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(is_over) }
    }
}
