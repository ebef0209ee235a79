//! Every kind of cell there is: what a wrong table could have in the place of a right cell.

use cmid_proto::State;
use cmid_proto::table::{EventRule, REQUESTS, RequestRule};

/// A request leads to any state, is refused for any reason that the table knows, or depends on the service.
pub(crate) fn asks() -> Vec<RequestRule> {
    let mut kinds: Vec<_> = State::ALL.map(RequestRule::Go).to_vec();
    for cell in REQUESTS.iter().flatten() {
        if !kinds.contains(cell) {
            kinds.push(*cell);
        }
    }
    kinds
}

/// An event leads to any state, is late, or is a fault.
pub(crate) fn tells() -> Vec<EventRule> {
    State::ALL.map(EventRule::Go).into_iter().chain([EventRule::Late, EventRule::Fault]).collect()
}
