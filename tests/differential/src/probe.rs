//! Waits until the kernel has completed everything before: its queues are first in, first out.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use cmid_proto::datapath::Attaching;
use cmid_proto::{Call, ChannelKey, CmEvent, ConnParam, Device, IdKey, Pollable, PortSpace, RejectReason};
use cmid_verbs::Verbs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::Network;
use crate::runner::Path;

/// The last port before those of programs.
const PORT: u16 = 19_999;
/// The time limit of the kernel's answer.
const LIMIT: Duration = Duration::from_secs(20);
/// The slots of its requests, of the listener, and from which on those of the ids of requests that arrive.
const OWN: u32 = 0;
const LISTENER: u32 = 1;
const SPARE: u32 = 2;
/// The number of the latter.
const SPARES: u32 = 4;

/// A request that uses the same queues as the programs.
///
/// On soft-RoCE it looks up a port without a listener. On soft-iWARP, which has no lookups, it connects to a listener
/// of its own, which rejects it: the messages pass through the work queues of siw and of iwcm.c in both directions.
#[derive(Debug)]
pub(crate) struct Probe {
    device: Verbs,
    network: Network,
    channel: ChannelKey,
    generation: u32,
    /// The number of keys that were given away for ids of requests.
    spares: u32,
}

impl Probe {
    pub(crate) fn new(mut device: Verbs, network: Network) -> anyhow::Result<Self> {
        let channel = ChannelKey::from_parts(0, 0, 1).context("a key")?;
        device.call(&Call::OpenChannel { channel }, &[]).context("a channel")?;
        let mut probe = Probe { device, network, channel, generation: 0, spares: 0 };
        if network == Network::Iwarp {
            let id = key(LISTENER, 1)?;
            probe.call("create", &Call::CreateId { id, channel, port_space: PortSpace::Tcp })?;
            probe.call("bind", &Call::Bind { id, addr: addr() })?;
            probe.call("listen", &Call::Listen { id, backlog: 8 })?;
        }
        Ok(probe)
    }

    /// Another device on the same devices of the machine.
    pub(crate) fn sibling(&self) -> Verbs {
        self.device.sibling()
    }

    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        self.generation += 1;
        let id = key(OWN, self.generation)?;
        let port_space = match self.network {
            Network::Roce => PortSpace::Udp,
            Network::Iwarp => PortSpace::Tcp,
        };
        self.call("create", &Call::CreateId { id, channel: self.channel, port_space })?;
        self.call("address", &Call::ResolveAddr { id, src: None, dst: addr(), timeout_ms: 20_000 })?;
        self.expect(CmEvent::AddrResolved)?;
        self.call("route", &Call::ResolveRoute { id, timeout_ms: 20_000 })?;
        self.expect(CmEvent::RouteResolved)?;
        let connect = Call::Connect { id, param: ConnParam::default() };
        match self.network {
            Network::Roce => {
                self.call("connect", &connect)?;
                self.expect(CmEvent::Unreachable)?;
                self.call("destroy", &Call::Destroy { id })
            }
            Network::Iwarp => {
                let _qp = Path::attach(&mut self.device, Attaching::bare(id), 1).context("probe: a QP")?;
                self.call("connect", &connect)?;
                let child = self.expect(CmEvent::ConnectRequest)?;
                self.call("reject", &Call::Reject { id: child, reason: RejectReason::Consumer })?;
                self.expect(CmEvent::Rejected)?;
                self.call("destroy", &Call::Destroy { id: child })?;
                self.call("destroy", &Call::Destroy { id })
            }
        }
    }

    fn call(&mut self, what: &'static str, call: &Call) -> anyhow::Result<()> {
        self.device.call(call, &[]).with_context(|| format!("probe: {what}"))
    }

    /// Waits for an event of this kind, and returns its id.
    fn expect(&mut self, kind: CmEvent) -> anyhow::Result<IdKey> {
        // A request keeps the key for its id, while later events are read with other slots.
        self.spares += 1;
        let spare = key(SPARE + self.spares % SPARES, self.spares)?;
        let fd = self.device.fd(self.channel).context("a descriptor")?;
        let limit = Timespec::try_from(LIMIT)?;
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit))?;
        let event = self.device.fetch(self.channel, spare).context("probe: a read")?;
        let event = event.with_context(|| format!("probe: no {kind}"))?;
        ensure!(event.kind == kind, "probe: {} with {} instead of {kind}", event.kind, event.status);
        Ok(event.id)
    }
}

fn key(slot: u32, generation: u32) -> anyhow::Result<IdKey> {
    IdKey::from_parts(0, slot, generation).context("a key")
}

/// The address of the probe's port.
fn addr() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 99, 0, 2), PORT))
}
