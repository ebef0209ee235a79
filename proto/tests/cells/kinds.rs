//! Every kind of cell, as a replacement of a cell of the table in mutation tests.

use cmid_proto::State;
use cmid_proto::table::{EventRule, REQUESTS, RequestRule};

/// Cells of requests: to each state, a refusal for each reason in the table, and cells that depend on the service.
pub(crate) fn request_rules() -> Vec<RequestRule> {
    let mut kinds: Vec<_> = State::ALL.map(RequestRule::Go).to_vec();
    for cell in REQUESTS.iter().flatten() {
        if !kinds.contains(cell) {
            kinds.push(*cell);
        }
    }
    kinds
}

/// Cells of events: to each state, late, and a fault.
pub(crate) fn event_rules() -> Vec<EventRule> {
    State::ALL.map(EventRule::Go).into_iter().chain([EventRule::Late, EventRule::Fault]).collect()
}
