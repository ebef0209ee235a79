//! Requests that were made before their id entered synchronous mode.

use cmid_proto::table::{EventColumn, EventRule};
use cmid_proto::{EventKind, PortSpace, RequestKind, Service, State, Transport};

/// Whether the request ends by an event; otherwise it ends with its call.
pub(crate) fn ends_by_event(request_kind: RequestKind, port_space: Option<PortSpace>) -> bool {
    match request_kind {
        RequestKind::ResolveAddr
        | RequestKind::ResolveRoute
        | RequestKind::Connect
        | RequestKind::Disconnect
        | RequestKind::Teardown
        | RequestKind::GetRequest
        | RequestKind::Join => true,
        // An accept of a SIDR lookup is followed by no event.
        RequestKind::Accept => port_space.is_some_and(|space| space.service() == Service::Connected),
        RequestKind::Bind
        | RequestKind::Listen
        | RequestKind::AttachQp
        | RequestKind::DetachQp
        | RequestKind::Reject
        | RequestKind::Establish
        | RequestKind::Notify
        | RequestKind::Leave
        | RequestKind::SetTos
        | RequestKind::ReuseAddr
        | RequestKind::NoReuseAddr
        | RequestKind::SetAfOnly
        | RequestKind::SetAckTimeout
        | RequestKind::SetEce
        | RequestKind::Migrate
        | RequestKind::Release
        | RequestKind::Destroy
        | RequestKind::DestroyNow => false,
    }
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
