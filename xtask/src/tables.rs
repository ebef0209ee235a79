//! `docs/tables.md`: the core's tables and their diagram, rendered from the code.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use cmid_proto::table::{self, Ask, Fact, Tell};
use cmid_proto::{State, Verb, Why};

use crate::context::Context;

const FILE: &str = "docs/tables.md";

/// Writes the file.
pub(crate) fn write(context: &Context) -> Result<()> {
    let path = context.root.join(FILE);
    fs::create_dir_all(path.parent().context(FILE)?).context(FILE)?;
    fs::write(path, render()).context(FILE)
}

/// The file says what the code says.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let written = fs::read_to_string(context.root.join(FILE)).context(FILE)?;
    ensure!(written == render(), "{FILE} is not what the tables say: run `cargo xtask diagrams`");
    Ok(())
}

fn render() -> String {
    let mut text = String::from(
        "# The life of an id\n\nRendered from `proto/src/table.rs` by `cargo xtask diagrams`; do not edit.\n\n## Requests\n\n\
         A state: the request is carried out and the id is in that state (· : in the same). \
         Otherwise it is refused: – where the kernel would answer EINVAL, else with the reason.\n\n",
    );
    let verbs: Vec<_> = Verb::ALL.iter().map(|verb| verb.name()).collect();
    grid(&mut text, &verbs, |state| Verb::ALL.iter().map(|&verb| asked(state, verb)).collect());
    text.push_str(
        "\n## Events\n\nA state: the event is delivered and the id is in that state (· : in the same). *late*: counted, not \
         delivered. **fault**: the device cannot mean it.\n\n",
    );
    let facts: Vec<_> = Fact::ALL.iter().map(|fact| fact.name()).collect();
    grid(&mut text, &facts, |state| Fact::ALL.iter().map(|&fact| told(state, fact)).collect());
    text.push_str(
        "\n## Diagram\n\nWhat changes a state, without destruction and device removal, which any state knows.\n\n",
    );
    diagram(&mut text);
    text
}

fn grid(text: &mut String, columns: &[&str], row: impl Fn(State) -> Vec<String>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "| | {} |\n| --- |{}", columns.join(" | "), " --- |".repeat(columns.len()));
    for state in State::ALL {
        let _ = writeln!(text, "| **{state}** | {} |", row(state).join(" | "));
    }
}

fn asked(state: State, verb: Verb) -> String {
    match table::REQUESTS[state.index()][verb.index()] {
        Ask::Go(next) => go(state, next),
        Ask::By { connected, datagram } => format!("{connected}; for datagrams {datagram}"),
        Ask::Refuse(Why::WrongState) => "–".into(),
        Ask::Refuse(why) => format!("*{why}*"),
    }
}

fn told(state: State, fact: Fact) -> String {
    match table::tell(state, fact) {
        Tell::Go(next) => go(state, next),
        Tell::Late => "*late*".into(),
        Tell::Fault => "**fault**".into(),
    }
}

fn after(cell: Ask) -> impl Iterator<Item = State> {
    let (first, second) = match cell {
        Ask::Go(next) => (Some(next), None),
        Ask::By { connected, datagram } => (Some(connected), Some(datagram)),
        Ask::Refuse(_) => (None, None),
    };
    first.into_iter().chain(second)
}

fn go(state: State, next: State) -> String {
    if state == next { "·".into() } else { next.name().into() }
}

fn diagram(text: &mut String) {
    text.push_str("```mermaid\nstateDiagram-v2\n");
    for state in State::ALL {
        let _ = writeln!(text, "    {state:?}: {state}");
    }
    text.push_str("    [*] --> Idle\n    [*] --> Requested: CONNECT_REQUEST\n    [*] --> Asked: CONNECT_REQUEST\n");
    for state in State::ALL {
        for verb in Verb::ALL {
            for next in after(table::REQUESTS[state.index()][verb.index()]) {
                if next != state && next != State::Destroying {
                    let _ = writeln!(text, "    {state:?} --> {next:?}: {verb}");
                }
            }
        }
        for fact in Fact::ALL {
            if let Tell::Go(next) = table::tell(state, fact)
                && next != state
                && next != State::Removed
            {
                let _ = writeln!(text, "    {state:?} --> {next:?}: {fact}");
            }
        }
    }
    text.push_str("    Destroying --> [*]\n```\n");
}
