//! Requests that were begun before their id was in synchronous mode.

use cmid_proto::table::{self, EventColumn, EventRule};
use cmid_proto::{EventKind, PortSpace, RequestKind, Service, State};

/// Whether a request ends by an event, and not with its call.
pub(crate) fn ends_by_event(request_kind: RequestKind, port_space: Option<PortSpace>) -> bool {
    match request_kind {
        RequestKind::ResolveAddr
        | RequestKind::ResolveRoute
        | RequestKind::Connect
        | RequestKind::Disconnect
        | RequestKind::Teardown
        | RequestKind::GetRequest
        | RequestKind::Join => true,
        // Nothing follows the answer to a lookup.
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

/// Whether this event ended the request that was under way in this state.
pub(crate) fn is_end(event: EventKind, request_kind: RequestKind, begun: State) -> bool {
    match event {
        EventKind::Cm(kind) => {
            matches!(table::event_rule(begun, EventColumn::of(kind)), EventRule::Go(next) if next != begun)
        }
        EventKind::DeadlinePassed(of) => of == request_kind,
        EventKind::Migrated | EventKind::Destroyed | EventKind::Left => false,
    }
}
