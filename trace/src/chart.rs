//! A sequence chart of a replay: application, core and device. Output is Mermaid or SVG.

use std::fmt::Write as _;

use crate::transition::{Arrow, Transition};

/// The output format of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartFormat {
    /// Text for Mermaid.
    Mermaid,
    /// An SVG image.
    Svg,
}

/// The transitions of a chart that have an arrow, in order.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    arrow: Arrow,
    text: String,
    change: Option<String>,
}

/// Distances in the SVG image, in pixels.
const ROW: usize = 34;
const TOP: usize = 60;
const LANES: [(&str, usize); 3] = [("application", 150), ("core", 550), ("device", 950)];
const WIDTH: usize = 1100;

impl Chart {
    /// Adds a step. Ignores steps without an arrow.
    pub fn add(&mut self, step: &Transition) {
        if let Some(arrow) = step.arrow {
            self.rows.push(Row { arrow, text: step.text.clone(), change: step.change() });
        }
    }

    /// Renders the chart.
    #[must_use]
    pub fn draw(&self, format: ChartFormat) -> String {
        match format {
            ChartFormat::Mermaid => self.mermaid(),
            ChartFormat::Svg => self.svg(),
        }
    }

    fn mermaid(&self) -> String {
        let mut text = String::from("sequenceDiagram\n");
        for (name, _) in LANES {
            let _ = writeln!(text, "    participant {name}");
        }
        for Row { arrow, text: said, change } in &self.rows {
            let line = if *arrow == Arrow::Outcome { "-->>" } else { "->>" };
            let (from, to) = ends(*arrow);
            let _ = writeln!(text, "    {}{line}{}: {}", LANES[from].0, LANES[to].0, for_mermaid(said));
            if let Some(change) = change {
                let _ = writeln!(text, "    Note over core: {}", for_mermaid(change));
            }
        }
        text
    }

    fn svg(&self) -> String {
        let height = TOP + ROW * (self.rows.len() + 1);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for (name, x) in LANES {
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"30\" text-anchor=\"middle\" font-size=\"14\">{name}</text>\
                 <path d=\"M{x} 40V{height}\" stroke=\"#999\"/>"
            );
        }
        for (number, Row { arrow, text: said, change }) in self.rows.iter().enumerate() {
            let y = TOP + ROW * (number + 1);
            let (from, to) = ends(*arrow);
            let (from, to) = (LANES[from].1, LANES[to].1);
            let dashes = if *arrow == Arrow::Outcome { " stroke-dasharray=\"4 3\"" } else { "" };
            // A deadline has no source lane: its arrow starts beside the core.
            let begin = if from == to { from + 60 } else { from };
            let middle = usize::midpoint(begin, to);
            let _ = writeln!(
                text,
                "<path d=\"M{begin} {y}H{to}\" stroke=\"black\"{dashes} marker-end=\"url(#tip)\"/>\
                 <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                y - 4,
                for_svg(&short(said))
            );
            if let Some(change) = change {
                let (x, y) = (LANES[1].1 + 6, y + 13);
                let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" fill=\"#a03000\">{}</text>", for_svg(change));
            }
        }
        text.push_str("</svg>\n");
        text
    }
}

/// The source and the target of an arrow, as indexes into `LANES`.
fn ends(arrow: Arrow) -> (usize, usize) {
    match arrow {
        Arrow::AppToCore => (0, 1),
        Arrow::CoreToApp => (1, 0),
        Arrow::CoreToDevice => (1, 2),
        Arrow::Outcome | Arrow::DeviceToCore => (2, 1),
        Arrow::Clock => (1, 1),
    }
}

/// Replaces characters with a special meaning in Mermaid: `;` ends a statement, `#` begins an entity, `%` a comment.
fn for_mermaid(text: &str) -> String {
    text.chars().map(|it| if it.is_control() || matches!(it, ';' | '#' | '%') { ' ' } else { it }).collect()
}

fn for_svg(text: &str) -> String {
    let clean: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Truncates a text to the width between two lanes.
fn short(text: &str) -> String {
    const FITS: usize = 60;
    if text.chars().count() <= FITS { text.to_owned() } else { text.chars().take(FITS - 1).chain(['…']).collect() }
}
