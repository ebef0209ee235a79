//! A connection with a QP that cmid does not manage. The calls are those of rdma_connect(3) and rdma_accept(3) for ids
//! without a QP.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::{DataPath, QpState};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, PortSpace};
use cmid_verbs::raw::QpAttr;
use cmid_verbs::{Nic, Verbs};

/// The time limit of each step.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A reliable connected QP outside of cmid.
pub(crate) trait ForeignQp {
    /// Returns its number, which the peer needs.
    fn num(&self) -> u32;

    /// Moves it to the state of the attributes (ibv_modify_qp(3)).
    fn modify(&mut self, attr: &mut QpAttr) -> Result<()>;

    /// Posts the receives for the first messages of the peer. The QP is in INIT.
    fn post_first_receives(&mut self) -> Result<()>;
}

/// An id and its driver.
pub(crate) struct Connection {
    epoll: Epoll<Verbs>,
    channel: ChannelKey,
    id: IdKey,
}

impl Connection {
    /// Connects to `address`. `open` creates the QP on the device to which the route leads.
    pub(crate) fn connect<Q: ForeignQp>(
        device: Verbs,
        address: SocketAddr,
        open: impl FnOnce(Nic) -> Result<Q>,
    ) -> Result<(Self, Q)> {
        let (mut epoll, channel) = driver(device)?;
        let id = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let mut connection = Connection { epoll, channel, id };
        let deadline = connection.epoll.drive().within(LIMIT);
        connection.epoll.drive().resolve_addr(id, None, address, deadline)?;
        connection.expect(CmEvent::AddrResolved)?;
        connection.epoll.drive().resolve_route(id, deadline)?;
        connection.expect(CmEvent::RouteResolved)?;
        let mut qp = open(connection.epoll.drive().device_mut().device_of(id)?)?;
        connection.modify(&mut qp, QpState::INIT)?;
        qp.post_first_receives()?;
        let param = ConnParam { qp_num: qp.num(), ..ConnParam::default() };
        connection.epoll.drive().connect(id, param, &[], deadline)?;
        connection.expect(CmEvent::ConnectResponse)?;
        connection.modify(&mut qp, QpState::RTR)?;
        connection.modify(&mut qp, QpState::RTS)?;
        connection.epoll.drive().establish(id)?;
        Ok((connection, qp))
    }

    /// Accepts one connection on `address`. `open` creates the QP on the device of the request. Sends to `ready` once
    /// it listens.
    pub(crate) fn accept<Q: ForeignQp>(
        device: Verbs,
        address: SocketAddr,
        ready: &Sender<()>,
        open: impl FnOnce(Nic) -> Result<Q>,
    ) -> Result<(Self, Q)> {
        let (mut epoll, channel) = driver(device)?;
        let listener = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
        epoll.drive().bind(listener, address)?;
        epoll.drive().listen(listener, 1)?;
        // The receiver may be gone, which is not an error.
        let _ = ready.send(());
        let request = next(&mut epoll, channel)?;
        ensure!(request.cm() == Some(CmEvent::ConnectRequest), "a request is expected: {request:?}");
        let mut connection = Connection { epoll, channel, id: request.id };
        connection.epoll.drive().destroy_now(listener)?;
        let mut qp = open(connection.epoll.drive().device_mut().device_of(request.id)?)?;
        connection.modify(&mut qp, QpState::INIT)?;
        qp.post_first_receives()?;
        connection.modify(&mut qp, QpState::RTR)?;
        connection.modify(&mut qp, QpState::RTS)?;
        let deadline = connection.epoll.drive().within(LIMIT);
        let param = ConnParam { qp_num: qp.num(), ..ConnParam::default() };
        connection.epoll.drive().accept(request.id, param, &[], deadline)?;
        connection.expect(CmEvent::Established)?;
        Ok((connection, qp))
    }

    /// Disconnects, and waits for the peer's confirmation.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        let deadline = self.epoll.drive().within(LIMIT);
        self.epoll.drive().disconnect(self.id, deadline)?;
        self.expect(CmEvent::Disconnected)?;
        Ok(self.epoll.drive().destroy_now(self.id)?)
    }

    /// Waits until the peer disconnects, and confirms it.
    pub(crate) fn wait_disconnected(mut self) -> Result<()> {
        self.expect(CmEvent::Disconnected)?;
        let deadline = self.epoll.drive().within(LIMIT);
        self.epoll.drive().disconnect(self.id, deadline)?;
        Ok(self.epoll.drive().destroy_now(self.id)?)
    }

    fn modify(&mut self, qp: &mut impl ForeignQp, state: QpState) -> Result<()> {
        let mut attr = self.epoll.drive().device_mut().qp_attr(self.id, state)?;
        qp.modify(&mut attr)
    }

    fn expect(&mut self, kind: CmEvent) -> Result<()> {
        let event = next(&mut self.epoll, self.channel)?;
        ensure!(event.id == self.id && event.cm() == Some(kind), "{kind} is expected: {event:?}");
        Ok(())
    }
}

fn driver(device: Verbs) -> Result<(Epoll<Verbs>, ChannelKey)> {
    let mut epoll = Epoll::new(device, Config::default())?;
    let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
    Ok((epoll, channel))
}

/// Returns the next event of the channel. Fails after [`LIMIT`].
fn next(epoll: &mut Epoll<Verbs>, channel: ChannelKey) -> Result<Event> {
    let start = Instant::now();
    loop {
        if let Some(event) = epoll.drive().next_event(channel) {
            return Ok(event);
        }
        ensure!(start.elapsed() < LIMIT, "no event within {LIMIT:?}; a fault: {:?}", epoll.drive().next_fault());
        epoll.wait(Some(LIMIT))?;
    }
}
