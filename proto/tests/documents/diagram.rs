//! Diagrams of states: rendered as DOT, from which Graphviz draws the SVG pictures (`cargo xtask diagrams`).

use std::collections::BTreeSet;
use std::fmt::{Debug, Display, Write as _};
use std::fs;
use std::path::Path;

use expect_test::expect_file;

/// The folder of the pictures.
const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/pictures");

/// A diagram: its nodes and its arrows, each with the inputs that lead from one node to the other.
pub(crate) struct StateDiagram {
    nodes: Vec<(String, String)>,
    arrows: Vec<(String, String, Vec<String>)>,
}

impl StateDiagram {
    pub(crate) fn new<S: Debug + Display>(states: &[S]) -> Self {
        let nodes = states.iter().map(|state| (format!("{state:?}"), state.to_string())).collect();
        StateDiagram { nodes, arrows: Vec::new() }
    }

    /// Adds an input that leads from one state to another.
    pub(crate) fn arrow<S: Debug>(&mut self, from: S, to: S, input: &str) {
        self.add(format!("{from:?}"), format!("{to:?}"), input);
    }

    /// Adds an input that creates the object in this state.
    pub(crate) fn begin<S: Debug>(&mut self, to: S, input: &str) {
        self.add("begin".into(), format!("{to:?}"), input);
    }

    fn add(&mut self, from: String, to: String, input: &str) {
        match self.arrows.iter_mut().find(|arrow| (&arrow.0, &arrow.1) == (&from, &to)) {
            Some((_, _, inputs)) => inputs.push(input.to_owned()),
            None => self.arrows.push((from, to, vec![input.to_owned()])),
        }
    }

    /// Asserts that the DOT file of this name is the diagram, and that the SVG file shows its nodes and arrows.
    pub(crate) fn check(&self, name: &str) {
        expect_file![format!("{PICTURES}/{name}.dot")].assert_eq(&self.dot());
        // A new diagram is drawn after its DOT file is written.
        if std::env::var_os("UPDATE_EXPECT").is_none() {
            let svg = fs::read_to_string(Path::new(PICTURES).join(name).with_extension("svg")).unwrap();
            assert_eq!(shown(&svg), self.content(), "draw {name}.svg with `cargo xtask diagrams`");
        }
    }

    fn dot(&self) -> String {
        let mut text = String::from(
            "// Rendered by a test of cmid-proto; do not edit.\ndigraph {\n    \
             graph [bgcolor=white, nodesep=0.3, ranksep=0.5]\n    \
             node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fa\", fontname=\"sans-serif\", fontsize=12]\n    \
             edge [fontname=\"sans-serif\", fontsize=9, arrowsize=0.7]\n    \
             begin [shape=point, width=0.12, label=\"\"]\n",
        );
        for (name, label) in &self.nodes {
            writeln!(text, "    {name} [label=\"{label}\"]").unwrap();
        }
        for (from, to, inputs) in &self.arrows {
            writeln!(text, "    {from} -> {to} [label=\"{}\"]", inputs.join("\\n")).unwrap();
        }
        text.push_str("}\n");
        text
    }

    /// The titles of nodes and arrows, and all labels.
    fn content(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let arrows = self.arrows.iter().map(|(from, to, _)| format!("{from}->{to}"));
        let titles = self.nodes.iter().map(|(name, _)| name.clone()).chain(arrows).chain(["begin".to_owned()]);
        let inputs = self.arrows.iter().flat_map(|(_, _, inputs)| inputs.clone());
        let labels = self.nodes.iter().map(|(_, label)| label.clone()).chain(inputs);
        (titles.collect(), labels.filter(|label| !label.is_empty()).collect())
    }
}

/// The same of a picture by Graphviz, which repeats the names of nodes and arrows as titles.
fn shown(svg: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let all = |tag: &str| -> BTreeSet<String> {
        let start = format!("<{tag}");
        let elements = svg.split(&start).skip(1);
        let content = elements.filter_map(|rest| rest.split_once('>')?.1.split_once('<')).map(|(text, _)| plain(text));
        content.filter(|text| text != "%3").collect()
    };
    (all("title"), all("text"))
}

fn plain(text: &str) -> String {
    text.replace("&#45;", "-").replace("&#160;", " ").replace("&gt;", ">").replace("&amp;", "&")
}
