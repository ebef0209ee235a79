//! A sequence chart of a replay: application, core and device of each recording. Output is Mermaid or SVG.

use std::fmt::Write as _;

use cmid_proto::Time;

use crate::transition::{Arrow, Transition};

/// The output format of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartFormat {
    /// Text for Mermaid.
    Mermaid,
    /// An SVG image.
    Svg,
}

/// The transitions of a chart that have an arrow.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    rows: Vec<Row>,
    /// The number of recordings.
    drivers: usize,
}

#[derive(Clone, Debug)]
struct Row {
    at: Time,
    driver: usize,
    arrow: Arrow,
    text: String,
    change: Option<String>,
}

/// Distances in the SVG image, in pixels.
const ROW: usize = 34;
const TOP: usize = 60;
const LANES: [&str; 3] = ["application", "core", "device"];
/// From a lane to the border of its driver.
const MARGIN: usize = 150;
/// The distance of two lanes, if the texts are short.
const LANE: usize = 400;
/// No text is wider than its letters times this.
const LETTER: usize = 7;
/// The maximum number of letters of a text. Longer ones are cut; the whole one is shown to who points at it.
const MOST: usize = 100;

impl Chart {
    /// Adds a step of a recording, by the index that [`replay`](crate::replay) gives. Ignores steps without an arrow.
    pub fn add(&mut self, driver: usize, step: &Transition) {
        self.drivers = self.drivers.max(driver + 1);
        if let Some(arrow) = step.arrow {
            self.rows.push(Row { at: step.at, driver, arrow, text: step.text.clone(), change: step.change() });
        }
    }

    /// The rows in the order of their times, which the drivers of a machine count from the same epoch.
    fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.at);
        rows
    }

    /// The driver and the index of each lane.
    fn lanes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        (0..self.drivers.max(1)).flat_map(|driver| [APPLICATION, CORE, DEVICE].map(|lane| (driver, lane)))
    }

    /// The name of a lane, with the number of its driver, as `cmid-replay` prints it, if there are several.
    fn name(&self, driver: usize, lane: usize) -> String {
        let name = LANES[lane];
        if self.drivers > 1 { format!("{name} {}", driver + 1) } else { name.to_owned() }
    }

    /// The distance of two lanes: the longest text fits.
    fn distance(&self) -> usize {
        let letters = self.rows.iter().map(|row| row.text.chars().count()).max().unwrap_or(0);
        LANE.max(LETTER * letters.min(MOST))
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
        for (driver, lane) in self.lanes() {
            let _ = writeln!(text, "    participant {}", self.name(driver, lane));
        }
        for Row { driver, arrow, text: said, change, .. } in self.rows() {
            let line = if *arrow == Arrow::Outcome { "-->>" } else { "->>" };
            let (from, to) = ends(*arrow);
            let [from, to, core] = [from, to, CORE].map(|lane| self.name(*driver, lane));
            let _ = writeln!(text, "    {from}{line}{to}: {}", for_mermaid(said));
            if let Some(change) = change {
                let _ = writeln!(text, "    Note over {core}: {}", for_mermaid(change));
            }
        }
        text
    }

    fn svg(&self) -> String {
        let distance = self.distance();
        let of_driver = 2 * (MARGIN + distance);
        let x = |driver: usize, lane: usize| driver * of_driver + MARGIN + lane * distance;
        let (width, height) = (of_driver * self.drivers.max(1), TOP + ROW * (self.rows.len() + 1));
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for (driver, lane) in self.lanes() {
            let (name, x) = (self.name(driver, lane), x(driver, lane));
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"30\" text-anchor=\"middle\" font-size=\"14\">{name}</text>\
                 <path d=\"M{x} 40V{height}\" stroke=\"#999\"/>"
            );
        }
        for (number, Row { driver, arrow, text: said, change, .. }) in self.rows().into_iter().enumerate() {
            let y = TOP + ROW * (number + 1);
            let (from, to) = ends(*arrow);
            let [from, to, core] = [from, to, CORE].map(|lane| x(*driver, lane));
            let dashes = if *arrow == Arrow::Outcome { " stroke-dasharray=\"4 3\"" } else { "" };
            // A deadline has no source lane: its arrow starts beside the core.
            let begin = if from == to { from + 60 } else { from };
            let middle = usize::midpoint(begin, to);
            let _ = writeln!(
                text,
                "<path d=\"M{begin} {y}H{to}\" stroke=\"black\"{dashes} marker-end=\"url(#tip)\"/>\
                 <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}<title>{}</title></text>",
                y - 4,
                for_svg(&short(said)),
                for_svg(said)
            );
            if let Some(change) = change {
                let (x, y) = (core + 6, y + 13);
                let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" fill=\"#a03000\">{}</text>", for_svg(change));
            }
        }
        text.push_str("</svg>\n");
        text
    }
}

/// Indexes into `LANES`.
const APPLICATION: usize = 0;
const CORE: usize = 1;
const DEVICE: usize = 2;

/// The source and the target of an arrow.
fn ends(arrow: Arrow) -> (usize, usize) {
    match arrow {
        Arrow::AppToCore => (APPLICATION, CORE),
        Arrow::CoreToApp => (CORE, APPLICATION),
        Arrow::CoreToDevice => (CORE, DEVICE),
        Arrow::Outcome | Arrow::DeviceToCore => (DEVICE, CORE),
        Arrow::Clock => (CORE, CORE),
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

/// Truncates a text to what fits between two lanes.
fn short(text: &str) -> String {
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST - 1).chain(['…']).collect() }
}
