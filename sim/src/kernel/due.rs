//! What is due at a time: the payload of the fabric's timers.

use std::net::IpAddr;

use cmid_proto::GroupKey;

use crate::data::packet::Transfer;
use crate::index::IdNo;
use crate::kernel::wire::Message;

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Due {
    /// A connection manager's message arrives.
    Message(Message),
    /// An address lookup ends (the queue of `addr.c`).
    Address { id: IdNo, outcome: Lookup },
    /// A route is known (`cma_wq`).
    Route { id: IdNo },
    /// A multicast group is joined (`cma_wq`).
    Joined { id: IdNo, group: GroupKey },
    /// A message of this id was not answered in time.
    Unanswered { id: IdNo },
    /// The time wait of this id is over.
    TimeWaitOver { id: IdNo },
    /// Something of the data path arrives.
    Data(Transfer),
}

/// How an address lookup ends: the own address to use, or the status of an ADDR_ERROR.
pub(crate) type Lookup = Result<IpAddr, i32>;
