//! `docs/generated/redial.md`: the table of a redial.

use cmid_proto::redial::Stage;
use cmid_proto::redial::rules::{Cell, Effect, Input, REDIAL};
use expect_test::expect_file;

use crate::grid::grid;

#[test]
fn redial_md_is_what_the_table_says() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/redial.md")].assert_eq(&render());
}

fn render() -> String {
    let mut text = String::from(
        "# The life of a connection that is made again\n\nRendered from `proto/src/redial/rules.rs` by `cargo xtask diagrams`; \
         do not edit.\n\nA cell is the next state (· : the same state), and in italics what the program has to do. \
         –: the input is ignored.\n\n",
    );
    let inputs: Vec<_> = Input::ALL.iter().map(|input| input.name()).collect();
    let row = |stage: Stage| REDIAL[stage.index()].iter().map(|&to| cell(stage, to)).collect();
    grid(&mut text, "", &inputs, Stage::ALL.into_iter().map(|stage| (format!("**{stage}**"), row(stage))));
    text
}

fn cell(stage: Stage, (next, effect): Cell) -> String {
    let next = if next == stage { "·".into() } else { next.to_string() };
    match (next.as_str(), effect) {
        ("·", Effect::Nothing) => "–".into(),
        (_, Effect::Nothing) => next,
        _ => format!("{next} *{effect}*"),
    }
}
