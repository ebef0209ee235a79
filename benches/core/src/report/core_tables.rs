//! The tables of the core's costs.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::limits::{ALLOCATIONS, OBJECTS, ROWS};
use crate::memory;
use crate::results::OfCore;
use crate::verdict::Verdict;

const ABOUT: &str = "\
Instructions, counted by callgrind among 10 to 1,000,000 idle ids (deadlines: 100,000): the worst, in a release build with link-time optimisation. The core by itself: an event is \
`take_event`, `ack`; a request `begin`, `end`, and the `next` that says there is no more. The drive: the loop that the drivers share, with a \
device that does nothing; an event is a whole turn. A deadline is what it costs beyond the same step without one.";

/// Where the instructions of rows that miss their targets are executed, by the function as compiled.
const PROFILE: &str = "
Where the instructions of rows that miss their targets are executed (callgrind, by compiled function, among 10 ids, without the room of the limits; of the state before a \
channel kept its place among those to be read, with its sums):

- An event by the drive, 390: `next_event` 187, with the admission and the copy to the application's event; `begin_read` 77, about half for the queue of channels \
to read and half for whether there is room; `run` 38; its caller 88, with `readable`, the ack and the program's own. By an edge-triggered poller, 557: the channel is marked again \
after the event, and 83 of `next_event` and 77 of `begin_read` are the read that finds no more.
- A request, 125: about 41 are the program's own (its frame, `expect`, `black_box`). In the others the decision, the call and the outcome each select by the kind of request. By the drive, 239: \
199 where those are inlined, 23 for the device's call and its poller, 17 the caller's.
- An active life, 2,502: 1,683 where twelve steps are inlined; 387 for eight changes of deadlines, 48 each; 144 for the outcomes of create and destroy, 86 for their parts and \
calls, 105 to forget the id and to leave its channel; 58 to copy the id and the private data; 39 for what a resolve leaves on the id.
- A passive life, 2,372: 902 where steps are inlined; 217 to admit the request with its new id, 162 to store and queue it and 218 to take it out, because its listener \
has a channel of its own; 189 for deadlines; 684 others.
- A migration of 64 events among 192, 6,974: the events of the queue are looked at up to the last one of the id ([why](../decisions.md)), which is 36 for each.
";

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
    page += PROFILE;
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
