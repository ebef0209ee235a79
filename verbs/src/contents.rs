//! The contents of an event besides its type and status, by its type.

use cmid_proto::CmEvent;

/// The contents of the union in an event.
pub(crate) enum Contents {
    /// Not read.
    Nothing,
    /// An integer of 64 bits, which becomes the private data.
    Argument,
    /// Parameters and private data.
    Parameters,
    /// The group, and the context of the join in place of private data.
    Group,
}

pub(crate) const fn contents(kind: CmEvent) -> Contents {
    match kind {
        CmEvent::ConnectRequest
        | CmEvent::ConnectResponse
        | CmEvent::ConnectError
        | CmEvent::Unreachable
        | CmEvent::Rejected
        | CmEvent::Established
        | CmEvent::Disconnected => Contents::Parameters,
        CmEvent::MulticastJoin | CmEvent::MulticastError => Contents::Group,
        CmEvent::User => Contents::Argument,
        CmEvent::AddrResolved
        | CmEvent::AddrError
        | CmEvent::RouteResolved
        | CmEvent::RouteError
        | CmEvent::DeviceRemoval
        | CmEvent::AddrChange
        | CmEvent::TimewaitExit
        | CmEvent::AddrinfoResolved
        | CmEvent::AddrinfoError
        | CmEvent::Internal
        | CmEvent::Unknown(_) => Contents::Nothing,
    }
}
