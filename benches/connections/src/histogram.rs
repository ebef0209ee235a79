//! Histograms as text: a line of bars for each step, all with the same time scale.

use std::time::Duration;

use serde::Serialize;

/// The number of times from `from_ns` up to twice `from_ns`, exclusive. With 0: less than a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Bar {
    pub(crate) from_ns: u64,
    pub(crate) count: u64,
}

/// The heights, from one connection to the maximum of the step.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Bar {
    /// The empty bar in which a time belongs.
    pub(crate) fn of(ns: u64) -> Bar {
        let from_ns = ns.checked_ilog2().map_or(0, |power| 1 << power);
        Bar { from_ns, count: 0 }
    }

    /// The index of the bar. Index 0 is the bar of no time.
    fn number(self) -> usize {
        self.from_ns.checked_ilog2().map_or(0, |power| power as usize + 1)
    }

    /// The lower bound of the bar with this index. The last bar ends at the maximum of the integer.
    fn begin(number: usize) -> Duration {
        let power = number.checked_sub(1).and_then(|power| u32::try_from(power).ok());
        Duration::from_nanos(power.map_or(0, |power| 1_u64.checked_shl(power).unwrap_or(u64::MAX)))
    }
}

/// The lines: a heading with the time scale, and the bars of each step. Empty if there are no bars.
pub(crate) fn text(steps: &[(&str, &[Bar])]) -> Vec<String> {
    let numbers = || steps.iter().flat_map(|(_, bars)| bars.iter().map(|bar| bar.number()));
    let (Some(first), Some(last)) = (numbers().min(), numbers().max()) else { return Vec::new() };
    let (begin, end) = (Bar::begin(first), Bar::begin(last + 1));
    let head = format!(
        "{:<15} from {begin:.1?} to {end:.1?}, each column twice as long as the one before; the tallest bar is the most",
        "histogram"
    );
    let lines = steps.iter().map(|(name, bars)| {
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
        let mut line = vec![' '; last + 1 - first];
        for bar in bars.iter().filter(|bar| bar.count > 0) {
            line[bar.number() - first] = HEIGHTS[height(bar.count, most)];
        }
        format!("{name:<15} |{}|", line.into_iter().collect::<String>())
    });
    std::iter::once(head).chain(lines).collect()
}

/// The height of `count` in 8 steps of the maximum. At least the lowest, so that it is visible.
fn height(count: u64, most: u64) -> usize {
    let parts = (u128::from(count) * HEIGHTS.len() as u128).div_ceil(u128::from(most.max(1)));
    (parts as usize).clamp(1, HEIGHTS.len()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(from_ns: u64, count: u64) -> Bar {
        Bar { from_ns, count }
    }

    #[test]
    fn a_time_is_in_the_bar_of_its_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(|ns| Bar::of(ns).from_ns), [0, 1, 2, 2, 4, 1 << 63]);
    }

    #[test]
    fn all_steps_have_the_same_columns() {
        let steps: [(&str, &[Bar]); 2] = [("one", &[bar(512, 1), bar(1024, 800)]), ("other", &[bar(4096, 3)])];
        let text = text(&steps);
        assert!(text[0].contains("from 512.0ns to 8.2µs"), "{}", text[0]);
        assert_eq!(text[1..], ["one             |▁█  |", "other           |   █|"]);
    }

    #[test]
    fn heights_are_shares_of_the_most() {
        let bars: Vec<_> = (0..8).map(|power| bar(1 << power, power + 1)).collect();
        assert_eq!(text(&[("x", &bars)])[1], "x               |▁▂▃▄▅▆▇█|");
    }

    #[test]
    fn no_time_and_the_longest_have_bars_too() {
        let text = text(&[("x", &[bar(0, 2), bar(1 << 63, 2)])]);
        assert_eq!(text[1].chars().filter(|&bar| bar == '█').count(), 2, "{text:?}");
        assert!(text[0].contains("from 0.0ns to"), "{text:?}");
    }

    #[test]
    fn nothing_has_no_histogram() {
        assert!(text(&[]).is_empty() && text(&[("x", &[])]).is_empty());
    }
}
