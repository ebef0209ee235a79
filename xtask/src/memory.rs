//! `docs/memory.md`: the tables of memory regions and protection domains, their diagrams, and what a re-registration leaves.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use cmid_proto::memory::table::{Cell, Input, MR, PD, PdInput};
use cmid_proto::memory::{MrState, PdState};

use crate::context::Context;
use crate::reregistration;
use crate::tables::{go, grid};

const FILE: &str = "docs/memory.md";

/// Writes the file.
pub(crate) fn write(context: &Context) -> Result<()> {
    fs::write(context.root.join(FILE), render()?).context(FILE)
}

/// The file says what the code says.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let written = fs::read_to_string(context.root.join(FILE)).context(FILE)?;
    ensure!(written == render()?, "{FILE} is not what the machines do: run `cargo xtask diagrams`");
    Ok(())
}

fn render() -> Result<String> {
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
    reregistration::render(&mut text)?;
    Ok(text)
}

fn cell<S: PartialEq + ToString>(state: S, cell: Cell<S>) -> String {
    match cell {
        Cell::Go(next) => go(state, next),
        Cell::Refuse(reason) => format!("*{reason}*"),
        Cell::Fault => String::new(),
    }
}

/// An arrow for each pair of states, with all inputs that lead from one to the other.
fn diagram<S: Copy + Ord + core::fmt::Debug + Display>(
    text: &mut String,
    states: &[S],
    first: S,
    last: S,
    at: impl Fn(S, usize) -> Option<(&'static str, Cell<S>)>,
) {
    // Writing to a string does not fail.
    text.push_str("```mermaid\nstateDiagram-v2\n");
    for state in states {
        let _ = writeln!(text, "    {state:?}: {state}");
    }
    let _ = writeln!(text, "    [*] --> {first:?}");
    for &state in states {
        let mut arrows: BTreeMap<S, Vec<&str>> = BTreeMap::new();
        for (input, cell) in (0..).map_while(|input| at(state, input)) {
            if let Cell::Go(next) = cell
                && next != state
            {
                arrows.entry(next).or_default().push(input);
            }
        }
        for (next, inputs) in arrows {
            let _ = writeln!(text, "    {state:?} --> {next:?}: {}", inputs.join(" / "));
        }
    }
    let _ = writeln!(text, "    {last:?} --> [*]\n```");
}
