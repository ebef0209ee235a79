//! The tables of the core's costs.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::counting::LEVELS;
use crate::limits::{ALLOCATIONS, OBJECTS};
use crate::memory;
use crate::results::OfCore;
use crate::verdict::Verdict;

const ABOUT: [&str; 2] = [
    "The bare core. An event is `handle_event`, `poll_event`, `ack`; a request `begin`, `end`, and the `next` that says there is no more; \
     a migration is also `poll_readable` and `wants_event` of the \
     channel that is to be read. Deadlines are what they cost beyond the same step without one, with as many armed as there are \
     ids; target and limit are for up to 100,000. *Before* is the first version.",
    "The same through `Drive`, the loop that the drivers share, with a device that does nothing: an event is a whole turn.",
];

pub(super) fn render(core: &OfCore) -> Result<String> {
    let mut page = String::new();
    let verdicts = Verdict::all(&core.instructions)?;
    let measure = core.instructions.of(LEVELS[0], "nothing")?.values().max().context("no sizes")?;
    for (level, name) in LEVELS.into_iter().enumerate() {
        let verdicts: Vec<_> = verdicts.iter().filter(|verdict| verdict.level == level).collect();
        writeln!(page, "\n## Instructions: {name}\n\n{}", ABOUT[level])?;
        if level == 0 {
            writeln!(
                page,
                "Counted by callgrind: the mean of some steps of a kind, among idle ids, in a release build with link-time \
                 optimisation. {measure} of each belongs to the measure. A deadline that is dropped is swept out later: \
                 of that only the lives contain a part."
            )?;
        }
        let sizes: Vec<_> = verdicts.first().context("no rows")?.counts.keys().copied().collect();
        let at: String = sizes.iter().map(|ids| format!("| {} ids ", grouped(*ids as u64))).collect();
        let columns = sizes.len() + 4;
        writeln!(page, "\n| what | before | target | | limit {at}|\n| --- |{}", " ---: |".repeat(columns))?;
        for verdict in verdicts {
            let counts: String = verdict.counts.values().map(|count| format!("| {} ", grouped(*count))).collect();
            let before = verdict.row.before[level].map(grouped).unwrap_or_default();
            let target = target_and_verdict(verdict);
            let limit = grouped(verdict.row.limits[level]);
            writeln!(page, "| {} | {before} {target}| {limit} {counts}|", verdict.row.what)?;
        }
        writeln!(page, "\n![Instructions by the number of ids](performance/instructions-{name}.svg)")?;
    }
    writeln!(page, "\n![Migrations by the number of events](performance/migration.svg)")?;
    memory_tables(&mut page, core)?;
    if !core.times.is_empty() {
        writeln!(
            page,
            "\n## Time\n\nOf one machine, not guarded. Requests go round among all ids, so that from 100,000 on the \
             processor's caches no longer hold them; events are of four connections.\n\n\
             ![Time of a step by the number of ids](performance/time.svg)"
        )?;
    }
    Ok(page)
}

fn target_and_verdict(verdict: &Verdict) -> String {
    match verdict.row.targets[verdict.level] {
        Some(target) if verdict.worst() <= target => format!("| {} | met ", grouped(target)),
        Some(target) => format!("| {} | × {:.2} ", grouped(target), verdict.worst() as f64 / target as f64),
        None => "| | ".to_owned(),
    }
}

fn memory_tables(page: &mut String, core: &OfCore) -> Result<()> {
    let allocations: usize = core.allocations.values().flat_map(|cases| cases.values()).sum();
    let cases: usize = core.allocations.values().map(|cases| cases.len()).sum();
    writeln!(
        page,
        "\n## Memory\n\nAllocations in {} steps of each of the {cases} cases above, whole lives among them, once tables have grown: \
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
