//! Tables of plain cells, derived from [`EVENTS`] and [`REQUESTS`] when the crate is compiled: for the short paths of
//! `machine/short`. A cell is plain if the new state is its only effect in the core.

use crate::request::Service;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table::{self, EVENTS, EventColumn, EventRule};

/// Rows and columns of both tables: a power of two, so that an index needs no check.
const SIDE: usize = 32;
static_assertions::const_assert!(State::COUNT <= SIDE && EventColumn::COUNT <= SIDE && RequestKind::COUNT <= SIDE);

/// The effect of a plain event or request. Aligned so that an index into the table is a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(4))]
pub(crate) struct PlainCell {
    pub(crate) state: State,
    /// The operation of the previous state has ended, and its deadline with it.
    pub(crate) ends: bool,
    /// A request that ends with an event or at its deadline.
    pub(crate) waits: bool,
}

impl PlainCell {
    const fn new(before: State, state: State, waits: bool) -> Self {
        PlainCell { state, ends: state as usize != before as usize && table::operation(before).is_some(), waits }
    }
}

static PLAIN_EVENTS: [[Option<PlainCell>; SIDE]; SIDE] = {
    let mut plain = [[None; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < EventColumn::COUNT {
            if let EventRule::Go(next) = EVENTS[row][column] {
                // A teardown may follow the latter with another call.
                if concerns_the_id_alone(EventColumn::ALL[column]) && !matches!(next, State::Closing) {
                    plain[row][column] = Some(PlainCell::new(State::ALL[row], next, false));
                }
            }
            column += 1;
        }
        row += 1;
    }
    plain
};

const fn concerns_the_id_alone(column: EventColumn) -> bool {
    !matches!(
        column,
        EventColumn::ConnectRequest | EventColumn::MulticastJoin | EventColumn::MulticastError | EventColumn::Deadline
    )
}

/// By state, request kind, and service.
static PLAIN_REQUESTS: [[[Option<PlainCell>; 2]; SIDE]; SIDE] = {
    let mut plain = [[[None; 2]; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < RequestKind::COUNT {
            let (state, request_kind) = (State::ALL[row], RequestKind::ALL[column]);
            plain[row][column][Service::Connected as usize] = plain_request(state, request_kind, Service::Connected);
            plain[row][column][Service::Datagram as usize] = plain_request(state, request_kind, Service::Datagram);
            column += 1;
        }
        row += 1;
    }
    plain
};

const fn plain_request(state: State, request_kind: RequestKind, service: Service) -> Option<PlainCell> {
    match table::request_rule(state, request_kind, service) {
        Ok(next) if is_one_call(request_kind) => {
            let waits = match table::operation(next) {
                Some(awaited) => awaited as usize == request_kind as usize,
                None => false,
            };
            Some(PlainCell::new(state, next, waits))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Whether a request of this kind has no effect outside the core but one device call.
const fn is_one_call(request_kind: RequestKind) -> bool {
    match request_kind {
        RequestKind::Bind
        | RequestKind::ResolveAddr
        | RequestKind::ResolveRoute
        | RequestKind::Connect
        | RequestKind::Accept
        | RequestKind::Reject
        | RequestKind::Establish
        | RequestKind::Disconnect
        | RequestKind::Teardown
        | RequestKind::Notify
        | RequestKind::SetTos
        | RequestKind::ReuseAddr
        | RequestKind::NoReuseAddr
        | RequestKind::SetAfOnly
        | RequestKind::SetAckTimeout
        | RequestKind::SetEce => true,
        RequestKind::Listen
        | RequestKind::AttachQp
        | RequestKind::DetachQp
        | RequestKind::GetRequest
        | RequestKind::Join
        | RequestKind::Leave
        | RequestKind::Migrate
        | RequestKind::Release
        | RequestKind::Destroy
        | RequestKind::DestroyNow => false,
    }
}

/// The effect of a plain event. `None`: the event is not plain in this state.
#[inline]
pub(crate) fn event(state: State, column: EventColumn) -> Option<&'static PlainCell> {
    PLAIN_EVENTS[state as usize % SIDE][column as usize % SIDE].as_ref()
}

/// The effect of a plain request. `None`: the request is not plain in this state.
#[inline]
pub(crate) fn request(state: State, request_kind: RequestKind, service: Service) -> Option<&'static PlainCell> {
    PLAIN_REQUESTS[state as usize % SIDE][request_kind as usize % SIDE][service as usize % 2].as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_cell_is_that_of_its_table() {
        let mut plain = 0;
        for state in State::ALL {
            for column in EventColumn::ALL {
                if let Some(next) = event(state, column) {
                    assert_eq!(table::event_rule(state, column), EventRule::Go(next.state), "{state}: {column}");
                    let ends = next.state != state && table::operation(state).is_some();
                    assert_eq!((next.ends, next.waits), (ends, false), "{state}: {column}");
                    plain += 1;
                }
            }
            let both = |request_kind| [(request_kind, Service::Connected), (request_kind, Service::Datagram)];
            for (request_kind, service) in RequestKind::ALL.into_iter().flat_map(both) {
                if let Some(next) = request(state, request_kind, service) {
                    assert_eq!(
                        table::request_rule(state, request_kind, service),
                        Ok(next.state),
                        "{state}: {request_kind}"
                    );
                    let ends = next.state != state && table::operation(state).is_some();
                    let waits = table::operation(next.state) == Some(request_kind);
                    assert_eq!((next.ends, next.waits), (ends, waits), "{state}: {request_kind}");
                    plain += 1;
                }
            }
        }
        assert!(plain > 250, "{plain} cells");
    }

    #[test]
    fn a_request_with_more_than_one_call_has_no_plain_cell() {
        use RequestKind::{AttachQp, Destroy, DestroyNow, DetachQp, GetRequest, Join, Leave, Listen, Migrate, Release};
        for state in State::ALL {
            for service in [Service::Connected, Service::Datagram] {
                for request_kind in
                    [Listen, AttachQp, DetachQp, GetRequest, Join, Leave, Migrate, Release, Destroy, DestroyNow]
                {
                    assert!(request(state, request_kind, service).is_none(), "{state}: {request_kind}");
                }
            }
        }
    }
}
