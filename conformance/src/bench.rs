//! Two drivers and what a scenario does with them: steps that read as the rows do.

use std::any::Any;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, EventKind, IdKey, PortSpace, Time};

use crate::failure::{ensure, same};
use crate::{Check, Failure, Lab, Net, Subject};

/// How long an expected event may take. Emulated kernels are slow; what is measured is order, not time.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The private data lengths that each message arrives with, whatever was sent (semantics of RoCE over IP).
pub(crate) mod pdl {
    /// CONNECT_REQUEST.
    pub(crate) const REQUEST: usize = 56;
    /// CONNECT_RESPONSE, and ESTABLISHED on the active side.
    pub(crate) const RESPONSE: usize = 196;
    /// REJECTED.
    pub(crate) const REJECTED: usize = 148;
    /// Everything else.
    pub(crate) const NONE: usize = 0;
}

/// A driver with one channel on which most of a scenario happens.
#[derive(Debug)]
pub struct Side<S> {
    /// `client` or `server`.
    pub name: &'static str,
    /// The driver.
    pub driver: S,
    /// Its channel.
    pub channel: ChannelKey,
    /// QPs that are in use.
    qps: Vec<Box<dyn Any>>,
}

impl<S: Subject> Side<S> {
    /// Its driver's requests and events.
    pub fn drive(&mut self) -> &mut Drive<S::Device> {
        self.driver.drive()
    }
}

/// The two sides, and what they agree on.
#[derive(Debug)]
pub struct Bench<'lab, L: Lab> {
    /// Where this runs.
    pub lab: &'lab L,
    /// The active side.
    pub client: Side<L::Subject>,
    /// The passive side.
    pub server: Side<L::Subject>,
    /// Where the server listens.
    pub address: SocketAddr,
    /// The next unused QP number.
    qp_num: u32,
    /// The side whose driver does not run for now, so that its events stay in the kernel.
    pub frozen: Option<Who>,
}

/// Which side of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The active one.
    Client,
    /// The passive one.
    Server,
}

impl<'lab, L: Lab> Bench<'lab, L> {
    /// Two fresh drivers, each with a channel.
    ///
    /// # Errors
    /// What making them failed with.
    pub fn new(lab: &'lab L, acks: Acks) -> Check<Self> {
        let (port, qp_num) = lab.fresh();
        let side = |name| -> Check<Side<L::Subject>> {
            let mut driver = lab.subject()?;
            let channel = driver.drive().open_channel(acks)?;
            Ok(Side { name, driver, channel, qps: Vec::new() })
        };
        let address = SocketAddr::new(lab.net().server, port);
        Ok(Bench { lab, client: side("client")?, server: side("server")?, address, qp_num, frozen: None })
    }

    /// The network.
    pub fn net(&self) -> Net {
        self.lab.net()
    }

    /// A side.
    pub fn side(&mut self, who: Who) -> &mut Side<L::Subject> {
        match who {
            Who::Client => &mut self.client,
            Who::Server => &mut self.server,
        }
    }

    /// The rows' parameters: depths 1, retries 5 and 6, a QP number of its own.
    pub fn param(&mut self) -> ConnParam {
        self.qp_num += 1;
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 5,
            rnr_retry_count: 6,
            srq: false,
            qp_num: self.qp_num,
        }
    }

    /// A server id that listens on the bench's address.
    pub fn listen(&mut self) -> Check<IdKey> {
        let (address, channel) = (self.address, self.server.channel);
        let drive = self.server.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(id, address)?;
        drive.listen(id, 10)?;
        Ok(id)
    }

    /// A client id with its route resolved, bound to the client's address: "C resolved".
    pub fn resolved(&mut self) -> Check<IdKey> {
        let id = self.addr_resolved()?;
        self.client.drive().resolve_route(id, Time::NEVER)?;
        self.expect(Who::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
        Ok(id)
    }

    /// A client id with its address resolved.
    pub fn addr_resolved(&mut self) -> Check<IdKey> {
        let (address, channel, client) = (self.address, self.client.channel, self.net().client);
        let drive = self.client.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let deadline = drive.within(SOON);
        drive.resolve_addr(id, Some(SocketAddr::new(client, 0)), address, deadline)?;
        self.expect(Who::Client, id, CmEvent::AddrResolved, 0, pdl::NONE)?;
        Ok(id)
    }

    /// A client id that has asked to connect, and the server's id for it. No QPs.
    pub fn requested(&mut self) -> Check<(IdKey, IdKey)> {
        let client = self.resolved()?;
        self.connect(client, &[])?;
        let server = self.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
        Ok((client, server))
    }

    /// Both ids of a connection that stands. No QPs.
    pub fn connected(&mut self) -> Check<(IdKey, IdKey)> {
        let (client, server) = self.requested()?;
        self.accept(server, &[])?;
        self.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
        self.client.drive().establish(client)?;
        self.expect(Who::Server, server, CmEvent::Established, 0, pdl::NONE)?;
        Ok((client, server))
    }

    /// Both ids of a connection that stands, with QPs.
    pub fn connected_with_qps(&mut self) -> Check<(IdKey, IdKey)> {
        let client = self.resolved()?;
        self.attach_qp(Who::Client, client)?;
        self.connect(client, &[])?;
        let server = self.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
        self.attach_qp(Who::Server, server)?;
        self.accept(server, &[])?;
        self.expect(Who::Client, client, CmEvent::Established, 0, pdl::RESPONSE)?;
        self.expect(Who::Server, server, CmEvent::Established, 0, pdl::NONE)?;
        Ok((client, server))
    }

    /// `rdma_connect` with the rows' parameters.
    pub fn connect(&mut self, id: IdKey, data: &[u8]) -> Check {
        let param = self.param();
        Ok(self.client.drive().connect(id, param, data, Time::NEVER)?)
    }

    /// `rdma_accept` with the rows' parameters.
    pub fn accept(&mut self, id: IdKey, data: &[u8]) -> Check {
        let param = self.param();
        Ok(self.server.drive().accept(id, param, data, Time::NEVER)?)
    }

    /// Puts a QP on an id.
    pub fn attach_qp(&mut self, who: Who, id: IdKey) -> Check {
        let side = self.side(who);
        let qp = side.driver.attach_qp(id)?;
        side.qps.push(qp);
        Ok(())
    }

    /// Destroys an id, and acks nothing.
    pub fn destroy(&mut self, who: Who, id: IdKey) -> Check {
        if self.side(who).drive().core().has_qp(id) {
            self.side(who).driver.detach_qp(id)?;
        }
        let progress = self.side(who).drive().destroy(id, Time::NEVER)?;
        same("destroy", progress, cmid_proto::Progress::Done)
    }

    /// The next event of a side's channel is this one. Acked, where acks are explicit.
    pub fn expect(&mut self, who: Who, id: IdKey, kind: CmEvent, status: i32, len: usize) -> Check<Event> {
        let channel = self.side(who).channel;
        self.expect_on(who, channel, id, kind, status, len)
    }

    /// The next event of this channel is this one.
    pub fn expect_on(
        &mut self,
        who: Who,
        on: ChannelKey,
        id: IdKey,
        kind: CmEvent,
        status: i32,
        len: usize,
    ) -> Check<Event> {
        let mut event = self.next(who, on, &kind)?;
        let seen = (event.id, event.kind, event.status, event.private_data.len());
        same(self.side(who).name, seen, (id, EventKind::Cm(kind), status, len))?;
        self.ack(who, &mut event)?;
        Ok(event)
    }

    /// The next event of a side's channel is of this kind, with status 0, on whichever id.
    pub fn expect_any(&mut self, who: Who, kind: CmEvent) -> Check<Event> {
        let channel = self.side(who).channel;
        let mut event = self.next(who, channel, &kind)?;
        same(self.side(who).name, (event.kind, event.status), (EventKind::Cm(kind), 0))?;
        self.ack(who, &mut event)?;
        Ok(event)
    }

    /// The next event of a channel, not acked.
    pub fn next(&mut self, who: Who, on: ChannelKey, awaited: &dyn std::fmt::Debug) -> Check<Event> {
        let end = Instant::now() + SOON;
        loop {
            if let Some(event) = self.side(who).drive().next_event(on) {
                return Ok(event);
            }
            let name = self.side(who).name;
            ensure(Instant::now() < end, || format!("{name}: no event in {SOON:?}, expected {awaited:?}"))?;
            self.pump_for(who, Duration::from_millis(5))?;
        }
    }

    /// Gives the receipt of an event back, if it has one.
    pub fn ack(&mut self, who: Who, event: &mut Event) -> Check {
        match event.receipt.take() {
            Some(receipt) => Ok(self.side(who).drive().ack(receipt)?),
            None => Ok(()),
        }
    }

    /// No event comes on a side's channel for a while.
    pub fn quiet(&mut self, who: Who) -> Check {
        let channel = self.side(who).channel;
        let span = self.lab.quiet();
        self.quiet_on(who, channel, span)
    }

    /// No event comes on this channel for this long.
    pub fn quiet_on(&mut self, who: Who, on: ChannelKey, span: Duration) -> Check {
        let end = Instant::now() + span;
        loop {
            if let Some(event) = self.side(who).drive().next_event(on) {
                let name = self.side(who).name;
                return Err(Failure(format!("{name}: {} of {} where nothing was expected", event.kind, event.id)));
            }
            if Instant::now() >= end {
                return Ok(());
            }
            self.pump(Duration::from_millis(20))?;
        }
    }

    /// Waits for an id to be in a state.
    pub fn until(&mut self, who: Who, id: IdKey, state: cmid_proto::State) -> Check {
        let end = Instant::now() + SOON;
        while self.side(who).drive().core().state(id) != Some(state) {
            let seen = self.side(who).drive().core().state(id);
            ensure(Instant::now() < end, || format!("{id} is {seen:?}, expected {state:?}"))?;
            self.pump(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// Lets both drivers run for a moment.
    pub fn pump(&mut self, at_most: Duration) -> Check {
        self.pump_for(Who::Client, at_most)
    }

    /// Lets both drivers run until this side has something, for at most so long.
    fn pump_for(&mut self, who: Who, at_most: Duration) -> Check {
        let other = match who {
            Who::Client => Who::Server,
            Who::Server => Who::Client,
        };
        for (side, at_most) in [(other, Duration::ZERO), (who, at_most), (other, Duration::ZERO)] {
            if self.frozen == Some(side) {
                std::thread::sleep(at_most);
            } else {
                self.side(side).driver.wait(at_most)?;
            }
        }
        Ok(())
    }

    /// Neither driver has anything to complain about, and its core's books are in order.
    pub fn clean(&mut self) -> Check {
        for who in [Who::Client, Who::Server] {
            let side = self.side(who);
            side.drive().core().check();
            if let Some(fault) = side.drive().next_fault() {
                return Err(Failure(format!("{}: fault: {fault}", side.name)));
            }
        }
        Ok(())
    }
}
