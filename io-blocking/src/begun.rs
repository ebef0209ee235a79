//! Requests that were made before their id entered synchronous mode.

use cmid_proto::table::{self, EventColumn, EventRule};
use cmid_proto::{EventKind, PortSpace, RequestKind, Service, State, Transport};

/// Whether the request ends by an event; otherwise it ends with its call.
pub(crate) fn ends_by_event(request_kind: RequestKind, port_space: Option<PortSpace>) -> bool {
    if request_kind == RequestKind::Accept {
        // An accept of a SIDR lookup is followed by no event.
        return port_space.is_some_and(|space| space.service() == Service::Connected);
    }
    // These wait in no state of their own.
    matches!(request_kind, RequestKind::GetRequest | RequestKind::Join)
        || (request_kind != RequestKind::Destroy
            && State::ALL.into_iter().any(|state| table::operation(state) == Some(request_kind)))
}

/// Whether this event ends the request that was under way in state `begun`.
pub(crate) fn is_end(event: EventKind, request_kind: RequestKind, begun: State, transport: Transport) -> bool {
    match event {
        EventKind::Cm(kind) => {
            matches!(transport.event_rule(begun, EventColumn::of(kind)), EventRule::Go(next) if next != begun)
        }
        EventKind::DeadlinePassed(of) => of == request_kind,
        EventKind::Migrated | EventKind::Destroyed | EventKind::Left => false,
    }
}
