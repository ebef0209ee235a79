//! Two sides, a connection between them, and functions that wait for events.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cmid_proto::datapath::{Attaching, DataPath};
use cmid_proto::{Call, ChannelKey, CmEvent, ConnParam, Device, Errno, GroupKey, IdKey, Pollable, PortSpace, RawEvent};
use cmid_verbs::{Backend, Caps, Cq, Pd, PostCalls, Qp, Verbs};

pub(crate) const CLIENT: [u8; 4] = [10, 99, 0, 1];
pub(crate) const SERVER: [u8; 4] = [10, 99, 0, 2];
pub(crate) const CAPS: Caps =
    Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 32 };
/// The time limit of what happens at once. The machine is emulated.
const SOON: Duration = Duration::from_secs(10);

static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
static NEXT_QP_NUM: AtomicU32 = AtomicU32::new(0x20_0000);

/// The backend that the variable `CMID_BACKEND` names; the default one without it.
pub(crate) fn backend() -> Backend {
    static NAMED: OnceLock<Backend> = OnceLock::new();
    *NAMED.get_or_init(|| {
        let name = std::env::var("CMID_BACKEND");
        name.map_or(Backend::default(), |name| name.parse().expect("the name of a backend"))
    })
}

static CLASSIC: AtomicBool = AtomicBool::new(false);

/// From now on QPs post by ibv_post_send.
pub(crate) fn post_by_classic_calls() {
    CLASSIC.store(true, Ordering::Relaxed);
}

/// The calls that post.
fn post_calls() -> PostCalls {
    if CLASSIC.load(Ordering::Relaxed) { PostCalls::Classic } else { PostCalls::Extended }
}

/// A device over [`backend`] that posts by [`post_calls`].
pub(crate) fn open() -> Verbs {
    let mut device = Verbs::open_with(backend()).expect("there is an RDMA device");
    device.set_post_calls(post_calls());
    device
}

/// One device with one channel.
pub(crate) struct Side {
    pub(crate) device: Verbs,
    pub(crate) channel: ChannelKey,
    keys: u32,
}

/// An event with a copy of its private data.
pub(crate) type Seen = RawEvent<Vec<u8>>;

impl Side {
    pub(crate) fn new() -> Self {
        Self::with(open())
    }

    pub(crate) fn with(device: Verbs) -> Self {
        let mut side = Side { device, channel: channel_key(0, 1), keys: 0 };
        let channel = side.channel;
        side.ok(&Call::OpenChannel { channel });
        side
    }

    /// Returns an unused key.
    pub(crate) fn key(&mut self) -> IdKey {
        self.keys += 1;
        id_key(self.keys - 1, 1)
    }

    pub(crate) fn ok(&mut self, call: &Call) {
        self.ok_with(call, &[]);
    }

    pub(crate) fn ok_with(&mut self, call: &Call, private_data: &[u8]) {
        let outcome = self.device.call(call, private_data);
        assert_eq!(outcome, Ok(()), "{call:?}");
    }

    pub(crate) fn fails(&mut self, call: &Call, errno: Errno) {
        self.fails_with(call, &[], errno);
    }

    pub(crate) fn fails_with(&mut self, call: &Call, private_data: &[u8], errno: Errno) {
        let outcome = self.device.call(call, private_data);
        assert_eq!(outcome, Err(errno), "{call:?}");
    }

    pub(crate) fn id(&mut self) -> IdKey {
        self.id_in(PortSpace::Tcp)
    }

    pub(crate) fn id_in(&mut self, port_space: PortSpace) -> IdKey {
        let (id, channel) = (self.key(), self.channel);
        self.ok(&Call::CreateId { id, channel, port_space });
        id
    }

    /// Makes a datagram id bound to an address.
    pub(crate) fn bound(&mut self, addr: [u8; 4]) -> IdKey {
        let id = self.id_in(PortSpace::Udp);
        self.ok(&Call::Bind { id, addr: SocketAddr::from((addr, 0)) });
        id
    }

    /// Returns the next event of this side's channel, or `None` at the time limit.
    pub(crate) fn event_within(&mut self, limit: Duration) -> Option<Seen> {
        self.event_on(self.channel, limit)
    }

    pub(crate) fn event_on(&mut self, channel: ChannelKey, limit: Duration) -> Option<Seen> {
        let deadline = Instant::now() + limit;
        // Returned to the pool if it is not used.
        let child = self.key();
        loop {
            if let Some(event) = self.device.fetch(channel, child).expect("the channel can be read") {
                self.keys -= u32::from(event.listener.is_none());
                return Some(event.map_private_data(<[u8]>::to_vec));
            }
            if !readable(self.device.fd(channel).expect("the channel is known"), deadline) {
                self.keys -= 1;
                return None;
            }
        }
    }

    /// Expects this event next, with status 0.
    pub(crate) fn expect(&mut self, kind: CmEvent) -> Seen {
        let seen = self.event_within(SOON).unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!((seen.kind, seen.status), (kind, 0), "{seen:?}");
        seen
    }

    pub(crate) fn quiet(&mut self, ms: u64) {
        let seen = self.event_within(Duration::from_millis(ms));
        assert!(seen.is_none(), "{seen:?}");
    }

    /// Makes a listener on the server's address. Returns it with its address.
    pub(crate) fn listener(&mut self) -> (IdKey, SocketAddr) {
        self.listener_in(PortSpace::Tcp)
    }

    pub(crate) fn listener_in(&mut self, port_space: PortSpace) -> (IdKey, SocketAddr) {
        let addr = SocketAddr::from((SERVER, NEXT_PORT.fetch_add(1, Ordering::Relaxed)));
        let id = self.id_in(port_space);
        self.ok(&Call::Bind { id, addr });
        self.ok(&Call::Listen { id, backlog: 10 });
        (id, addr)
    }

    /// Makes an id with a resolved route.
    pub(crate) fn resolved(&mut self, dst: SocketAddr) -> IdKey {
        self.resolved_in(PortSpace::Tcp, dst)
    }

    pub(crate) fn resolved_in(&mut self, port_space: PortSpace, dst: SocketAddr) -> IdKey {
        let id = self.id_in(port_space);
        self.resolve(id, dst);
        id
    }

    pub(crate) fn resolve(&mut self, id: IdKey, dst: SocketAddr) {
        let src = Some(SocketAddr::from((CLIENT, 0)));
        self.ok(&Call::ResolveAddr { id, src, dst, timeout_ms: 2_000 });
        assert_eq!(self.expect(CmEvent::AddrResolved).id, id);
        self.ok(&Call::ResolveRoute { id, timeout_ms: 2_000 });
        assert_eq!(self.expect(CmEvent::RouteResolved).id, id);
    }

    pub(crate) fn end(&mut self, id: IdKey) -> End {
        let pd = self.device.alloc_pd(id).expect("alloc_pd");
        self.end_on(id, pd)
    }

    fn end_on(&mut self, id: IdKey, pd: Pd) -> End {
        let cq = self.device.create_cq(id, 64).expect("create_cq");
        let qp = self.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
        assert_eq!(qp.post_calls(), post_calls(), "soft-RoCE has both");
        End { id, pd, cq, qp }
    }
}

/// One end of a connection with its QP.
pub(crate) struct End {
    pub(crate) id: IdKey,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
}

/// A connected client and server.
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) listener: IdKey,
    pub(crate) addr: SocketAddr,
    pub(crate) c: End,
    pub(crate) s: End,
}

impl Pair {
    /// Behaviour 1, without its details.
    pub(crate) fn connected() -> Self {
        let (mut client, mut server) = (Side::new(), Side::new());
        let (listener, addr) = server.listener();
        let (c, s) = connect(&mut client, &mut server, addr);
        Pair { client, server, listener, addr, c, s }
    }

    /// Makes another connection, whose end of the server is on the same PD, and returns its ends.
    pub(crate) fn second(&mut self) -> (End, End) {
        let id = self.client.resolved(self.addr);
        answered_on(&mut self.client, &mut self.server, id, param(), Some(self.s.pd.clone()))
    }
}

/// Makes another connection between two sides.
pub(crate) fn connect(client: &mut Side, server: &mut Side, addr: SocketAddr) -> (End, End) {
    let id = client.resolved(addr);
    answered(client, server, id, param())
}

/// Connects an id with a resolved route.
pub(crate) fn answered(client: &mut Side, server: &mut Side, id: IdKey, param: ConnParam) -> (End, End) {
    answered_on(client, server, id, param, None)
}

/// As [`answered`], with the server's end on this PD.
pub(crate) fn answered_on(
    client: &mut Side,
    server: &mut Side,
    id: IdKey,
    param: ConnParam,
    pd: Option<Pd>,
) -> (End, End) {
    let c = client.end(id);
    client.ok(&Call::Connect { id, param });
    let request = server.expect(CmEvent::ConnectRequest);
    let s = match pd {
        Some(pd) => server.end_on(request.id, pd),
        None => server.end(request.id),
    };
    server.ok(&Call::Accept {
        id: s.id,
        param: ConnParam { qp_num: NEXT_QP_NUM.fetch_add(1, Ordering::Relaxed), ..param },
    });
    client.expect(CmEvent::Established);
    server.expect(CmEvent::Established);
    (c, s)
}

/// The parameters of the behaviours, with an unused QP number.
pub(crate) fn param() -> ConnParam {
    ConnParam {
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: false,
        retry_count: 5,
        rnr_retry_count: 6,
        srq: false,
        qp_num: NEXT_QP_NUM.fetch_add(1, Ordering::Relaxed),
    }
}

pub(crate) fn id_key(slot: u32, generation: u32) -> IdKey {
    IdKey::from_parts(0, slot, generation).expect("a generation above 0")
}

pub(crate) fn group_key(slot: u32) -> GroupKey {
    GroupKey::from_parts(0, slot, 1).expect("a generation above 0")
}

pub(crate) fn channel_key(slot: u32, generation: u32) -> ChannelKey {
    ChannelKey::from_parts(0, slot, generation).expect("a generation above 0")
}

/// Waits until a descriptor is readable. Returns false at the deadline.
pub(crate) fn readable(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, which lives during the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, ms) };
    assert!(ready >= 0, "poll");
    ready == 1
}
