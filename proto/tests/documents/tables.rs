//! `docs/generated/tables.md`: the core's tables and their diagram, rendered from the code.

use cmid_proto::table::{self, EventColumn, EventRule, RequestRule};
use cmid_proto::{RefuseReason, RequestKind, State};
use expect_test::expect_file;

use crate::diagram::StateDiagram;
use crate::grid::{go, grid};

#[test]
fn tables_md_is_what_the_tables_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/tables.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of an id\n\nRendered from `proto/src/table.rs` by `cargo xtask diagrams`; do not edit.\n\n## Requests\n\n\
         A state: the request is carried out, and the id enters that state (· : stays in its state). \
         If the device refuses the call, the id returns to the previous state; it has *failed* if the call was an answer \
         to the peer (`table::after_failure`). \
         In all other cells the request is refused: – if the kernel would return EINVAL, otherwise with the reason.\n\n",
    );
    let verbs: Vec<_> = RequestKind::ALL.iter().map(|request_kind| request_kind.name()).collect();
    let request_cells =
        |state| RequestKind::ALL.iter().map(|&request_kind| request_cell(state, request_kind)).collect();
    grid(&mut text, "", &verbs, rows(&request_cells));
    text.push_str(
        "\n## Events\n\nA state: the event is delivered, and the id enters that state (· : stays in its state). *late*: \
         counted, not delivered. **fault**: impossible, counted and reported as a fault.\n\n",
    );
    let events: Vec<_> = EventColumn::ALL.iter().map(|column| column.name()).collect();
    let event_cells = |state| EventColumn::ALL.iter().map(|&column| event_cell(state, column)).collect();
    grid(&mut text, "", &events, rows(&event_cells));
    text.push_str(
        "\n## Diagram\n\nAll changes of states, except by a destruction or a device removal, which are possible in every state.\n\n\
         ![The states of an id](pictures/id.svg)\n",
    );
    text
}

fn rows(row: &dyn Fn(State) -> Vec<String>) -> impl Iterator<Item = (String, Vec<String>)> {
    State::ALL.into_iter().map(move |state| (format!("**{state}**"), row(state)))
}

fn request_cell(state: State, request_kind: RequestKind) -> String {
    match table::REQUESTS[state.index()][request_kind.index()] {
        RequestRule::Go(next) => go(state, next),
        RequestRule::By { connected, datagram } => format!("{connected}; for datagrams {datagram}"),
        RequestRule::Refuse(RefuseReason::WrongState) => "–".into(),
        RequestRule::Refuse(reason) => format!("*{reason}*"),
    }
}

fn event_cell(state: State, column: EventColumn) -> String {
    match table::event_rule(state, column) {
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

#[test]
fn the_picture_of_an_id_shows_what_the_tables_say() {
    let mut diagram = StateDiagram::new(&State::ALL);
    diagram.begin(State::Idle, "create_id");
    for state in [State::Requested, State::SidrReqReceived] {
        diagram.begin(state, "CONNECT_REQUEST");
    }
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            for next in after(table::REQUESTS[state.index()][request_kind.index()]) {
                if next != state && next != State::Destroying {
                    diagram.arrow(state, next, request_kind.name());
                }
            }
        }
        for column in EventColumn::ALL {
            if let EventRule::Go(next) = table::event_rule(state, column) {
                if next != state && next != State::Removed {
                    diagram.arrow(state, next, column.name());
                }
            }
        }
    }
    diagram.check("id");
}
