//! `docs/tables.md`: the core's tables and their diagram, rendered from the code.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use cmid_proto::table::{self, EventColumn, EventRule, RequestRule};
use cmid_proto::{RefuseReason, RequestKind, State};

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
    let verbs: Vec<_> = RequestKind::ALL.iter().map(|request_kind| request_kind.name()).collect();
    let asked = |state| RequestKind::ALL.iter().map(|&request_kind| asked(state, request_kind)).collect();
    grid(&mut text, "", &verbs, rows(&asked));
    text.push_str(
        "\n## Events\n\nA state: the event is delivered and the id is in that state (· : in the same). *late*: counted, not \
         delivered. **fault**: the device cannot mean it.\n\n",
    );
    let facts: Vec<_> = EventColumn::ALL.iter().map(|fact| fact.name()).collect();
    let told = |state| EventColumn::ALL.iter().map(|&fact| told(state, fact)).collect();
    grid(&mut text, "", &facts, rows(&told));
    text.push_str(
        "\n## Diagram\n\nWhat changes a state, without destruction and device removal, which any state knows.\n\n",
    );
    diagram(&mut text);
    text
}

fn rows(row: &dyn Fn(State) -> Vec<String>) -> impl Iterator<Item = (String, Vec<String>)> {
    State::ALL.into_iter().map(move |state| (format!("**{state}**"), row(state)))
}

/// A table: its corner, its columns, and for each row a name and a cell for each column.
pub(crate) fn grid(
    text: &mut String,
    corner: &str,
    columns: &[&str],
    rows: impl IntoIterator<Item = (String, Vec<String>)>,
) {
    // Writing to a string does not fail.
    let corner = if corner.is_empty() { "|".to_owned() } else { format!("| {corner}") };
    let _ = writeln!(text, "{corner} | {} |\n| --- |{}", columns.join(" | "), " --- |".repeat(columns.len()));
    for (name, cells) in rows {
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
}

fn asked(state: State, request_kind: RequestKind) -> String {
    match table::REQUESTS[state.index()][request_kind.index()] {
        RequestRule::Go(next) => go(state, next),
        RequestRule::By { connected, datagram } => format!("{connected}; for datagrams {datagram}"),
        RequestRule::Refuse(RefuseReason::WrongState) => "–".into(),
        RequestRule::Refuse(reason) => format!("*{reason}*"),
    }
}

fn told(state: State, fact: EventColumn) -> String {
    match table::event_rule(state, fact) {
        EventRule::Go(next) => go(state, next),
        EventRule::Late => "*late*".into(),
        EventRule::Fault => "**fault**".into(),
    }
}

fn after(cell: RequestRule) -> impl Iterator<Item = State> {
    let (first, second) = match cell {
        RequestRule::Go(next) => (Some(next), None),
        RequestRule::By { connected, datagram } => (Some(connected), Some(datagram)),
        RequestRule::Refuse(_) => (None, None),
    };
    first.into_iter().chain(second)
}

/// The state that it leads to, or a dot for the same.
pub(crate) fn go<S: PartialEq + ToString>(state: S, next: S) -> String {
    if state == next { "·".into() } else { next.to_string() }
}

fn diagram(text: &mut String) {
    text.push_str("```mermaid\nstateDiagram-v2\n");
    for state in State::ALL {
        let _ = writeln!(text, "    {state:?}: {state}");
    }
    text.push_str(
        "    [*] --> Idle\n    [*] --> Requested: CONNECT_REQUEST\n    [*] --> SidrReqReceived: CONNECT_REQUEST\n",
    );
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            for next in after(table::REQUESTS[state.index()][request_kind.index()]) {
                if next != state && next != State::Destroying {
                    let _ = writeln!(text, "    {state:?} --> {next:?}: {request_kind}");
                }
            }
        }
        for fact in EventColumn::ALL {
            if let EventRule::Go(next) = table::event_rule(state, fact)
                && next != state
                && next != State::Removed
            {
                let _ = writeln!(text, "    {state:?} --> {next:?}: {fact}");
            }
        }
    }
    text.push_str("    Destroying --> [*]\n```\n");
}
