//! One side of a ping as an event-driven program. The mio and epoll variants share this code.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use cmid_proto::datapath::DataPath;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, IdKey, Observer, Poller, PortSpace};

use crate::log::Log;
use crate::session::{Plan, Progress, Session};

/// The time limit of each step of connecting and disconnecting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The connection parameters of rdma-core's rping.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 0,
};

/// A client or a server, with one connection.
#[derive(Debug)]
pub(crate) struct Agent<D: DataPath> {
    plan: Plan,
    log: Log,
    channel: ChannelKey,
    /// The listening id of a server.
    listener: Option<IdKey>,
    /// The id of the connection.
    id: Option<IdKey>,
    session: Option<Session<D>>,
    done: bool,
}

impl<D: DataPath> Agent<D> {
    /// Listens, or starts to connect.
    pub(crate) fn begin<P: Poller<D>, O: Observer>(
        drive: &mut Drive<D, P, O>,
        address: SocketAddr,
        plan: Plan,
        log: Log,
        listens: &Sender<()>,
    ) -> Result<Self> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let mut agent = Agent { plan, log, channel, listener: None, id: None, session: None, done: false };
        if plan.server {
            drive.bind(id, address)?;
            drive.listen(id, 0)?;
            agent.listener = Some(id);
            // The receiver may be gone, which is not an error.
            let _ = listens.send(());
            agent.log.note(drive, id, &format!("listens on {address}"));
        } else {
            drive.resolve_addr(id, None, address, drive.within(PATIENCE))?;
            agent.id = Some(id);
            agent.log.note(drive, id, &format!("resolves {address}"));
        }
        Ok(agent)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn pings(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::pings)
    }

    /// The descriptor of the connection's CQ, if it exists.
    pub(crate) fn cq_fd(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(Session::cq_fd)
    }

    /// Handles all events. Returns true if there were any.
    pub(crate) fn take_events<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<bool> {
        let mut any = false;
        while !self.done {
            let Some(event) = drive.next_event(self.channel) else { break };
            self.handle(drive, &event)?;
            any = true;
        }
        Ok(any)
    }

    fn handle<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>, event: &Event) -> Result<()> {
        let id = event.id;
        self.log.note_event(drive, event);
        let Some(kind) = event.cm() else { bail!("{}", event.kind) };
        match kind {
            CmEvent::AddrResolved => drive.resolve_route(id, drive.within(PATIENCE))?,
            CmEvent::RouteResolved => {
                self.attach(drive, id)?;
                drive.connect(id, PARAM, &[], drive.within(PATIENCE))?;
                self.log.note(drive, id, "connects");
            }
            // There is one connection at a time: other requests are rejected.
            CmEvent::ConnectRequest if self.id.is_some() => {
                // The reject fails if the peer has gone. The id is destroyed in both cases.
                let _ = drive.reject(id, &[]);
                drive.destroy(id, drive.within(PATIENCE))?;
            }
            CmEvent::ConnectRequest => {
                self.id = Some(id);
                self.attach(drive, id)?;
                drive.accept(id, PARAM, &[], drive.within(PATIENCE))?;
                self.log.note(drive, id, "accepts");
            }
            CmEvent::Established => {
                if let Some(session) = &mut self.session {
                    session.start()?;
                }
            }
            CmEvent::Disconnected => self.end(drive, id)?,
            // These events do not end the connection.
            CmEvent::AddrChange | CmEvent::TimewaitExit => {}
            CmEvent::AddrError
            | CmEvent::RouteError
            | CmEvent::ConnectResponse
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Rejected
            | CmEvent::DeviceRemoval
            | CmEvent::MulticastJoin
            | CmEvent::MulticastError
            | CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => bail!("{} with status {}", event.kind, event.status),
        }
        Ok(())
    }

    /// Handles the completions after the CQ's descriptor became readable. After [`Progress::Finished`] a request is
    /// pending, and the driver needs a turn.
    pub(crate) fn run<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<Progress> {
        let (Some(session), Some(id)) = (&mut self.session, self.id) else { return Ok(Progress::Going) };
        let progress = session.run()?;
        if progress == Progress::Finished {
            let pings = session.pings();
            self.log.note(drive, id, &format!("has completed {pings} pings and disconnects"));
            drive.disconnect(id, drive.within(PATIENCE))?;
        }
        Ok(progress)
    }

    fn attach<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>, id: IdKey) -> Result<()> {
        let plan = self.plan;
        self.session = Some(drive.attach_qp(id, |device, attaching| Session::<D>::new(device, attaching, plan))?);
        Ok(())
    }

    /// Handles the end of the connection: replies if the peer disconnected first, and releases the resources.
    fn end<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>, id: IdKey) -> Result<()> {
        let pings = self.pings();
        drive.disconnect(id, drive.within(PATIENCE))?;
        drive.detach_qp(id, |device, id| device.destroy_qp(id))?;
        self.session = None;
        for id in [Some(id), self.listener].into_iter().flatten() {
            drive.destroy(id, drive.within(PATIENCE))?;
            self.log.ends(id);
        }
        // Drops the undelivered events, so that the channel can be closed.
        while drive.next_event(self.channel).is_some() {}
        drive.close_channel(self.channel)?;
        self.done = true;
        if !self.plan.server && pings != self.plan.count {
            return Err(anyhow!("the server ended the connection after {pings} of {} pings", self.plan.count));
        }
        Ok(())
    }
}
