//! Connections on io-epoll, and `c/connection.c` on cmid: one to the echoing server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::{Attaching, CreateError, DataPath, ProtectionDomain, SrqCaps};
use cmid_proto::handshake::{Incoming, Options, Session};
use cmid_proto::{Acks, ChannelKey, PortSpace, PrivateData};
use cmid_verbs::{Access, Block, Caps, Cq, Mr, Pd, Qp, Remote, Srq, Verbs};

use crate::param::PARAM;
use crate::wire::{self, Wants};

/// The maximum number of concurrent work requests of a kind.
pub(crate) const DEPTH: u32 = 64;
/// The length of each message.
pub(crate) const BYTES: usize = 64;

/// A connection that is established.
pub(crate) struct Opened<A> {
    pub(crate) driver: Epoll<Verbs>,
    pub(crate) channel: ChannelKey,
    pub(crate) session: Session<A>,
    /// That of the peer.
    pub(crate) private_data: PrivateData,
}

/// Connects to an address, or accepts the first request there.
pub(crate) fn open<A>(
    address: SocketAddr,
    accepts: bool,
    options: &Options<'_>,
    attach: impl Fn(&mut Verbs, Attaching<'_>) -> Result<A, CreateError>,
) -> Result<Opened<A>> {
    let mut driver = Epoll::new(Verbs::open()?, Config::default())?;
    let drive = driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery)?;
    let mut session = None;
    if accepts {
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(id, address)?;
        drive.listen(id, 0)?;
    } else {
        session = Some(Session::connect(drive, Some(channel), address, options)?);
    }
    loop {
        driver.wait(None)?;
        let drive = driver.drive();
        while let Some(event) = drive.next_event(channel) {
            let event = match Incoming::new(drive, event) {
                Ok(incoming) => {
                    session = Some(Session::accept(drive, incoming, options, &attach)?);
                    continue;
                }
                Err(event) => event,
            };
            let Some(begun) = &mut session else { continue };
            let connected = begun.handle(drive, event, &attach)?;
            if let Some(private_data) = connected.map(|connected| connected.private_data.clone()) {
                let session = session.context("no connection")?;
                return Ok(Opened { driver, channel, session, private_data });
            }
        }
    }
}

/// A connection with a QP and registered memory.
pub(crate) struct Connection {
    pub(crate) qp: Qp,
    /// What the QP takes its receives from, if they are shared.
    pub(crate) srq: Option<Srq>,
    pub(crate) cq: Cq,
    /// The memory of a sent message and of a received one.
    pub(crate) mr: Mr,
    /// As many messages in blocks.
    pub(crate) blocks: Vec<Block>,
    /// The server's memory.
    pub(crate) peer: Remote,
    pub(crate) driver: Epoll<Verbs>,
    pub(crate) channel: ChannelKey,
    _pd: Pd,
}

impl Connection {
    /// Connects. With `shared`, receives are taken from a shared receive queue.
    pub(crate) fn open(to: SocketAddr, shared: bool) -> Result<Self> {
        let hello = wire::hello(Wants::Echo, Remote { addr: 0, rkey: 0 });
        let options = Options { param: PARAM, private_data: &hello, ..Options::default() };
        let opened = open(to, false, &options, |device, to| {
            let pd = device.alloc_pd(to.id())?;
            let mr = pd.register(vec![0; 2 * BYTES], Access::LOCAL_WRITE)?;
            let pool = pd.pool(vec![0; DEPTH as usize * BYTES], BYTES, Access::empty())?;
            let srq = shared.then(|| pd.create_srq(SrqCaps { max_wr: DEPTH, max_sge: 1 })).transpose()?;
            let cq = device.create_cq(to.id(), 2 * DEPTH)?;
            let caps = Caps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..Caps::default() };
            let qp = match &srq {
                Some(srq) => device.create_qp_with_srq(to, &pd, &cq, &cq, srq, caps)?,
                None => device.create_qp(to, &pd, &cq, &cq, caps)?,
            };
            let blocks: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            Ok((qp, srq, cq, mr, blocks, pd))
        })?;
        let Opened { driver, channel, session, private_data } = opened;
        let connected = session.into_connected().context("no connection")?;
        let ((qp, srq, cq, mr, blocks, _pd), (_, peer)) = (connected.attached, wire::read(&private_data)?);
        Ok(Connection { qp, srq, cq, mr, blocks, peer, driver, channel, _pd })
    }
}
