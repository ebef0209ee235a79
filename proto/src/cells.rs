//! The tables as bytes, derived from [`EVENTS`](crate::table::EVENTS) and [`REQUESTS`](crate::table::REQUESTS) when the
//! crate is compiled: the new state, and in one byte what follows from the change.

use crate::request::PortSpace;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table::{self, EventColumn, EventRule};
use crate::transport::Transport;

/// The number of rows and of columns: a power of two, so that an index needs no bounds check.
const SIDE: usize = 32;
static_assertions::const_assert!(State::COUNT <= SIDE && EventColumn::COUNT <= SIDE && RequestKind::COUNT <= SIDE);

bitflags::bitflags! {
    /// What follows from an event or a request besides the new state.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Effects: u8 {
        /// The operation of the previous state has ended, and its deadline with it.
        const ENDS = 1;
        /// The request ends with an event or at its deadline.
        const WAITS = 2;
        /// The request needs the events of the id's channel.
        const NEEDS_CHANNEL = 4;
        /// The event gives the id a device.
        const BINDS = 8;
        /// The id records more of the request than its new state: its addresses, or that a QP number was sent.
        const NOTED = 128;
        /// The operation of the event has ended.
        const LATE = 16;
        /// The event is not possible.
        const FAULT = 32;
        /// The event or the request needs steps that most do not need.
        const RARE = 64;
    }
}

/// The effect of an event or of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) state: State,
    pub(crate) effects: Effects,
}
static_assertions::assert_eq_size!(Option<Cell>, u16);

impl Cell {
    pub(crate) const fn has(self, effects: Effects) -> bool {
        self.effects.intersects(effects)
    }
}

const fn ends(before: State, state: State) -> Effects {
    let ends = state as usize != before as usize && table::operation(before).is_some();
    if ends { Effects::ENDS } else { Effects::empty() }
}

const fn event_cell(transport: Transport, before: State, column: EventColumn) -> Cell {
    let (state, effects) = match transport.event_rule(before, column) {
        EventRule::Go(state) => (state, Effects::empty()),
        EventRule::Late => (before, Effects::LATE.union(Effects::RARE)),
        EventRule::Fault => (before, Effects::FAULT.union(Effects::RARE)),
    };
    let of_few =
        matches!(column, EventColumn::MulticastJoin | EventColumn::MulticastError | EventColumn::DeviceRemoval);
    // A teardown answers it.
    let is_cut = matches!(column, EventColumn::Disconnected | EventColumn::Rejected) && matches!(state, State::Closing);
    let more = if of_few || is_cut {
        Effects::RARE
    } else if matches!(column, EventColumn::AddrResolved) {
        Effects::BINDS
    } else {
        Effects::empty()
    };
    Cell { state, effects: effects.union(more).union(ends(before, state)) }
}

const fn request_cell(before: State, kind: RequestKind, port_space: PortSpace) -> Option<Cell> {
    let Ok(state) = table::request_rule(before, kind, port_space.service()) else { return None };
    let mut effects = ends(before, state);
    let waits = match table::operation(state) {
        Some(awaited) => awaited as usize == kind as usize,
        None => false,
    };
    if waits {
        effects = effects.union(Effects::WAITS).union(Effects::NEEDS_CHANNEL);
    }
    if matches!(kind, RequestKind::Accept | RequestKind::Join | RequestKind::GetRequest) {
        effects = effects.union(Effects::NEEDS_CHANNEL);
    }
    if matches!(kind, RequestKind::Bind | RequestKind::ResolveAddr | RequestKind::Accept) {
        effects = effects.union(Effects::NOTED);
    }
    // Not always exactly one call.
    if matches!(
        kind,
        RequestKind::Listen
            | RequestKind::AttachQp
            | RequestKind::DetachQp
            | RequestKind::Accept
            | RequestKind::GetRequest
            | RequestKind::Join
            | RequestKind::Leave
            | RequestKind::Migrate
            | RequestKind::Destroy
            | RequestKind::DestroyNow
    ) {
        effects = effects.union(Effects::RARE);
    }
    Some(Cell { state, effects })
}

static EVENTS: [[[Cell; SIDE]; SIDE]; Transport::COUNT] = {
    let impossible = Cell { state: State::Idle, effects: Effects::FAULT.union(Effects::RARE) };
    let mut cells = [[[impossible; SIDE]; SIDE]; Transport::COUNT];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < EventColumn::COUNT {
            let (state, of) = (State::ALL[row], EventColumn::ALL[column]);
            cells[Transport::InfiniBand as usize][row][column] = event_cell(Transport::InfiniBand, state, of);
            cells[Transport::Iwarp as usize][row][column] = event_cell(Transport::Iwarp, state, of);
            column += 1;
        }
        row += 1;
    }
    cells
};

static REQUESTS: [[[Option<Cell>; PortSpace::COUNT]; SIDE]; SIDE] = {
    let mut cells = [[[None; PortSpace::COUNT]; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < RequestKind::COUNT {
            let mut space = 0;
            while space < PortSpace::COUNT {
                cells[row][column][space] =
                    request_cell(State::ALL[row], RequestKind::ALL[column], PortSpace::ALL[space]);
                space += 1;
            }
            column += 1;
        }
        row += 1;
    }
    cells
};

/// The effect of an event.
pub(crate) fn event(transport: Transport, state: State, column: EventColumn) -> Cell {
    EVENTS[transport as usize % Transport::COUNT][state as usize % SIDE][column as usize % SIDE]
}

/// The effect of a request. `None`: the table refuses it.
pub(crate) fn request(state: State, kind: RequestKind, port_space: PortSpace) -> Option<Cell> {
    REQUESTS[state as usize % SIDE][kind as usize % SIDE][port_space as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_events_are_those_of_the_table() {
        for transport in [Transport::InfiniBand, Transport::Iwarp] {
            for (state, column) in State::ALL.into_iter().flat_map(|state| EventColumn::ALL.map(|it| (state, it))) {
                let cell = event(transport, state, column);
                assert_eq!(cell, event_cell(transport, state, column), "{state}: {column}");
                let rule = if cell.has(Effects::LATE) {
                    EventRule::Late
                } else if cell.has(Effects::FAULT) {
                    EventRule::Fault
                } else {
                    EventRule::Go(cell.state)
                };
                assert_eq!(rule, transport.event_rule(state, column), "{state}: {column}");
                let ends = cell.state != state && table::operation(state).is_some();
                assert_eq!(cell.has(Effects::ENDS), ends, "{state}: {column}");
                assert_eq!(cell.has(Effects::BINDS), column == EventColumn::AddrResolved, "{state}: {column}");
            }
        }
    }

    #[test]
    fn the_cells_of_requests_are_those_of_the_table() {
        for (state, kind) in State::ALL.into_iter().flat_map(|state| RequestKind::ALL.map(|kind| (state, kind))) {
            for space in PortSpace::ALL {
                assert_eq!(request(state, kind, space), request_cell(state, kind, space), "{state}: {kind}");
                let Some(cell) = request(state, kind, space) else {
                    assert!(table::request_rule(state, kind, space.service()).is_err(), "{state}: {kind}");
                    continue;
                };
                assert_eq!(table::request_rule(state, kind, space.service()), Ok(cell.state), "{state}: {kind}");
                let ends = cell.state != state && table::operation(state).is_some();
                let waits = table::operation(cell.state) == Some(kind);
                assert_eq!((cell.has(Effects::ENDS), cell.has(Effects::WAITS)), (ends, waits), "{state}: {kind}");
                let needs = waits || [RequestKind::Accept, RequestKind::Join, RequestKind::GetRequest].contains(&kind);
                assert_eq!(cell.has(Effects::NEEDS_CHANNEL), needs, "{state}: {kind}");
            }
        }
    }
}
