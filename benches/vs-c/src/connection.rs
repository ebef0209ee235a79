//! `c/connection.c` on cmid: one connection to the echoing server.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::{DataPath, ProtectionDomain, SrqCaps};
use cmid_proto::{Acks, ChannelKey, CmEvent, Event, PortSpace};
use cmid_verbs::{Access, Backend, Block, Caps, Cq, Mr, Pd, Qp, Remote, Srq, Verbs};

use crate::connections::RESOLVE;
use crate::param::PARAM;
use crate::wire::{self, Wants};

/// The maximum number of concurrent work requests of a kind.
pub(crate) const DEPTH: u32 = 64;
/// The length of each message.
pub(crate) const BYTES: usize = 64;

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
        let mut driver = Epoll::new(Verbs::open_with(Backend::Librdmacm)?, Config::default())?;
        let drive = driver.drive();
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.resolve_addr(id, None, to, drive.within(RESOLVE))?;
        let _ = await_event(&mut driver, channel, CmEvent::AddrResolved)?;
        let drive = driver.drive();
        drive.resolve_route(id, drive.within(RESOLVE))?;
        let _ = await_event(&mut driver, channel, CmEvent::RouteResolved)?;
        let drive = driver.drive();
        let device = drive.device_mut();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 2 * DEPTH)?;
        let mr = pd.register(vec![0; 2 * BYTES], Access::LOCAL_WRITE)?;
        let pool = pd.pool(vec![0; DEPTH as usize * BYTES], BYTES, Access::empty())?;
        let blocks = std::iter::from_fn(|| pool.take()).collect();
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..Caps::default() };
        let srq = if shared { Some(pd.create_srq(SrqCaps { max_wr: DEPTH, max_sge: 1 })?) } else { None };
        let qp = drive.attach_qp(id, |device, attaching| match &srq {
            Some(srq) => device.create_qp_with_srq(attaching, &pd, &cq, &cq, srq, caps),
            None => device.create_qp(attaching, &pd, &cq, &cq, caps),
        })?;
        let hello = wire::hello(Wants::Echo, cmid_proto::datapath::Remote { addr: 0, rkey: 0 });
        drive.connect(id, PARAM, &hello, drive.within(RESOLVE))?;
        let established = await_event(&mut driver, channel, CmEvent::Established)?;
        let (_, at) = wire::read(&established.private_data)?;
        let peer = Remote { addr: at.addr, rkey: at.rkey };
        Ok(Connection { qp, srq, cq, mr, blocks, peer, driver, channel, _pd: pd })
    }
}

fn await_event(driver: &mut Epoll<Verbs>, channel: ChannelKey, what: CmEvent) -> Result<Event> {
    let begun = Instant::now();
    let event = loop {
        driver.wait(Some(RESOLVE))?;
        if let Some(event) = driver.drive().next_event(channel) {
            break event;
        }
        ensure!(begun.elapsed() < RESOLVE, "no {what:?}");
    };
    if event.cm() != Some(what) {
        bail!("{} with status {}", event.kind, event.status);
    }
    Ok(event)
}
