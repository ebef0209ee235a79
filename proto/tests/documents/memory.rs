//! `docs/generated/memory.md`: the tables of memory regions and protection domains, their diagrams, and the effects
//! of a re-registration.

use cmid_proto::memory::rules::{Cell, Input, MR, PD, PdInput};
use cmid_proto::memory::{MrState, PdState};
use expect_test::expect_file;

use crate::diagram::StateDiagram;
use crate::grid::{go, grid};
use crate::reregistration;

#[test]
fn memory_md_is_what_the_tables_and_the_machine_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/memory.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of memory\n\nRendered by `cargo xtask diagrams`: the first two tables and the diagrams from \
         `proto/src/memory/rules.rs`, the rest from \
         `proto/tests/memory/rules.rs`, which `Region` is tested against in each case; do not edit.\n\n\
         A cell is the next state (· : the same state), or in italics the reason of a refusal, which changes nothing. \
         Empty: no such call is under way, so the driver gets a fault, and nothing changes.\n\n## Memory regions\n\n\
         After a removal of the device, *unusable* replaces *registered* as the next state.\n\n",
    );
    let inputs: Vec<_> = Input::ALL.iter().map(|input| input.name()).collect();
    let row = |state: MrState| MR[state.index()].iter().map(|&to| cell(state, to)).collect();
    grid(&mut text, "", &inputs, MrState::ALL.into_iter().map(|state| (format!("**{state}**"), row(state))));
    text.push_str("\n![The states of a memory region](pictures/memory-region.svg)\n");

    text.push_str(
        "\n## Protection domains\n\nAfter a removal of the device, *without its device* replaces *live* as the next \
         state. The deallocation of a PD with users is refused.\n\n",
    );
    let inputs: Vec<_> = PdInput::ALL.iter().map(|input| input.name()).collect();
    let row = |state: PdState| PD[state.index()].iter().map(|&to| cell(state, to)).collect();
    grid(&mut text, "", &inputs, PdState::ALL.into_iter().map(|state| (format!("**{state}**"), row(state))));
    text.push_str("\n![The states of a protection domain](pictures/protection-domain.svg)\n");
    text.push('\n');
    reregistration::render(&mut text);
    text
}

fn cell<S: PartialEq + ToString>(state: S, cell: Cell<S>) -> String {
    match cell {
        Cell::Go(next) => go(state, next),
        Cell::Refuse(reason) => format!("*{reason}*"),
        Cell::Fault => String::new(),
    }
}

#[test]
fn the_pictures_of_memory_show_what_the_tables_say() {
    let mut mr = StateDiagram::new(&MrState::ALL);
    mr.begin(MrState::Registering, "");
    for state in MrState::ALL {
        for input in Input::ALL {
            if let Cell::Go(next) = MR[state.index()][input.index()] {
                if next != state {
                    mr.arrow(state, next, input.name());
                }
            }
        }
    }
    mr.check("memory-region");

    let mut pd = StateDiagram::new(&PdState::ALL);
    pd.begin(PdState::Allocating, "");
    for state in PdState::ALL {
        for input in PdInput::ALL {
            if let Cell::Go(next) = PD[state.index()][input.index()] {
                if next != state {
                    pd.arrow(state, next, input.name());
                }
            }
        }
    }
    pd.check("protection-domain");
}
