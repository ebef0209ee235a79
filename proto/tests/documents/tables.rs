//! `docs/generated/tables.md`: the core's tables and their diagram, rendered from the code.

use std::fmt::Write as _;

use cmid_proto::table::{self, Ask, Fact, Tell};
use cmid_proto::{State, Verb, Why};
use expect_test::expect_file;

use crate::grid::{go, grid};

#[test]
fn tables_md_is_what_the_tables_say() {
    expect_file!["../../../docs/generated/tables.md"].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of an id\n\nRendered from `proto/src/table.rs` by `cargo xtask diagrams`; do not edit.\n\n## Requests\n\n\
         A state: the request is carried out and the id is in that state (· : in the same). \
         Otherwise it is refused: – where the kernel would answer EINVAL, else with the reason.\n\n",
    );
    let verbs: Vec<_> = Verb::ALL.iter().map(|verb| verb.name()).collect();
    let asked = |state| Verb::ALL.iter().map(|&verb| asked(state, verb)).collect();
    grid(&mut text, "", &verbs, rows(&asked));
    text.push_str(
        "\n## Events\n\nA state: the event is delivered and the id is in that state (· : in the same). *late*: counted, not \
         delivered. **fault**: the device cannot mean it.\n\n",
    );
    let facts: Vec<_> = Fact::ALL.iter().map(|fact| fact.name()).collect();
    let told = |state| Fact::ALL.iter().map(|&fact| told(state, fact)).collect();
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

fn diagram(text: &mut String) {
    text.push_str("```mermaid\nstateDiagram-v2\n");
    for state in State::ALL {
        writeln!(text, "    {state:?}: {state}").unwrap();
    }
    text.push_str("    [*] --> Idle\n    [*] --> Requested: CONNECT_REQUEST\n    [*] --> Asked: CONNECT_REQUEST\n");
    for state in State::ALL {
        for verb in Verb::ALL {
            for next in after(table::REQUESTS[state.index()][verb.index()]) {
                if next != state && next != State::Destroying {
                    writeln!(text, "    {state:?} --> {next:?}: {verb}").unwrap();
                }
            }
        }
        for fact in Fact::ALL {
            if let Tell::Go(next) = table::tell(state, fact)
                && next != state
                && next != State::Removed
            {
                writeln!(text, "    {state:?} --> {next:?}: {fact}").unwrap();
            }
        }
    }
    text.push_str("    Destroying --> [*]\n```\n");
}
