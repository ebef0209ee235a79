//! Programs: lists of calls of two sides, in order.

use std::fmt;

use cmid_proto::{CmOption, PortSpace, Transport};
use serde::{Deserialize, Serialize};

use crate::address::Endpoint;
use crate::data_step::DataStep;

/// The layer that a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// The bare device: librdmacm, or the simulator in its place. Only the kernel checks the calls.
    Device,
    /// The core and its loop ([`cmid_proto::Drive`]), as called by an application.
    Core,
}

/// The network that a program runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// Soft-RoCE.
    #[default]
    Roce,
    /// Soft-iWARP. It has no datagrams and no multicast.
    Iwarp,
}

impl Network {
    /// The transport of its devices.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Network::Roce => Transport::InfiniBand,
            Network::Iwarp => Transport::Iwarp,
        }
    }

    /// Whether it is soft-RoCE.
    #[must_use]
    pub fn is_roce(&self) -> bool {
        *self == Network::Roce
    }
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

/// A call about an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of librdmacm's calls and of their arguments")]
pub enum IdCall {
    Bind(Endpoint),
    ResolveAddr {
        src: Option<Endpoint>,
        dst: Endpoint,
    },
    ResolveRoute,
    Listen(i32),
    AttachQp,
    /// A QP with 4,000,000 work requests.
    AttachHugeQp,
    DetachQp,
    Connect(Offer),
    Accept(Offer),
    Reject {
        ece: bool,
        data: u8,
    },
    Establish,
    Disconnect,
    /// Core only.
    Teardown,
    Notify,
    /// Core only.
    GetRequest,
    Join {
        group: u8,
        send_only: bool,
    },
    Leave(u8),
    SetOption(CmOption),
    SetEce(u32),
    Migrate(Option<ChannelNo>),
    Destroy,
    /// Device only.
    Data(DataStep),
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Opens a channel.
    OpenChannel {
        /// Its number.
        channel: ChannelNo,
        /// Core only: whether its events are acked by [`Action::Ack`].
        explicit_acks: bool,
    },
    /// Closes a channel.
    CloseChannel(ChannelNo),
    /// Creates an id.
    Create {
        /// Its slot.
        id: Slot,
        /// Its channel; in synchronous mode none.
        channel: Option<ChannelNo>,
        /// Its port space.
        space: PortSpace,
    },
    /// Makes a call about an id.
    On(Slot, IdCall),
    /// Core only: reports all channels as readable, and lets the core read the private ones.
    Turn,
    /// Reads this many events from a channel, or all.
    Read {
        /// The channel.
        channel: ChannelNo,
        /// The number of events.
        most: Option<u8>,
    },
    /// Core only: returns the oldest ack tokens, up to this number.
    Ack(u8),
    /// Both sides wait until every time wait is over.
    LetTimePass,
}

impl Action {
    /// Whether it is a call, not a read of events.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Action::OpenChannel { .. } | Action::CloseChannel(_) | Action::Create { .. } | Action::On(..))
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
    /// The network that it runs on.
    #[serde(default, skip_serializing_if = "Network::is_roce")]
    pub network: Network,
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
        writeln!(f, "seed {} on the {:?}, {:?}", self.seed, self.level, self.network)?;
        for (number, step) in self.steps.iter().enumerate() {
            let races = if step.races { " (at once)" } else { "" };
            writeln!(f, "  {number:3} {:?} {:?}{races}", step.side, step.action)?;
        }
        Ok(())
    }
}
