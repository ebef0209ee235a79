//! `docs/generated/messages.md`: the table of an exchange of messages.

use cmid_proto::messages::Stage;
use cmid_proto::messages::rules::{Cell, Input, MESSAGES};
use expect_test::expect_file;

use crate::grid::{go, grid};

#[test]
fn messages_md_is_what_the_table_says() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/messages.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of an exchange of messages\n\nRendered from `proto/src/messages/rules.rs` by `cargo xtask diagrams`; do not \
         edit.\n\nA cell is the next state (· : the same state). –: nothing happens. *refused*: the application's request \
         changes nothing. **wrong**: the peer breaks the protocol, and the connection fails.\n\n",
    );
    let inputs: Vec<_> = Input::ALL.iter().map(|input| input.name()).collect();
    let row = |stage: Stage| MESSAGES[stage.index()].iter().map(|&to| cell(stage, to)).collect();
    grid(&mut text, "", &inputs, Stage::ALL.into_iter().map(|stage| (format!("**{stage}**"), row(stage))));
    text
}

fn cell(stage: Stage, cell: Cell) -> String {
    match cell {
        Cell::Go(next) => go(stage, next),
        Cell::Refuse => "*refused*".into(),
        Cell::Wrong => "**wrong**".into(),
        Cell::Ignore => "–".into(),
    }
}
