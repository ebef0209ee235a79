//! Formats two traces side by side.

use std::fmt::Write as _;

use crate::trace::{SideTrace, Trace};

/// Both traces, with differences marked.
#[must_use]
pub fn side_by_side(simulator: &Trace, reality: &Trace) -> String {
    let mut text = String::new();
    for (name, ours, theirs) in [("a", &simulator.a, &reality.a), ("b", &simulator.b, &reality.b)] {
        let _ = writeln!(text, "side {name}:");
        sides(&mut text, ours, theirs);
    }
    text
}

fn sides(text: &mut String, simulator: &SideTrace, reality: &SideTrace) {
    let (mut ours, mut theirs) = (simulator.iter().peekable(), reality.iter().peekable());
    while ours.peek().is_some() || theirs.peek().is_some() {
        // A line of only one trace stands alone.
        let step =
            ours.peek().map_or(usize::MAX, |line| line.step).min(theirs.peek().map_or(usize::MAX, |line| line.step));
        let (one, other) = (ours.next_if(|line| line.step == step), theirs.next_if(|line| line.step == step));
        if one == other {
            if let Some(line) = one {
                let _ = writeln!(text, "      both {line}");
            }
            continue;
        }
        if let Some(line) = one {
            let _ = writeln!(text, "* simulator {line}");
        }
        if let Some(line) = other {
            let _ = writeln!(text, "*    kernel {line}");
        }
    }
}
