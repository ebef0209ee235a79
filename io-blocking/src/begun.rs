//! Requests that were begun before their id was in synchronous mode.

use cmid_proto::table::{self, Fact, Tell};
use cmid_proto::{EventKind, PortSpace, Service, State, Verb};

/// Whether a request ends by an event, and not with its call.
pub(crate) fn ends_by_event(verb: Verb, port_space: Option<PortSpace>) -> bool {
    match verb {
        Verb::ResolveAddr
        | Verb::ResolveRoute
        | Verb::Connect
        | Verb::Disconnect
        | Verb::Teardown
        | Verb::GetRequest
        | Verb::Join => true,
        // Nothing follows the answer to a lookup.
        Verb::Accept => port_space.is_some_and(|space| space.service() == Service::Connected),
        Verb::Bind
        | Verb::Listen
        | Verb::AttachQp
        | Verb::DetachQp
        | Verb::Reject
        | Verb::Establish
        | Verb::Notify
        | Verb::Leave
        | Verb::SetTos
        | Verb::ReuseAddr
        | Verb::NoReuseAddr
        | Verb::SetAfOnly
        | Verb::SetAckTimeout
        | Verb::SetEce
        | Verb::Migrate
        | Verb::Release
        | Verb::Destroy
        | Verb::DestroyNow => false,
    }
}

/// Whether this event ended the request that was under way in this state.
pub(crate) fn is_end(event: EventKind, verb: Verb, begun: State) -> bool {
    match event {
        EventKind::Cm(kind) => matches!(table::tell(begun, Fact::of(kind)), Tell::Go(next) if next != begun),
        EventKind::DeadlinePassed(of) => of == verb,
        EventKind::Migrated | EventKind::Destroyed | EventKind::Left => false,
    }
}
