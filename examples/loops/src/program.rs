//! The program that the loops run: both sides of a connection on one driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cmid_blocking::{Connection, Options};
use cmid_epoll::proto::datapath::Attaching;
use cmid_epoll::proto::datapath::{Caps, CreateError, DataPath, SendWr, prelude::*};
use cmid_epoll::proto::handshake::{Dial, DialTo, Incoming, Serve};
use cmid_epoll::proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, IdKey, Poller, PortSpace, Time};

/// The message of the client.
pub const MESSAGE: &[u8] = b"hello";

/// The limit of each step.
const LIMIT: Duration = Duration::from_secs(10);

/// The parameters of both sides: within the limits of every device.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    // With 7, soft-RoCE would retry forever (hazard P48).
    retry_count: 6,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 0,
};

/// A QP with its CQ and its memory.
pub type Attached<D> = (<D as DataPath>::Qp, <D as DataPath>::Cq, <D as DataPath>::Mr);

/// Creates a QP with its CQ and its memory, and posts a receive.
///
/// # Errors
/// The errno of the device.
pub fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<Attached<D>, CreateError> {
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 32)?);
    let access = cmid_epoll::proto::memory::Access::LOCAL_WRITE;
    let mr = pd.register(MESSAGE.to_vec(), access).map_err(|(_, error)| error.errno())?;
    let mut qp = device.create_qp(to, &pd, &cq, &cq, Caps::default())?;
    qp.post_recv(1, mr.sge(0..MESSAGE.len()))?;
    cq.arm()?;
    Ok((qp, cq, mr))
}

/// A server and a client.
pub struct Program<D: DataPath> {
    channel: ChannelKey,
    listener: IdKey,
    dial: Dial<Attached<D>>,
    serve: Option<Serve<Attached<D>>>,
    /// The two ends of the connection.
    client: Option<(IdKey, Attached<D>)>,
    server: Option<(IdKey, Attached<D>)>,
    received: bool,
    ended: usize,
}

impl<D: DataPath> std::fmt::Debug for Program<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("received", &self.received).field("ended", &self.ended).finish_non_exhaustive()
    }
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
        let to = DialTo { param: PARAM, ..DialTo::new(address) };
        let deadline = drive.within(LIMIT);
        let dial = Dial::start(drive, Some(channel), &to, deadline)?;
        Ok(Program { channel, listener, dial, serve: None, client: None, server: None, received: false, ended: 0 })
    }

    /// Whether the message has arrived and both sides have disconnected.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ended == 2
    }

    /// The descriptor of the server's CQ, once the server is connected.
    #[must_use]
    pub fn cq_fd(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(|(_, (_, cq, _))| cq.fd())
    }

    /// Handles all events.
    ///
    /// # Errors
    /// A handshake failed, or the connection ended without the message.
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> io::Result<()> {
        while let Some(event) = drive.next_event(self.channel) {
            match Incoming::new(drive, event) {
                Ok(incoming) => {
                    let deadline = drive.within(LIMIT);
                    self.serve = Some(
                        incoming.accept(drive, PARAM, &[], deadline, |drive, id| drive.attach_qp(id, attach::<D>))?,
                    );
                }
                Err(event) => self.take_event(drive, event)?,
            }
        }
        Ok(())
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: Event) -> io::Result<()> {
        let id = event.id;
        if id == self.dial.id() && !self.dial.is_over() {
            let connected = self.dial.handle(drive, event, |drive, id| drive.attach_qp(id, attach::<D>))?;
            if let Some(connected) = connected {
                let (mut qp, cq, mr) = connected.attached;
                qp.post_send(SendWr::send(2, mr.sge(0..MESSAGE.len())))?;
                self.client = Some((id, (qp, cq, mr)));
            }
            return Ok(());
        }
        if let Some(serve) = self.serve.as_mut().filter(|serve| serve.id() == id && !serve.is_over()) {
            if let Some(connected) = serve.handle(drive, event)? {
                self.server = Some((id, connected.attached));
                // The message may have arrived before the event.
                self.take_completions(drive)?;
            }
            return Ok(());
        }
        let event = event.into_result()?;
        if event.cm() == Some(CmEvent::Disconnected) {
            if self.client.as_ref().is_some_and(|(client, _)| *client == id) {
                drive.disconnect(id, Time::NEVER)?;
            }
            drive.detach_qp(id, |device, id| device.destroy_qp(id))?;
            let _done = drive.destroy(id, Time::NEVER)?;
            self.ended += 1;
        }
        if self.is_done() {
            let _done = drive.destroy(self.listener, Time::NEVER)?;
        }
        Ok(())
    }

    /// Handles the completions of the server: checks the message, and disconnects.
    ///
    /// # Errors
    /// The receive failed, or the message has other bytes.
    pub fn take_completions<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> io::Result<()> {
        let Some((id, (_, cq, mr))) = &mut self.server else { return Ok(()) };
        cq.take_notifications()?;
        cq.arm()?;
        while let Some(done) = cq.poll_one()? {
            let mut bytes = [0; MESSAGE.len()];
            mr.read(0, &mut bytes)?;
            if !done.is_success() || bytes != MESSAGE {
                return Err(io::Error::other(format!("a receive ended with {}: {bytes:?}", done.status)));
            }
            self.received = true;
            let deadline = drive.within(LIMIT);
            drive.disconnect(*id, deadline)?;
        }
        Ok(())
    }
}

/// The number of connections of [`clients`].
pub(crate) const CLIENTS: usize = 8;

/// Connects and disconnects, one connection after the other.
pub(crate) fn clients<D: DataPath>(device: &D, address: SocketAddr) -> io::Result<()> {
    let options = Options { param: PARAM, timeout: LIMIT, ..Options::default() };
    for _ in 0..CLIENTS {
        let (mut connection, _attached) = Connection::connect(device.sibling(), address, &options, attach::<D>)?;
        connection.disconnect(LIMIT)?;
    }
    Ok(())
}
