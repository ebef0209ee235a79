//! `docs/generated/memory.md`: the tables of memory regions and protection domains, their diagrams, and the effects
//! of a re-registration.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use cmid_proto::memory::table::{Cell, Input, MR, PD, PdInput};
use cmid_proto::memory::{MrState, PdState};
use expect_test::expect_file;

use crate::grid::{go, grid};
use crate::reregistration;

#[test]
fn memory_md_is_what_the_tables_and_the_machine_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/memory.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of memory\n\nRendered by `cargo xtask diagrams`: the first two tables and the diagrams from \
         `proto/src/memory/table.rs`, the rest by running `Region` of `proto/src/memory/region.rs`; do not edit.\n\n\
         A state: it is in that state (· : in the same). *Refused*: with this reason, and nothing changes. Empty: no such call is \
         under way, so the driver is told of its fault, and nothing changes.\n\n## Memory regions\n\n\
         Where it says *registered* and the device has been removed, it is *unusable*.\n\n",
    );
    let inputs: Vec<_> = Input::ALL.iter().map(|input| input.name()).collect();
    let row = |state: MrState| MR[state.index()].iter().map(|&to| cell(state, to)).collect();
    grid(&mut text, "", &inputs, MrState::ALL.into_iter().map(|state| (format!("**{state}**"), row(state))));
    text.push('\n');
    diagram(&mut text, &MrState::ALL, MrState::Registering, MrState::Gone, |state, input| {
        Input::ALL.get(input).map(|&input| (input.name(), MR[state.index()][input.index()]))
    });

    text.push_str(
        "\n## Protection domains\n\nWhere it says *live* and the device has been removed, it is *without its device*. \
         A PD that something belongs to is not deallocated.\n\n",
    );
    let inputs: Vec<_> = PdInput::ALL.iter().map(|input| input.name()).collect();
    let row = |state: PdState| PD[state.index()].iter().map(|&to| cell(state, to)).collect();
    grid(&mut text, "", &inputs, PdState::ALL.into_iter().map(|state| (format!("**{state}**"), row(state))));
    text.push('\n');
    diagram(&mut text, &PdState::ALL, PdState::Allocating, PdState::Gone, |state, input| {
        PdInput::ALL.get(input).map(|&input| (input.name(), PD[state.index()][input.index()]))
    });
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

/// Writes an arrow for each pair of states, with all inputs that lead from one to the other.
fn diagram<S: Copy + Ord + core::fmt::Debug + Display>(
    text: &mut String,
    states: &[S],
    first: S,
    last: S,
    at: impl Fn(S, usize) -> Option<(&'static str, Cell<S>)>,
) {
    text.push_str("```mermaid\nstateDiagram-v2\n");
    for state in states {
        writeln!(text, "    {state:?}: {state}").unwrap();
    }
    writeln!(text, "    [*] --> {first:?}").unwrap();
    for &state in states {
        let mut arrows: BTreeMap<S, Vec<&str>> = BTreeMap::new();
        for (input, cell) in (0..).map_while(|input| at(state, input)) {
            if let Cell::Go(next) = cell {
                if next != state {
                    arrows.entry(next).or_default().push(input);
                }
            }
        }
        for (next, inputs) in arrows {
            writeln!(text, "    {state:?} --> {next:?}: {}", inputs.join(" / ")).unwrap();
        }
    }
    writeln!(text, "    {last:?} --> [*]\n```").unwrap();
}
