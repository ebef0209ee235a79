//! Tables of plain cells, derived from [`EVENTS`] and [`REQUESTS`] when the crate is compiled: for the short paths of
//! `machine/short`. A cell is plain if the new state is its only effect in the core.

use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table::{self, EVENTS, EventColumn, EventRule};

/// The number of rows and of columns of both tables: a power of two, so that an index needs no bounds check.
const SIDE: usize = 32;
static_assertions::const_assert!(State::COUNT <= SIDE && EventColumn::COUNT <= SIDE && RequestKind::COUNT <= SIDE);

/// The effect of a plain event or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainCell {
    pub(crate) state: State,
    /// The bits `ENDS`, `WAITS` and `NEEDS_CHANNEL` in one byte, so that one comparison checks several.
    effects: u8,
}

// The size is a power of two, so that an index into the table is a shift.
static_assertions::assert_eq_size!(Option<PlainCell>, u16);

impl PlainCell {
    const ENDS: u8 = 1;
    const WAITS: u8 = 2;
    const NEEDS_CHANNEL: u8 = 4;

    const fn of_event(before: State, state: State) -> Self {
        let ends = state as usize != before as usize && table::operation(before).is_some();
        PlainCell { state, effects: if ends { PlainCell::ENDS } else { 0 } }
    }

    const fn of_request(before: State, state: State, request_kind: RequestKind) -> Self {
        let mut cell = PlainCell::of_event(before, state);
        let waits = match table::operation(state) {
            Some(awaited) => awaited as usize == request_kind as usize,
            None => false,
        };
        if waits {
            cell.effects |= PlainCell::WAITS;
        }
        if waits || matches!(request_kind, RequestKind::Accept) {
            cell.effects |= PlainCell::NEEDS_CHANNEL;
        }
        cell
    }

    /// Whether the operation of the previous state has ended, and its deadline with it.
    #[inline(always)]
    pub(crate) const fn ends(self) -> bool {
        self.effects & PlainCell::ENDS != 0
    }

    /// Whether the request ends with an event or at its deadline.
    #[inline(always)]
    pub(crate) const fn waits(self) -> bool {
        self.effects & PlainCell::WAITS != 0
    }

    /// Whether the deadline of the id changes.
    #[inline(always)]
    pub(crate) const fn sets_deadline(self) -> bool {
        self.effects & (PlainCell::ENDS | PlainCell::WAITS) != 0
    }

    /// Whether the request depends on the channel of its id: a request that waits for an event, or an accept.
    #[inline(always)]
    pub(crate) const fn needs_channel(self) -> bool {
        self.effects & PlainCell::NEEDS_CHANNEL != 0
    }
}

static PLAIN_EVENTS: [[Option<PlainCell>; SIDE]; SIDE] = {
    let mut plain = [[None; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < EventColumn::COUNT {
            if let EventRule::Go(next) = EVENTS[row][column] {
                // A teardown may make another call after an event that leads to `Closing`.
                if concerns_the_id_alone(EventColumn::ALL[column]) && !matches!(next, State::Closing) {
                    plain[row][column] = Some(PlainCell::of_event(State::ALL[row], next));
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

/// Plain requests by state, request kind and port space.
static PLAIN_REQUESTS: [[[Option<PlainCell>; PortSpace::COUNT]; SIDE]; SIDE] = {
    let mut plain = [[[None; PortSpace::COUNT]; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < RequestKind::COUNT {
            let mut space = 0;
            while space < PortSpace::COUNT {
                plain[row][column][space] =
                    plain_request(State::ALL[row], RequestKind::ALL[column], PortSpace::ALL[space]);
                space += 1;
            }
            column += 1;
        }
        row += 1;
    }
    plain
};

const fn plain_request(state: State, request_kind: RequestKind, port_space: PortSpace) -> Option<PlainCell> {
    match table::request_rule(state, request_kind, port_space.service()) {
        Ok(next) if is_one_call(request_kind) => Some(PlainCell::of_request(state, next, request_kind)),
        Ok(_) | Err(_) => None,
    }
}

/// Whether the only effect of a request of this kind outside the core is one device call.
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
pub(crate) fn request(state: State, request_kind: RequestKind, port_space: PortSpace) -> Option<&'static PlainCell> {
    PLAIN_REQUESTS[state as usize % SIDE][request_kind as usize % SIDE][port_space as usize].as_ref()
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
                    assert_eq!((next.ends(), next.waits()), (ends, false), "{state}: {column}");
                    assert_eq!((next.sets_deadline(), next.needs_channel()), (ends, false), "{state}: {column}");
                    plain += 1;
                }
            }
            let all = |request_kind| PortSpace::ALL.map(|port_space| (request_kind, port_space));
            for (request_kind, port_space) in RequestKind::ALL.into_iter().flat_map(all) {
                if let Some(next) = request(state, request_kind, port_space) {
                    assert_eq!(
                        table::request_rule(state, request_kind, port_space.service()),
                        Ok(next.state),
                        "{state}: {request_kind}"
                    );
                    let ends = next.state != state && table::operation(state).is_some();
                    let waits = table::operation(next.state) == Some(request_kind);
                    assert_eq!((next.ends(), next.waits()), (ends, waits), "{state}: {request_kind}");
                    let needs_channel = waits || request_kind == RequestKind::Accept;
                    assert_eq!(
                        (next.sets_deadline(), next.needs_channel()),
                        (ends || waits, needs_channel),
                        "{state}: {request_kind}"
                    );
                    plain += 1;
                }
            }
        }
        assert!(plain > 360, "{plain} cells");
    }

    /// Each cell has the index that `event` and `request` use.
    #[test]
    fn the_cells_are_at_their_indices() {
        for state in State::ALL {
            for column in EventColumn::ALL {
                if let Some(&cell) = event(state, column) {
                    assert_eq!(cell, PlainCell::of_event(state, cell.state), "{state}: {column}");
                    assert!(concerns_the_id_alone(column), "{state}: {column}");
                }
            }
            for request_kind in RequestKind::ALL {
                for port_space in PortSpace::ALL {
                    let cell = plain_request(state, request_kind, port_space);
                    assert_eq!(request(state, request_kind, port_space), cell.as_ref(), "{state}: {request_kind}");
                }
            }
        }
    }

    #[test]
    fn a_request_with_more_than_one_call_has_no_plain_cell() {
        use RequestKind::{AttachQp, Destroy, DestroyNow, DetachQp, GetRequest, Join, Leave, Listen, Migrate, Release};
        for state in State::ALL {
            for port_space in PortSpace::ALL {
                for request_kind in
                    [Listen, AttachQp, DetachQp, GetRequest, Join, Leave, Migrate, Release, Destroy, DestroyNow]
                {
                    assert!(request(state, request_kind, port_space).is_none(), "{state}: {request_kind}");
                }
            }
        }
    }
}
