//! The payload of the fabric's timers.

use std::net::IpAddr;

use cmid_proto::GroupKey;

use crate::data::packet::Transfer;
use crate::index::IdNo;
use crate::kernel::iw_conn::IwMessage;
use crate::kernel::wire::Message;

/// An event at a set time.
#[derive(Debug)]
pub(crate) enum Due {
    /// A connection manager's message arrives.
    Message(Box<Message>),
    /// An address lookup ends (the queue of `addr.c`).
    Address { id: IdNo, outcome: Lookup },
    /// A route lookup ends (`cma_wq`).
    Route { id: IdNo },
    /// A multicast join ends (`cma_wq`).
    Joined { id: IdNo, group: GroupKey },
    /// A message of this id is not answered in time.
    Unanswered { id: IdNo },
    /// A message of an iWARP connection arrives.
    Iw { from: IdNo, to: IdNo, message: IwMessage },
    /// The time wait of this id ends.
    TimeWaitOver { id: IdNo },
    /// The way of a rule is there again ([`Rule::flap`](crate::Rule::flap)).
    Flap { rule: u64 },
    /// An item of the data path arrives.
    Data(Transfer),
}

/// The result of an address lookup: the local address, or the status of an ADDR_ERROR.
pub(crate) type Lookup = Result<IpAddr, i32>;
