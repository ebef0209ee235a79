//! The tables of the core's costs.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::counting::LEVELS;
use crate::limits::{ALLOCATIONS, OBJECTS, ROWS};
use crate::memory;
use crate::results::OfCore;
use crate::verdict::Verdict;

const ABOUT: &str = "\
Instructions, counted by callgrind among 10 to 1,000,000 idle ids (deadlines: 100,000): the worst, in a release build with link-time optimisation. The core by itself: an event is \
`handle_event`, `poll_event`, `ack`; a request `begin`, `end`, and the `next` that says there is no more. The drive: the loop that the drivers share, with a \
device that does nothing; an event is a whole turn. A deadline is what it costs beyond the same step without one.";

pub(super) fn render(core: &OfCore) -> Result<String> {
    let verdicts = Verdict::all(&core.instructions)?;
    let mut page = format!("\n## The core and its loop\n\n{ABOUT}\n\n");
    page += "| what | core | limit | target | | drive | limit | target | |\n| --- |";
    writeln!(page, "{}", " ---: |".repeat(8))?;
    for row in ROWS {
        write!(page, "| {} |", row.what)?;
        for verdict in verdicts.iter().filter(|verdict| verdict.row.case == row.case) {
            let [target, verdict_of_target] = target_and_verdict(verdict);
            let [count, limit] = [verdict.worst(), row.limits[verdict.level]].map(grouped);
            write!(page, " {count} | {limit} | {target} | {verdict_of_target} |")?;
        }
        page.push('\n');
    }
    for name in LEVELS {
        writeln!(page, "\n![Instructions by the number of ids](performance/instructions-{name}.svg)")?;
    }
    memory_tables(&mut page, core)?;
    Ok(page)
}

fn target_and_verdict(verdict: &Verdict) -> [String; 2] {
    match verdict.row.targets[verdict.level] {
        Some(target) if verdict.worst() <= target => [grouped(target), "met".to_owned()],
        Some(target) => [grouped(target), format!("× {:.2}", verdict.worst() as f64 / target as f64)],
        None => [String::new(), String::new()],
    }
}

fn memory_tables(page: &mut String, core: &OfCore) -> Result<()> {
    let allocations: usize = core.allocations.values().flat_map(|cases| cases.values()).sum();
    let cases: usize = core.allocations.values().map(|cases| cases.len()).sum();
    writeln!(
        page,
        "\n## Memory\n\nAllocations in {} steps of each of the {cases} cases, once tables have grown: \
         {allocations} (limit: {ALLOCATIONS}).\n\nBytes of an object: what the allocator gave for {} of them, divided. Tables double \
         as they grow, so there is up to as much again at other numbers; a PD and an MR are values of the application's.\n",
        grouped(memory::STEPS as u64),
        grouped(memory::OBJECTS as u64)
    )?;
    writeln!(page, "| object | target | limit | bytes |\n| --- | ---: | ---: | ---: |")?;
    for object in OBJECTS {
        let bytes = core.bytes.get(object.name).with_context(|| format!("{} was not measured", object.what))?;
        let target = object.target.map(|target| target.to_string()).unwrap_or_default();
        writeln!(page, "| {} | {target} | {} | {bytes} |", object.what, object.limit)?;
    }
    let by_ids = core.bytes_per_id.iter().map(|(ids, bytes)| format!("{bytes} among {}", grouped(*ids as u64)));
    writeln!(page, "\nBytes of an idle id: {}.", by_ids.collect::<Vec<_>>().join(", "))?;
    Ok(())
}

/// Formats a number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    let groups: Vec<_> = std::iter::once(digits[..first].into())
        .filter(|group: &std::borrow::Cow<'_, str>| !group.is_empty())
        .chain(groups)
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!([7, 100, 1000, 65_536, 1_000_000].map(grouped), ["7", "100", "1,000", "65,536", "1,000,000"]);
    }
}
