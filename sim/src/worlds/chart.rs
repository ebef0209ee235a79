//! A sequence chart of all hosts of a world, in SVG.

use std::fmt::Write as _;

use crate::fabric::log::{Entry, Log};

/// Distances in pixels.
const ROW: usize = 18;
const TOP: usize = 50;
const LEFT: usize = 120;
const LANE: usize = 260;
/// No text of a row is wider than its letters times this.
const LETTER: usize = 7;

/// Before the message of the failure.
const FAILED: &str = "failed: ";

/// The last entries are drawn: a failure is at the end.
const MOST: usize = 2000;

/// Draws the log, with a lane for each host.
pub(super) fn draw(log: &Log, names: &[String]) -> String {
    let entries = log.entries.get(log.entries.len().saturating_sub(MOST)..).unwrap_or_default();
    let own = entries.iter().filter(|entry| entry.from == entry.to);
    let own = own.map(|entry| (lane(entry.from.0), &entry.text));
    let texts = own.chain(log.failed.iter().map(|(_, message)| (LEFT + LETTER * FAILED.len(), message)));
    let right = texts.map(|(x, text)| x + LETTER * clean(text).len()).max().unwrap_or(0);
    let (width, height) = (right.max(LEFT + LANE * names.len().max(1)), TOP + ROW * (entries.len() + 2));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (host, name) in names.iter().enumerate() {
        let x = lane(host);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-size=\"14\">{}</text>\
             <path d=\"M{x} 32V{height}\" stroke=\"#bbb\"/>",
            clean(name)
        );
    }
    for (row, Entry { at, from, to, text, is_lost }) in entries.iter().enumerate() {
        let y = TOP + ROW * (row + 1);
        let (begin, end) = (lane(from.0), lane(to.0));
        let text = clean(text);
        // A row is a group, so that who shows the chart can show a part of it.
        let _ = write!(svg, "<g><text x=\"4\" y=\"{y}\" fill=\"#777\">{at}</text>");
        let _ = if from == to {
            writeln!(svg, "<text x=\"{}\" y=\"{y}\">{text}</text></g>", begin + 5)
        } else {
            let (color, stop) = if *is_lost { ("#c00000", usize::midpoint(begin, end)) } else { ("black", end) };
            writeln!(
                svg,
                "<path d=\"M{begin} {y}H{stop}\" stroke=\"{color}\" marker-end=\"url(#tip)\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{color}\">{text}</text></g>",
                usize::midpoint(begin, end),
                y - 3
            )
        };
    }
    if let Some((at, message)) = &log.failed {
        let (y, text) = (TOP + ROW * (entries.len() + 1), clean(message));
        let _ = writeln!(
            svg,
            "<g><text x=\"4\" y=\"{y}\" fill=\"#777\">{at}</text>\
             <text x=\"{LEFT}\" y=\"{y}\" fill=\"#c00000\">{FAILED}{text}</text></g>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn lane(host: usize) -> usize {
    LEFT + LANE / 2 + LANE * host
}

/// Makes a text safe in SVG, and at most 300 letters long: no call is longer.
fn clean(text: &str) -> String {
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(300).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
