//! A fixture for dialogues at the `Device` seam: sides that make calls and fetch events, on one host, under a virtual
//! clock.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use cmid_proto::datapath::{Attaching, PostError, PostReason, prelude::*};
use cmid_proto::{
    Call, ChannelKey, CmEvent, CmOption, ConnParam, Device, Errno, GroupKey, IdKey, Outcome, PortSpace, RawEvent,
    RejectReason,
};
use cmid_sim::{Caps, Completion, Config, Cq, Fabric, Host, Mr, Pd, Qp, SimDevice};

/// The time limit for an event.
const AGES: Duration = Duration::from_secs(3000);

/// Returns the outcome of a post with the reason alone.
pub(crate) fn why(posted: Result<(), PostError>) -> Result<(), PostReason> {
    posted.map_err(|error| error.reason())
}

/// An event with a copy of its private data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen(RawEvent<Vec<u8>>);

impl Deref for Seen {
    type Target = RawEvent<Vec<u8>>;
    fn deref(&self) -> &RawEvent<Vec<u8>> {
        &self.0
    }
}

impl Seen {
    #[track_caller]
    pub(crate) fn is(self, id: IdKey, kind: CmEvent, status: i32) -> Seen {
        assert_eq!((self.id, self.kind, self.status), (id, kind, status));
        self
    }

    /// Checks the length of the private data and its first bytes; the rest must be zero.
    #[track_caller]
    pub(crate) fn carries(self, len: usize, begins: &[u8]) -> Seen {
        assert_eq!(self.private_data.len(), len);
        assert!(self.private_data.starts_with(begins), "{:?}", self.private_data);
        assert!(self.private_data[begins.len()..].iter().all(|&byte| byte == 0), "{:?}", self.private_data);
        self
    }
}

/// One process: a device, and keys for what it creates.
pub(crate) struct Side {
    pub(crate) device: SimDevice,
    next: u32,
}

impl Side {
    pub(crate) fn new(host: &Host) -> Side {
        Side { device: host.device(), next: 0 }
    }

    fn fabric(&self) -> Fabric {
        self.device.fabric().clone()
    }

    pub(crate) fn fresh_id(&mut self) -> IdKey {
        self.next += 1;
        IdKey::from_parts(0, self.next, 1).unwrap()
    }

    pub(crate) fn fresh_channel(&mut self) -> ChannelKey {
        self.next += 1;
        ChannelKey::from_parts(0, self.next, 1).unwrap()
    }

    pub(crate) fn call(&mut self, call: Call) -> Outcome {
        self.device.call(&call, &[])
    }

    pub(crate) fn channel(&mut self) -> ChannelKey {
        let channel = self.fresh_channel();
        self.call(Call::OpenChannel { channel }).unwrap();
        channel
    }

    pub(crate) fn id(&mut self, channel: ChannelKey) -> IdKey {
        self.id_in(PortSpace::Tcp, channel)
    }

    pub(crate) fn id_in(&mut self, port_space: PortSpace, channel: ChannelKey) -> IdKey {
        let id = self.fresh_id();
        self.call(Call::CreateId { id, channel, port_space }).unwrap();
        id
    }

    pub(crate) fn bind(&mut self, id: IdKey, addr: &str) -> Outcome {
        self.call(Call::Bind { id, addr: addr.parse().unwrap() })
    }

    pub(crate) fn bound(&mut self, on: ChannelKey, addr: &str) -> IdKey {
        let id = self.id(on);
        self.bind(id, addr).unwrap();
        id
    }

    pub(crate) fn listen(&mut self, id: IdKey, backlog: i32) -> Outcome {
        self.call(Call::Listen { id, backlog })
    }

    pub(crate) fn resolve_addr(&mut self, id: IdKey, src: Option<&str>, dst: &str, timeout_ms: i32) -> Outcome {
        let src = src.map(|src| src.parse().unwrap());
        self.call(Call::ResolveAddr { id, src, dst: dst.parse().unwrap(), timeout_ms })
    }

    /// A new id that looks up an address, for at most a second.
    #[track_caller]
    pub(crate) fn looks_up(&mut self, on: ChannelKey, dst: &str) -> IdKey {
        let id = self.id(on);
        self.resolve_addr(id, None, dst, 1000).unwrap();
        id
    }

    pub(crate) fn resolve_route(&mut self, id: IdKey) -> Outcome {
        self.call(Call::ResolveRoute { id, timeout_ms: 2000 })
    }

    pub(crate) fn connect(&mut self, id: IdKey, param: ConnParam, data: &[u8]) -> Outcome {
        self.device.call(&Call::Connect { id, param }, data)
    }

    pub(crate) fn accept(&mut self, id: IdKey, param: ConnParam, data: &[u8]) -> Outcome {
        self.device.call(&Call::Accept { id, param }, data)
    }

    pub(crate) fn reject(&mut self, id: IdKey, data: &[u8]) -> Outcome {
        self.device.call(&Call::Reject { id, reason: RejectReason::Consumer }, data)
    }

    pub(crate) fn establish(&mut self, id: IdKey) -> Outcome {
        self.call(Call::Establish { id })
    }

    pub(crate) fn disconnect(&mut self, id: IdKey) -> Outcome {
        self.call(Call::Disconnect { id })
    }

    pub(crate) fn destroy(&mut self, id: IdKey) -> Outcome {
        self.call(Call::Destroy { id })
    }

    pub(crate) fn notify(&mut self, id: IdKey) -> Outcome {
        self.call(Call::Notify { id })
    }

    pub(crate) fn set(&mut self, id: IdKey, option: CmOption) -> Outcome {
        self.call(Call::SetOption { id, option })
    }

    /// Joins a group, under a key of its own.
    pub(crate) fn join(&mut self, id: IdKey, addr: &str, send_only: bool) -> Result<GroupKey, Errno> {
        self.next += 1;
        let group = GroupKey::from_parts(0, self.next, 1).unwrap();
        self.call(Call::Join { id, group, addr: addr.parse().unwrap(), send_only }).map(|()| group)
    }

    pub(crate) fn leave(&mut self, id: IdKey, group: GroupKey, addr: &str) -> Outcome {
        self.call(Call::Leave { id, group, addr: addr.parse().unwrap() })
    }

    pub(crate) fn migrate(&mut self, id: IdKey, from: ChannelKey, to: ChannelKey) -> Outcome {
        self.call(Call::Migrate { id, from, to })
    }

    pub(crate) fn local(&self, id: IdKey) -> SocketAddr {
        self.device.local_addr(id).unwrap()
    }

    /// Fetches an event without waiting.
    pub(crate) fn fetch(&mut self, on: ChannelKey) -> Option<Seen> {
        let child = self.fresh_id();
        self.device.fetch(on, child).unwrap().map(|raw| Seen(raw.map_private_data(<[u8]>::to_vec)))
    }

    /// Advances time until the next event.
    #[track_caller]
    pub(crate) fn next(&mut self, on: ChannelKey) -> Seen {
        let fabric = self.fabric();
        let limit = fabric.now().after(AGES);
        loop {
            if let Some(seen) = self.fetch(on) {
                return seen;
            }
            let due = fabric.next_due().expect("an event, and the fabric is at rest");
            assert!(due < limit, "no event for ages");
            fabric.advance_to(due);
        }
    }

    /// The next event, and the time until it.
    #[track_caller]
    pub(crate) fn next_timed(&mut self, on: ChannelKey) -> (Seen, Duration) {
        let start = self.fabric().now();
        let seen = self.next(on);
        (seen, self.fabric().now().since(start))
    }

    /// Asserts that no event arrives for `span`.
    #[track_caller]
    pub(crate) fn quiet(&mut self, on: ChannelKey, span: Duration) {
        let fabric = self.fabric();
        let end = fabric.now().after(span);
        loop {
            assert_eq!(self.fetch(on), None);
            match fabric.next_due().filter(|&due| due <= end) {
                Some(due) => fabric.advance_to(due),
                None => break,
            }
        }
        fabric.advance_to(end);
        assert_eq!(self.fetch(on), None);
    }

    /// A listener: "L" of the scenarios.
    #[track_caller]
    pub(crate) fn listener(&mut self, on: ChannelKey, addr: &str) -> IdKey {
        self.listener_in(PortSpace::Tcp, on, addr)
    }

    #[track_caller]
    pub(crate) fn listener_in(&mut self, port_space: PortSpace, on: ChannelKey, addr: &str) -> IdKey {
        let id = self.id_in(port_space, on);
        self.bind(id, addr).unwrap();
        self.listen(id, 10).unwrap();
        id
    }

    /// A client with a route: "C resolved" of the scenarios.
    #[track_caller]
    pub(crate) fn resolved(&mut self, on: ChannelKey, dst: &str) -> IdKey {
        self.resolved_in(PortSpace::Tcp, on, dst)
    }

    #[track_caller]
    pub(crate) fn resolved_in(&mut self, port_space: PortSpace, on: ChannelKey, dst: &str) -> IdKey {
        let id = self.id_in(port_space, on);
        let src = if dst.starts_with('[') { None } else { Some("10.0.0.1:0") };
        self.resolve_addr(id, src, dst, 2000).unwrap();
        self.next(on).is(id, CmEvent::AddrResolved, 0).carries(0, &[]);
        self.routed(id, on);
        id
    }

    /// Resolves the route of an id.
    #[track_caller]
    pub(crate) fn routed(&mut self, id: IdKey, on: ChannelKey) {
        self.resolve_route(id).unwrap();
        self.next(on).is(id, CmEvent::RouteResolved, 0).carries(0, &[]);
    }

    /// Takes a CONNECT_REQUEST and returns its new id.
    #[track_caller]
    pub(crate) fn requested(&mut self, on: ChannelKey, listener: IdKey) -> IdKey {
        let seen = self.next(on);
        assert_eq!((seen.kind, seen.status, seen.listener), (CmEvent::ConnectRequest, 0, Some(listener)));
        seen.carries(56, &[]).id
    }

    /// A QP on an id, with its PD and CQs.
    #[track_caller]
    pub(crate) fn qp(&mut self, id: IdKey) -> Equipment {
        self.qp_with(id, Caps::default())
    }

    #[track_caller]
    pub(crate) fn qp_with(&mut self, id: IdKey, caps: Caps) -> Equipment {
        let pd = self.device.alloc_pd(id).unwrap();
        let send_cq = self.device.create_cq(id, 64).unwrap();
        let recv_cq = self.device.create_cq(id, 64).unwrap();
        let qp = self.device.create_qp(Attaching::bare(id), &pd, &send_cq, &recv_cq, caps).unwrap();
        Equipment { qp, pd, send_cq, recv_cq }
    }
}

pub(crate) struct Equipment {
    pub(crate) qp: Qp,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
}

/// One host with 10.0.0.1, 10.0.0.2 and, without an RDMA device, 172.16.0.1; a server and a client process on it.
pub(crate) struct Env {
    pub(crate) fabric: Fabric,
    pub(crate) host: Host,
    pub(crate) server: Side,
    pub(crate) client: Side,
    pub(crate) cs: ChannelKey,
    pub(crate) cc: ChannelKey,
    qp_num: Cell<u32>,
    /// Of the connections that follow.
    pub(crate) retry_count: u8,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

impl Env {
    pub(crate) fn new() -> Env {
        Env::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Env {
        let fabric = Fabric::new(config);
        let host = fabric.host(&[ip("10.0.0.1"), ip("10.0.0.2")]);
        host.add_plain_addr_without_arp(ip("172.16.0.1"));
        let mut server = Side::new(&host);
        let mut client = Side::new(&host);
        let (cs, cc) = (server.channel(), client.channel());
        Env { fabric, host, server, client, cs, cc, qp_num: Cell::new(100), retry_count: 5 }
    }

    /// "CP" of the scenarios.
    pub(crate) fn cp(&self) -> ConnParam {
        self.qp_num.set(self.qp_num.get() + 1);
        ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: self.retry_count,
            rnr_retry_count: 6,
            qp_num: self.qp_num.get(),
            ..ConnParam::default()
        }
    }

    /// A client's request, with parameters of its own.
    #[track_caller]
    pub(crate) fn connect(&mut self, client: IdKey, data: &[u8]) {
        self.client.connect(client, self.cp(), data).unwrap();
    }

    /// The server's answer, with parameters of its own.
    #[track_caller]
    pub(crate) fn accept(&mut self, new: IdKey, data: &[u8]) {
        self.server.accept(new, self.cp(), data).unwrap();
    }

    /// The client reads the answer and confirms it, without a QP.
    #[track_caller]
    pub(crate) fn establish(&mut self, client: IdKey, new: IdKey) {
        self.client.next(self.cc).is(client, CmEvent::ConnectResponse, 0);
        self.client.establish(client).unwrap();
        self.server.next(self.cs).is(new, CmEvent::Established, 0);
    }

    /// A listener on 10.0.0.2:7, a client with a request to it, and the new id, not answered.
    #[track_caller]
    pub(crate) fn requested(&mut self) -> (IdKey, IdKey, IdKey) {
        let listener = self.server.listener(self.cs, "10.0.0.2:7");
        let (client, new) = self.requested_on(listener);
        (listener, client, new)
    }

    #[track_caller]
    pub(crate) fn requested_on(&mut self, listener: IdKey) -> (IdKey, IdKey) {
        let client = self.client.resolved(self.cc, "10.0.0.2:7");
        self.connect(client, &[]);
        let new = self.server.requested(self.cs, listener);
        (client, new)
    }

    /// The same, accepted and confirmed, without QPs.
    #[track_caller]
    pub(crate) fn established(&mut self) -> (IdKey, IdKey, IdKey) {
        let (listener, client, new) = self.requested();
        self.accept(new, &[]);
        self.establish(client, new);
        (listener, client, new)
    }

    /// The same, with a QP on each side.
    #[track_caller]
    pub(crate) fn established_with_qps(&mut self) -> Pair {
        self.established_with(Caps::default())
    }

    #[track_caller]
    pub(crate) fn established_with(&mut self, caps: Caps) -> Pair {
        let listener = self.server.listener(self.cs, "10.0.0.2:7");
        let client = self.client.resolved(self.cc, "10.0.0.2:7");
        let client_qp = self.client.qp_with(client, caps);
        let param = ConnParam { rnr_retry_count: 7, ..self.cp() };
        self.client.connect(client, param, &[]).unwrap();
        let new = self.server.requested(self.cs, listener);
        let server_qp = self.server.qp_with(new, caps);
        let param = ConnParam { rnr_retry_count: 7, ..self.cp() };
        self.server.accept(new, param, &[]).unwrap();
        self.client.next(self.cc).is(client, CmEvent::Established, 0);
        self.server.next(self.cs).is(new, CmEvent::Established, 0);
        Pair { listener, client, new, client_qp, server_qp }
    }
}

/// A connection with a QP on each side.
#[track_caller]
pub(crate) fn connected(config: Config) -> (Env, Pair) {
    let mut env = Env::with(config);
    let pair = env.established_with_qps();
    (env, pair)
}

/// Polls up to eight completions.
#[track_caller]
pub(crate) fn completions(cq: &mut Cq) -> Vec<Completion> {
    let mut buffer = [Completion::default(); 8];
    let count = cq.poll(&mut buffer).unwrap();
    buffer[..count].to_vec()
}

/// Polls the only completion of a CQ.
#[track_caller]
pub(crate) fn only(cq: &mut Cq) -> Completion {
    let all = completions(cq);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// Reads bytes of a region.
#[track_caller]
pub(crate) fn bytes_at<const N: usize>(mr: &Mr, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    mr.read(offset, &mut bytes).unwrap();
    bytes
}

pub(crate) struct Pair {
    pub(crate) listener: IdKey,
    pub(crate) client: IdKey,
    pub(crate) new: IdKey,
    pub(crate) client_qp: Equipment,
    pub(crate) server_qp: Equipment,
}

pub(crate) const EINVAL: Outcome = Err(Errno::EINVAL);
