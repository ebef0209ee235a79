//! Connects a QP of the crate sideway under cmid's connection management: sideway creates the QP, moves it and posts to
//! it; cmid resolves, connects and disconnects, and computes the attributes of each move. The peer is the C program's
//! server, which sends each message back.

mod path;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::QpState;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, IdKey, PortSpace};
use cmid_verbs::{Backend, Verbs};

use crate::path::Path;

/// The time limit of each step.
const LIMIT: Duration = Duration::from_secs(30);
/// The number of messages.
const MESSAGES: u32 = 100;
/// The private data of a request whose messages are sent back (`c/versus.h`).
const HELLO: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 0,
};

struct Connection {
    epoll: Epoll<Verbs>,
    channel: ChannelKey,
    id: IdKey,
}

impl Connection {
    fn open(to: SocketAddr, backend: Backend, path: &mut Path) -> Result<Self> {
        let mut epoll = Epoll::new(Verbs::open_with(backend)?, Config::default())?;
        let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
        let id = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let mut connection = Connection { epoll, channel, id };
        let deadline = connection.epoll.drive().within(LIMIT);
        connection.epoll.drive().resolve_addr(id, None, to, deadline)?;
        connection.expect(CmEvent::AddrResolved)?;
        connection.epoll.drive().resolve_route(id, deadline)?;
        connection.expect(CmEvent::RouteResolved)?;
        connection.modify(path, QpState::INIT)?;
        path.post_recv(0)?;
        let param = ConnParam { qp_num: path.qp_num(), ..PARAM };
        connection.epoll.drive().connect(id, param, &HELLO, deadline)?;
        connection.expect(CmEvent::ConnectResponse)?;
        connection.modify(path, QpState::RTR)?;
        connection.modify(path, QpState::RTS)?;
        connection.epoll.drive().establish(id)?;
        Ok(connection)
    }

    fn close(mut self) -> Result<()> {
        let deadline = self.epoll.drive().within(LIMIT);
        self.epoll.drive().disconnect(self.id, deadline)?;
        self.expect(CmEvent::Disconnected)?;
        Ok(self.epoll.drive().destroy_now(self.id)?)
    }

    fn modify(&mut self, path: &mut Path, state: QpState) -> Result<()> {
        let mut attr = self.epoll.drive().device_mut().qp_attr(self.id, state)?;
        path.modify(&mut attr).with_context(|| format!("to {state}"))
    }

    fn expect(&mut self, kind: CmEvent) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.epoll.drive().next_event(self.channel) {
                ensure!(event.id == self.id && event.cm() == Some(kind), "{kind} is expected: {event:?}");
                return Ok(());
            }
            ensure!(start.elapsed() < LIMIT, "no {kind} within {LIMIT:?}");
            self.epoll.wait(Some(LIMIT))?;
        }
    }
}

fn run(address: Ipv4Addr, port: u16, backend: Backend) -> Result<()> {
    let mut path = Path::open(address)?;
    let connection = Connection::open(SocketAddr::from((address, port)), backend, &mut path)?;
    for number in 0..MESSAGES {
        path.send(number)?;
        let echo = path.receive(LIMIT)?;
        ensure!(echo == number, "message {number} came back as {echo}");
        path.post_recv(u64::from(number) + 1)?;
    }
    connection.close()
}

/// `peer-connected ADDRESS PORT`: on both backends.
fn main() -> Result<()> {
    let (address, arguments) = peer_common::arguments()?;
    let port = arguments.first().context("peer-connected ADDRESS PORT")?.parse()?;
    for backend in [Backend::Kernel, Backend::Librdmacm] {
        run(address, port, backend).with_context(|| format!("backend {backend}"))?;
        println!("{MESSAGES} messages there and back on a QP of sideway, connected by cmid, backend {backend}");
    }
    Ok(())
}
