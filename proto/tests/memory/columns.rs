//! The tables of MRs and PDs, stated a second time from the man pages and the kernel: an error in one of the two is
//! found.

use cmid_proto::memory::rules::{Cell, Input, MR, PD, PdInput};
use cmid_proto::memory::{MemoryReason, MrState, PdState};

type Table<S, const WIDTH: usize, const HEIGHT: usize> = [[Cell<S>; WIDTH]; HEIGHT];

fn region(state: MrState, input: Input) -> Cell<MrState> {
    use MrState::{
        Changing, Deregistering, Discarding, Gone, Registered, Registering, Replacing, Retiring, Undoing, Unusable,
    };
    match (input, state) {
        (Input::Reregister, Registered) => Cell::Go(Changing),
        (Input::Deregister, Registered) => Cell::Go(Deregistering),
        (Input::Reregister, Unusable) => Cell::Refuse(MemoryReason::OnlyDeregister),
        (Input::Deregister, Unusable) => Cell::Go(Discarding),
        (Input::Reregister | Input::Deregister, Gone) => Cell::Refuse(MemoryReason::Gone),
        // A call is under way.
        (Input::Reregister | Input::Deregister, _) => Cell::Refuse(MemoryReason::Busy),
        // A call that is under way still returns.
        (Input::Removal, Registered) => Cell::Go(Unusable),
        (Input::Removal, same) => Cell::Go(same),
        (Input::Made, Registering) => Cell::Go(Registered),
        (Input::NotMade, Registering) => Cell::Go(Gone),
        (Input::Made, Replacing) => Cell::Go(Retiring),
        (Input::NotMade, Replacing) => Cell::Go(Registered),
        (Input::New | Input::Old, Changing) => Cell::Go(Registered),
        (Input::Neither, Changing) => Cell::Go(Unusable),
        (Input::Unsupported, Changing) => Cell::Go(Replacing),
        (Input::Ended, Retiring | Undoing) => Cell::Go(Registered),
        (Input::Ended, Deregistering | Discarding) => Cell::Go(Gone),
        (Input::OneEnded, Discarding) => Cell::Go(Discarding),
        (Input::Kept, Retiring) => Cell::Go(Undoing),
        (Input::Kept, Undoing | Discarding) => Cell::Go(Unusable),
        (Input::Kept, Deregistering) => Cell::Go(Registered),
        (Input::Lost, Retiring | Undoing | Deregistering | Discarding) => Cell::Go(Unusable),
        _ => Cell::Fault,
    }
}

fn domain(state: PdState, input: PdInput) -> Cell<PdState> {
    use PdState::{Allocating, Deallocating, Gone, Live, Stranded};
    match (input, state) {
        (PdInput::Use, Live) => Cell::Go(Live),
        (PdInput::Use, Stranded) => Cell::Refuse(MemoryReason::DeviceGone),
        (PdInput::Dealloc, Live | Stranded) => Cell::Go(Deallocating),
        (PdInput::Use | PdInput::Dealloc, Gone) => Cell::Refuse(MemoryReason::Gone),
        (PdInput::Use | PdInput::Dealloc, Allocating | Deallocating) => Cell::Refuse(MemoryReason::Busy),
        (PdInput::Removal, Live) => Cell::Go(Stranded),
        (PdInput::Removal, same) => Cell::Go(same),
        (PdInput::Done, Allocating) | (PdInput::Failed, Deallocating) => Cell::Go(Live),
        (PdInput::Done, Deallocating) | (PdInput::Failed, Allocating) => Cell::Go(Gone),
        (PdInput::Done | PdInput::Failed, Live | Stranded | Gone) => Cell::Fault,
    }
}

/// The cells in which a table differs from this statement.
fn differences<S: Copy + PartialEq, I: Copy, const WIDTH: usize, const HEIGHT: usize>(
    table: &Table<S, WIDTH, HEIGHT>,
    rows: [S; HEIGHT],
    columns: [I; WIDTH],
    stated: fn(S, I) -> Cell<S>,
) -> Vec<(S, I)> {
    let places = rows
        .into_iter()
        .zip(table)
        .flat_map(|(state, row)| columns.into_iter().zip(row).map(move |(input, cell)| (state, input, *cell)));
    places
        .filter(|&(state, input, cell)| stated(state, input) != cell)
        .map(|(state, input, _)| (state, input))
        .collect()
}

#[test]
fn the_tables_are_what_is_stated_here() {
    assert_eq!(differences(&MR, MrState::ALL, Input::ALL, region), []);
    assert_eq!(differences(&PD, PdState::ALL, PdInput::ALL, domain), []);
}
