//! One side of a ping as an event-driven program. The mio and epoll variants share this code.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use cmid_proto::datapath::{Attaching, DataPath};
use cmid_proto::handshake::{self, Incoming, Options};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, EventKind, IdKey, Observer, Poller, PortSpace};

use crate::log::Log;
use crate::on_driver::Side;
use crate::session::{Plan, Progress, Session};

/// The time limit of each step of connecting and disconnecting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit of a connection without activity, and the sleep between two looks at it.
pub(crate) const STILL: Duration = Duration::from_secs(60);
pub(crate) const SLICE: Duration = Duration::from_secs(1);

/// The connection parameters of rdma-core's rping.
pub(crate) fn options() -> Options<'static> {
    let param = ConnParam { responder_resources: 1, initiator_depth: 1, ..ConnParam::default() };
    Options { param, timeout: PATIENCE, ..Options::default() }
}

/// A client or a server, with one connection.
#[derive(Debug)]
pub(crate) struct Agent<D: DataPath> {
    plan: Plan,
    log: Log,
    channel: ChannelKey,
    /// The listening id of a server.
    listener: Option<IdKey>,
    connection: Option<handshake::Session<Session<D>>>,
    done: bool,
    /// The time of the last activity.
    active: Instant,
}

impl<D: DataPath> Agent<D> {
    /// Listens, or starts to connect.
    pub(crate) fn begin<P: Poller<D>, O: Observer>(drive: &mut Drive<D, P, O>, side: Side) -> Result<Self> {
        let Side { address, plan, log, listens } = side;
        let (channel, active) = (drive.open_channel(Acks::OnDelivery)?, Instant::now());
        let mut agent = Agent { plan, log, channel, listener: None, connection: None, done: false, active };
        if plan.server {
            let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
            drive.bind(id, address)?;
            drive.listen(id, 0)?;
            agent.listener = Some(id);
            let _ = listens.send(());
            agent.log.note(drive, id, &format!("listens on {address}"));
        } else {
            let connection = handshake::Session::connect(drive, Some(channel), address, &options())?;
            agent.log.note(drive, connection.id(), &format!("resolves {address}"));
            agent.connection = Some(connection);
        }
        Ok(agent)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Fails after the limit without any activity. A server that waits for its client counts as active.
    pub(crate) fn check(&mut self, is_active: bool) -> Result<()> {
        if is_active || self.cq_fd().is_none() {
            self.active = Instant::now();
        }
        ensure!(self.active.elapsed() < STILL, "nothing has happened on the connection for {STILL:?}");
        Ok(())
    }

    /// The descriptor of the connection's CQ, once it is established.
    pub(crate) fn cq_fd(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.as_mut()?.attached()?.cq_fd())
    }

    /// Handles all events. Returns true if there were any.
    pub(crate) fn take_events<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<bool> {
        let mut any = false;
        while !self.done {
            let Some(event) = drive.next_event(self.channel) else { break };
            self.handle(drive, event)?;
            any = true;
        }
        Ok(any)
    }

    fn handle<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>, event: Event) -> Result<()> {
        self.log.note_event(drive, &event);
        let plan = self.plan;
        let attach = |device: &mut D, to: Attaching<'_>| Session::new(device, to, plan);
        let event = match Incoming::new(drive, event) {
            // There is one connection at a time: other requests are rejected. The reject fails if the peer has gone.
            Ok(incoming) if self.connection.is_some() => {
                let _ = incoming.reject(drive, &[]);
                return Ok(());
            }
            Ok(incoming) => {
                let session = handshake::Session::accept(drive, incoming, &options(), attach)?;
                self.log.note(drive, session.id(), "accepts");
                self.connection = Some(session);
                return Ok(());
            }
            Err(event) => event,
        };
        let (kind, status) = (event.kind, event.status);
        let Some(connection) = &mut self.connection else { bail!("{kind} with status {status}") };
        if let Some(connected) = connection.handle(drive, event, attach)? {
            return connected.attached.start();
        }
        match kind {
            EventKind::Cm(CmEvent::RouteResolved) => self.log.note(drive, connection.id(), "connects"),
            EventKind::Cm(CmEvent::Disconnected) => self.end(drive)?,
            EventKind::Cm(CmEvent::DeviceRemoval) | EventKind::DeadlinePassed(_) => {
                bail!("{kind} with status {status}")
            }
            EventKind::Cm(_) | EventKind::Migrated | EventKind::Destroyed | EventKind::Left => {}
        }
        Ok(())
    }

    /// Handles the completions after the CQ's descriptor became readable. After [`Progress::Finished`] a request is
    /// pending, and the driver needs a turn.
    pub(crate) fn run<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<Progress> {
        let Some(connection) = &mut self.connection else { return Ok(Progress::Going) };
        let Some(session) = connection.attached() else { return Ok(Progress::Going) };
        let progress = session.run()?;
        if progress == Progress::Finished {
            let pings = session.pings();
            self.log.note(drive, connection.id(), &format!("has completed {pings} pings and disconnects"));
            connection.disconnect(drive)?;
        }
        Ok(progress)
    }

    /// The end of the connection on both sides: releases the resources.
    fn end<P: Poller<D>, O: Observer>(&mut self, drive: &mut Drive<D, P, O>) -> Result<()> {
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let pings = connection.attached().map_or(0, |session| session.pings());
        connection.cancel(drive)?;
        self.log.ends(connection.id());
        if let Some(listener) = self.listener {
            drive.destroy(listener, drive.within(PATIENCE))?;
            self.log.ends(listener);
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
