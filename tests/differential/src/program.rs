//! Programs: lists of calls of two sides, in order.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use cmid_proto::{CmOption, PortSpace};
use serde::{Deserialize, Serialize};

use crate::data::DataStep;

/// The layer that a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// The bare device: librdmacm, or the simulator in its place. Only the kernel checks the calls.
    Device,
    /// The core and its loop ([`cmid_proto::Drive`]), as called by an application.
    Core,
}

/// One of the two communicating sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SideName {
    /// Mostly the client.
    A,
    /// Mostly the server.
    B,
}

impl SideName {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> SideName {
        match self {
            SideName::A => SideName::B,
            SideName::B => SideName::A,
        }
    }
}

/// An id of a side. The side creates those below [`CHILDREN`]; the others arrive with requests, in order.
pub type Slot = u8;

/// The slot of the first id that arrives with a request.
pub const CHILDREN: Slot = 16;

/// An event channel of a side.
pub type ChannelNo = u8;

/// A port; 0 lets the kernel choose one.
pub type PortNo = u8;

/// The ports that a program may use, from [`Numbers::port`] on.
pub const PORTS: u16 = 8;

/// The QP numbers that a program may use, from [`Numbers::qp_num`] on.
pub const QP_NUMS: u32 = 0x100;

/// A kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ip {
    /// The address of side a.
    OfA,
    /// The address of side b.
    OfB,
    /// The wildcard.
    Any,
    /// The loopback address, which the kernel treats as a wildcard.
    Loopback,
    /// An address on an interface without an RDMA device.
    NoRdma,
    /// An address without a route.
    NoRoute,
    /// A multicast group.
    Group(u8),
    /// The broadcast address of the network of both sides.
    Broadcast,
    /// 255.255.255.255
    Everybody,
    /// An unused address on the interface without an RDMA device and without ARP.
    Silent,
    /// The IPv6 address of side a.
    OfA6,
    /// The IPv6 address of side b.
    OfB6,
    /// The wildcard of IPv6.
    Any6,
    /// The loopback address of IPv6.
    Loopback6,
    /// The address of side b, mapped into IPv6.
    Mapped,
    /// The link-local address of both sides, with its link.
    Link6,
    /// The same without the scope ID.
    NoLink6,
    /// An IPv6 address without a route.
    NoRoute6,
    /// An IPv6 multicast group.
    Group6(u8),
    /// A link-local IPv6 multicast group without a scope ID.
    LinkGroup6(u8),
}

impl Ip {
    /// The group of a number. Numbers from 4 on are IPv6 groups.
    #[must_use]
    pub const fn group(number: u8) -> Ip {
        if number < 4 { Ip::Group(number) } else { Ip::Group6(number) }
    }

    /// Whether it is an IPv6 address.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.resolve().is_ipv6()
    }

    /// Whether no single host answers a request to it: it is an address of many hosts, or unreachable from an IPv6
    /// address.
    #[must_use]
    pub const fn is_nobody(self) -> bool {
        let many = matches!(self, Ip::Group(_) | Ip::Broadcast | Ip::Everybody | Ip::Group6(_) | Ip::LinkGroup6(_));
        many || matches!(self, Ip::Any6 | Ip::Loopback6)
    }

    /// Whether it is valid on one link only.
    #[must_use]
    pub const fn is_of_link(self) -> bool {
        matches!(self, Ip::Link6 | Ip::NoLink6 | Ip::LinkGroup6(_))
    }

    fn resolve(self) -> IpAddr {
        match self {
            Ip::OfA => Ipv4Addr::new(10, 99, 0, 1).into(),
            Ip::OfB => Ipv4Addr::new(10, 99, 0, 2).into(),
            Ip::Any => Ipv4Addr::UNSPECIFIED.into(),
            Ip::Loopback => Ipv4Addr::LOCALHOST.into(),
            Ip::NoRdma => Ipv4Addr::new(172, 16, 0, 1).into(),
            Ip::NoRoute => Ipv4Addr::new(8, 8, 8, 8).into(),
            Ip::Group(number) => Ipv4Addr::new(239, 1, 1, number).into(),
            Ip::Broadcast => Ipv4Addr::new(10, 99, 0, 255).into(),
            Ip::Everybody => Ipv4Addr::BROADCAST.into(),
            Ip::Silent => Ipv4Addr::new(172, 16, 0, 9).into(),
            Ip::OfA6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).into(),
            Ip::OfB6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2).into(),
            Ip::Any6 => Ipv6Addr::UNSPECIFIED.into(),
            Ip::Loopback6 => Ipv6Addr::LOCALHOST.into(),
            Ip::Mapped => Ipv4Addr::new(10, 99, 0, 2).to_ipv6_mapped().into(),
            Ip::Link6 | Ip::NoLink6 => LINK_LOCAL.into(),
            Ip::NoRoute6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            Ip::Group6(number) => Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
            Ip::LinkGroup6(number) => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
        }
    }
}

/// The link-local address that Linux derives from the link address of the VM's `dummy0`.
pub const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0x9901);

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint(pub Ip, pub PortNo);

/// The host's numbers that a run uses, so that several runs are possible at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Its first port.
    pub port: u16,
    /// Its first QP number. All existing connections of a host need different ones.
    pub qp_num: u32,
    /// The index of the interface with [`LINK_LOCAL`].
    pub link: u32,
}

impl Endpoint {
    /// Returns the address.
    #[must_use]
    pub fn resolve(self, numbers: Numbers) -> SocketAddr {
        let port = if self.1 == 0 { 0 } else { numbers.port + u16::from(self.1) };
        match self.0.resolve() {
            IpAddr::V6(ip) if self.0 == Ip::Link6 => SocketAddrV6::new(ip, port, 0, numbers.link).into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => SocketAddr::new(ip, port),
        }
    }
}

/// The port spaces, for serde.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Space {
    /// `RDMA_PS_TCP`
    Tcp,
    /// `RDMA_PS_UDP`
    Udp,
    /// `RDMA_PS_IPOIB`
    Ipoib,
}

impl From<Space> for PortSpace {
    fn from(space: Space) -> Self {
        match space {
            Space::Tcp => PortSpace::Tcp,
            Space::Udp => PortSpace::Udp,
            Space::Ipoib => PortSpace::Ipoib,
        }
    }
}

/// The options, for serde.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are CmOption's")]
pub enum Opt {
    Tos(u8),
    ReuseAddr(bool),
    AfOnly(bool),
    AckTimeout(u8),
}

impl From<Opt> for CmOption {
    fn from(option: Opt) -> Self {
        match option {
            Opt::Tos(tos) => CmOption::Tos(tos),
            Opt::ReuseAddr(on) => CmOption::ReuseAddr(on),
            Opt::AfOnly(on) => CmOption::AfOnly(on),
            Opt::AckTimeout(power) => CmOption::AckTimeout(power),
        }
    }
}

/// The parameters of connect and accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offer {
    /// The QP number, relative to the program's first.
    pub qp: u8,
    /// `responder_resources`
    pub serves: u8,
    /// `initiator_depth`
    pub starts: u8,
    /// `rnr_retry_count`
    pub rnr: u8,
    /// Bytes of private data.
    pub data: u8,
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of librdmacm's calls and of their arguments")]
pub enum Action {
    OpenChannel {
        channel: ChannelNo,
        explicit_acks: bool,
    },
    CloseChannel {
        channel: ChannelNo,
    },
    Create {
        id: Slot,
        channel: Option<ChannelNo>,
        space: Space,
    },
    Bind {
        id: Slot,
        at: Endpoint,
    },
    ResolveAddr {
        id: Slot,
        src: Option<Endpoint>,
        dst: Endpoint,
    },
    ResolveRoute {
        id: Slot,
    },
    Listen {
        id: Slot,
        backlog: i32,
    },
    AttachQp {
        id: Slot,
    },
    /// A QP with 4,000,000 work requests.
    AttachHugeQp {
        id: Slot,
    },
    DetachQp {
        id: Slot,
    },
    Connect {
        id: Slot,
        offer: Offer,
    },
    Accept {
        id: Slot,
        offer: Offer,
    },
    Reject {
        id: Slot,
        ece: bool,
        data: u8,
    },
    Establish {
        id: Slot,
    },
    Disconnect {
        id: Slot,
    },
    /// Core only.
    Teardown {
        id: Slot,
    },
    Notify {
        id: Slot,
    },
    /// Core only.
    GetRequest {
        id: Slot,
    },
    Join {
        id: Slot,
        group: u8,
        send_only: bool,
    },
    Leave {
        id: Slot,
        group: u8,
    },
    SetOption {
        id: Slot,
        option: Opt,
    },
    SetEce {
        id: Slot,
        options: u32,
    },
    Migrate {
        id: Slot,
        to: Option<ChannelNo>,
    },
    Destroy {
        id: Slot,
    },
    Data {
        id: Slot,
        step: DataStep,
    },
    /// Core only: lets the core read all readable channels.
    Turn,
    /// Reads this many events from a channel, or all. At the core's level: takes events that the core has read.
    Read {
        channel: ChannelNo,
        most: Option<u8>,
    },
    /// Core only: returns the oldest ack tokens.
    Ack {
        most: u8,
    },
    /// Both sides wait until every time wait is over.
    LetTimePass,
}

impl Action {
    /// Whether it is a call, not a read of events.
    #[must_use]
    pub fn is_call(self) -> bool {
        !matches!(self, Action::Read { .. } | Action::Turn | Action::LetTimePass | Action::Ack { .. })
    }

    /// Its id, if it has one.
    #[must_use]
    pub fn id(mut self) -> Option<Slot> {
        self.id_mut().copied()
    }

    /// The same, as a mutable reference.
    pub fn id_mut(&mut self) -> Option<&mut Slot> {
        match self {
            Action::Bind { id, .. }
            | Action::ResolveAddr { id, .. }
            | Action::ResolveRoute { id }
            | Action::Listen { id, .. }
            | Action::AttachQp { id }
            | Action::AttachHugeQp { id }
            | Action::DetachQp { id }
            | Action::Connect { id, .. }
            | Action::Accept { id, .. }
            | Action::Reject { id, .. }
            | Action::Establish { id }
            | Action::Disconnect { id }
            | Action::Teardown { id }
            | Action::Notify { id }
            | Action::GetRequest { id }
            | Action::Join { id, .. }
            | Action::Leave { id, .. }
            | Action::SetOption { id, .. }
            | Action::SetEce { id, .. }
            | Action::Migrate { id, .. }
            | Action::Create { id, .. }
            | Action::Data { id, .. }
            | Action::Destroy { id } => Some(id),
            Action::OpenChannel { .. }
            | Action::CloseChannel { .. }
            | Action::Turn
            | Action::Read { .. }
            | Action::Ack { .. }
            | Action::LetTimePass => None,
        }
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// The side that performs it.
    pub side: SideName,
    /// The action.
    pub action: Action,
    /// Whether it follows the previous step without a wait. Effects of the previous step may then be incomplete.
    pub races: bool,
}

/// A list of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The seed that it was generated from.
    pub seed: u64,
    /// The layer that its calls are made to.
    pub level: Level,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Program {
    /// The steps in groups. The steps of a group are made without waiting in between.
    #[must_use]
    pub fn groups(&self) -> Vec<&[Step]> {
        self.steps.chunk_by(|_, next| next.races).collect()
    }

    /// The number of boundaries inside groups. At each of them the effects of earlier steps may be incomplete.
    #[must_use]
    pub fn boundaries(&self) -> usize {
        self.groups().iter().map(|group| group.len() - 1).sum()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} on the {:?}", self.seed, self.level)?;
        for (number, step) in self.steps.iter().enumerate() {
            let races = if step.races { " (at once)" } else { "" };
            writeln!(f, "  {number:3} {:?} {:?}{races}", step.side, step.action)?;
        }
        Ok(())
    }
}
