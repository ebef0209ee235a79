//! What the tests share: hosts of a fabric, and a QP with memory.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod channels;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cmid_tokio::proto::Transport;
use cmid_tokio::proto::datapath::{Access, Attaching, Caps, CreateError, Remote, SendWr, prelude::*};
use cmid_tokio::sim::{Clock, Config, Cq, Fabric, Host, Mr, Pd, Qp, SimDevice};
use cmid_tokio::{Connection, Listener, Options};

pub(crate) const LIMIT: Duration = Duration::from_secs(5);

pub(crate) const RECEIVES: u8 = 8;

pub(crate) fn server() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

/// A client's and a server's host.
pub(crate) struct World {
    pub(crate) fabric: Fabric,
    pub(crate) client: Host,
    pub(crate) server: Host,
}

impl World {
    pub(crate) fn new(clock: Clock) -> Self {
        World::with(Config { clock, ..Config::default() })
    }

    pub(crate) fn with(config: Config) -> Self {
        World::over(Transport::InfiniBand, config)
    }

    pub(crate) fn over(transport: Transport, config: Config) -> Self {
        let fabric = Fabric::new(config);
        let host = |addr: &str| fabric.host_with(&[addr.parse().unwrap()], transport);
        World { client: host("10.0.0.1"), server: host("10.0.0.2"), fabric }
    }

    /// In virtual time, which follows tokio's clock.
    pub(crate) fn paused() -> Self {
        World::paused_over(Transport::InfiniBand)
    }

    pub(crate) fn paused_over(transport: Transport) -> Self {
        let world = World::over(transport, Config::default());
        tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
        world
    }

    pub(crate) fn listener(&self) -> Listener<SimDevice> {
        Listener::bind(self.server.device(), server()).unwrap()
    }

    /// A connection: the client's side, and the server's.
    pub(crate) async fn connected(&self) -> [Side; 2] {
        let mut listener = self.listener();
        let options = Options::default();
        let connect = Connection::connect(self.client.device(), server(), &options, attach);
        let accept = async { listener.accept().await?.accept(&options, attach).await };
        let (client, server) = tokio::try_join!(connect, accept).unwrap();
        [client, server].map(|(connection, port)| Side { connection, port })
    }
}

pub(crate) struct Side {
    pub(crate) connection: Connection<SimDevice>,
    pub(crate) port: Port,
}

/// A QP with a slot of memory for each receive, one for sends, and a witness of its drop.
pub(crate) struct Port {
    pub(crate) qp: Qp,
    pub(crate) pd: Pd,
    pub(crate) mr: Mr,
    pub(crate) lives: Arc<()>,
}

impl Port {
    pub(crate) fn send(&mut self, byte: u8) {
        let slot = usize::from(RECEIVES);
        self.mr.write(slot, &[byte]).unwrap();
        self.qp.post_send(SendWr::send(byte.into(), self.mr.sge(slot..slot + 1))).unwrap();
    }

    /// Sends from memory of its own.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let mr = self.pd.register([bytes, &[0]].concat(), Access::empty()).unwrap();
        self.qp.post_send(SendWr::send(0, mr.sge(0..bytes.len()))).unwrap();
    }

    /// Writes to memory that the peer has not shared, which ends the peer's QP without an event.
    pub(crate) fn write_nowhere(&mut self) {
        self.qp.post_send(SendWr::write(0, self.mr.sge(0..1), Remote { addr: 1, rkey: 1 })).unwrap();
    }

    pub(crate) fn receive(&mut self, slot: u8) {
        self.qp.post_recv(slot.into(), self.mr.sge(slot.into()..usize::from(slot) + 1)).unwrap();
    }

    pub(crate) fn byte(&self, slot: u64) -> u8 {
        let mut byte = [0];
        self.mr.read(slot.try_into().unwrap(), &mut byte).unwrap();
        byte[0]
    }
}

pub(crate) fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<(Cq, Port), CreateError> {
    attach_with(device, to, Arc::default())
}

pub(crate) fn attach_with(
    device: &mut SimDevice,
    to: Attaching<'_>,
    lives: Arc<()>,
) -> Result<(Cq, Port), CreateError> {
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 512)?);
    let mr = pd.register(vec![0; usize::from(RECEIVES) + 1], Access::LOCAL_WRITE)?;
    let qp = device.create_qp(to, &pd, &cq, &cq, Caps { max_send_wr: 16, max_recv_wr: 16, ..Caps::default() })?;
    let mut port = Port { qp, pd, mr, lives };
    (0..RECEIVES).for_each(|slot| port.receive(slot));
    Ok((cq, port))
}

/// Fails if the future waits for longer than any limit of the tests.
pub(crate) async fn ends<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(4 * LIMIT, future).await.unwrap()
}
