//! Two drivers and what a scenario does with them: steps that read as the rows do.

mod data;
mod expect;

use std::fmt;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::time::Duration;

use cmid_proto::{Acks, Call, ChannelKey, CmEvent, ConnParam, Device, Drive, Error, IdKey, Outcome, PortSpace, Time};

use crate::failure::same;
use crate::{Check, Failure, Lab, Net, QpState, Subject, TestDevice, TestQp, Under};

pub use data::{DeviceOf, End, EndOf, MrOf, PdOf, remote};
pub use expect::Acked;

/// How long an expected event may take. Emulated kernels are slow; what is measured is order, not time.
pub const SOON: Duration = Duration::from_secs(10);

/// The private data lengths that each message arrives with, whatever was sent (semantics of RoCE over IP).
pub mod pdl {
    /// CONNECT_REQUEST.
    pub const REQUEST: usize = 56;
    /// CONNECT_RESPONSE, and ESTABLISHED on the active side.
    pub const RESPONSE: usize = 196;
    /// REJECTED.
    pub const REJECTED: usize = 148;
    /// CONNECT_REQUEST of a lookup (datagrams).
    pub const LOOKUP: usize = 180;
    /// The answer to a lookup: ESTABLISHED or UNREACHABLE.
    pub const ANSWER: usize = 136;
    /// Everything else.
    pub const NONE: usize = 0;
}

/// A driver with one channel on which most of a scenario happens.
pub struct Side<S: Subject<Device: DerefMut<Target: TestDevice>>> {
    /// `client` or `server`.
    pub name: &'static str,
    /// The driver.
    pub driver: S,
    /// Its channel.
    pub channel: ChannelKey,
    /// QPs that are in use, and on which id.
    qps: Vec<(IdKey, <Under<S> as TestDevice>::Qp)>,
    acks: Acks,
}

impl<S: Subject<Device: DerefMut<Target: TestDevice>>> fmt::Debug for Side<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("name", &self.name).field("qps", &self.qps).finish_non_exhaustive()
    }
}

impl<S: Subject<Device: DerefMut<Target: TestDevice>>> Side<S> {
    /// Its driver's requests and events.
    pub fn drive(&mut self) -> &mut Drive<S::Device> {
        self.driver.drive()
    }

    /// A call on the bare device, past the core: what the kernel says to what the core refuses.
    ///
    /// # Errors
    /// The device's.
    pub fn bare(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.drive().device_mut().call(call, private_data)
    }

    /// Puts a QP with a PD of its own on an id. It is kept until the bench goes.
    ///
    /// # Errors
    /// What the core or the device says.
    pub fn attach_qp(&mut self, id: IdKey) -> Result<(), Error> {
        let qp = self.drive().attach_qp(id, |device, attaching| {
            let pd = device.make_pd(id)?;
            device.make_qp(attaching, &pd)
        })?;
        self.qps.push((id, qp));
        Ok(())
    }

    /// Takes the QP off an id.
    ///
    /// # Errors
    /// What the core or the device says.
    pub fn detach_qp(&mut self, id: IdKey) -> Result<(), Error> {
        self.drive().detach_qp(id, |device, id| device.unmake_qp(id))
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
    /// How long an expected event may take.
    patience: Duration,
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
            Ok(Side { name, driver, channel, qps: Vec::new(), acks })
        };
        let address = SocketAddr::new(lab.net().server, port);
        let (client, server) = (side("client")?, side("server")?);
        Ok(Bench { lab, client, server, address, qp_num, frozen: None, patience: SOON })
    }

    /// From now on an expected event may take this long.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// A side's driver goes away with all that is on it, as when its process ends, and another takes its place.
    pub fn restart(&mut self, who: Who) -> Check {
        let mut driver = self.lab.subject()?;
        let side = self.side(who);
        side.channel = driver.drive().open_channel(side.acks)?;
        side.qps.clear();
        side.driver = driver;
        Ok(())
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
        self.listen_in(PortSpace::Tcp, 10)
    }

    /// The same with another backlog than the rows', or for another service.
    pub fn listen_in(&mut self, port_space: PortSpace, backlog: i32) -> Check<IdKey> {
        let (address, channel) = (self.address, self.server.channel);
        let drive = self.server.drive();
        let id = drive.create_id(Some(channel), port_space)?;
        drive.bind(id, address)?;
        drive.listen(id, backlog)?;
        Ok(id)
    }

    /// A client id with its route resolved, bound to the client's address: "C resolved".
    pub fn resolved(&mut self) -> Check<IdKey> {
        self.resolved_in(PortSpace::Tcp, self.address)
    }

    /// The same for another service, or towards another address.
    pub fn resolved_in(&mut self, port_space: PortSpace, there: SocketAddr) -> Check<IdKey> {
        let id = self.addr_resolved_in(port_space, there)?;
        self.client.drive().resolve_route(id, Time::NEVER)?;
        self.expect(Who::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
        Ok(id)
    }

    /// A client id with its address resolved.
    pub fn addr_resolved(&mut self) -> Check<IdKey> {
        self.addr_resolved_in(PortSpace::Tcp, self.address)
    }

    /// The same for another service, or towards another address.
    pub fn addr_resolved_in(&mut self, port_space: PortSpace, there: SocketAddr) -> Check<IdKey> {
        let (channel, client) = (self.client.channel, self.net().client);
        let drive = self.client.drive();
        let id = drive.create_id(Some(channel), port_space)?;
        let deadline = drive.within(SOON);
        drive.resolve_addr(id, Some(SocketAddr::new(client, 0)), there, deadline)?;
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
        Ok(self.side(who).attach_qp(id)?)
    }

    /// The QP of an id is in this state.
    pub fn qp_is(&mut self, who: Who, id: IdKey, expected: QpState) -> Check {
        let side = self.side(who);
        let (_, qp) = side.qps.iter().rfind(|(of, _)| *of == id).ok_or_else(|| Failure(format!("{id} has no QP")))?;
        same(&format!("the QP of the {}'s {id}", side.name), qp.state()?, expected)
    }

    /// Destroys an id, and acks nothing.
    pub fn destroy(&mut self, who: Who, id: IdKey) -> Check {
        if self.side(who).drive().core().has_qp(id) {
            self.side(who).detach_qp(id)?;
        }
        let progress = self.side(who).drive().destroy(id, Time::NEVER)?;
        same("destroy", progress, cmid_proto::Progress::Done)
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
                self.side(side).driver.wait(Some(at_most))?;
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
                side.driver.noticed(fault);
                return Err(Failure(format!("{}: fault: {fault}", side.name)));
            }
        }
        Ok(())
    }
}
