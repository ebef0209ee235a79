//! `docs/rows.md`: every row of observed behaviour, and by which scenarios it was shown where, from the recorded results.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use cmid_conformance::{BEHAVIOURS, Behaviour, Entry, Outcome, Report, Speed, entries};

use crate::conformance::{ENVIRONMENTS, recorded};
use crate::context::Context;
use crate::references;

const FILE: &str = "docs/rows.md";

/// Writes the file.
pub(crate) fn write(context: &Context) -> Result<()> {
    fs::write(context.root.join(FILE), render(context)?).context(FILE)
}

/// The file says what the results say, and what it refers to is there.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    for reference in BEHAVIOURS.iter().flat_map(|row| row.elsewhere) {
        references::check(&context.root, reference).with_context(|| format!("the rows refer to {reference}"))?;
    }
    let written = fs::read_to_string(context.root.join(FILE)).context(FILE)?;
    ensure!(written == render(context)?, "{FILE} is not what the results say: run `cargo xtask diagrams`");
    Ok(())
}

/// How a row stands in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// All its scenarios passed on so many drivers.
    Passed { drivers: usize },
    /// The same, and it takes the slow set for it.
    PassedSlowly { drivers: usize },
    /// What is fast of it passed; the rest is shown outside of this suite, or not there.
    PassedInPart { drivers: usize },
    /// A scenario of it failed.
    Failed,
    /// Shown outside of this suite.
    Elsewhere,
    /// No driver can do what it says.
    Impossible,
    /// Not shown.
    NotRun,
}

impl Standing {
    fn of(row: &Behaviour, report: &Report, environment: &str) -> Self {
        let own: Vec<&Entry> = entries().iter().filter(|entry| entry.behaviours.contains(&row.number)).collect();
        let passed_on = |entry: &Entry| {
            let findings = report.scenarios.get(entry.name)?;
            let ran: Vec<_> = findings.drivers.values().filter(|outcome| **outcome != Outcome::NotHere).collect();
            let failed = ran.iter().any(|outcome| matches!(outcome, Outcome::Failed(_)));
            (!ran.is_empty()).then_some(if failed { 0 } else { ran.len() })
        };
        let ran: Vec<usize> = own.iter().filter_map(|&entry| passed_on(entry)).collect();
        let slow = own.iter().any(|entry| entry.speed == Speed::Slow);
        match ran.iter().min() {
            Some(0) => Standing::Failed,
            Some(&drivers) if ran.len() < own.len() => Standing::PassedInPart { drivers },
            Some(&drivers) if slow => Standing::PassedSlowly { drivers },
            Some(&drivers) => Standing::Passed { drivers },
            None if row.elsewhere.iter().any(|at| is_of(at, environment)) => Standing::Elsewhere,
            None if own.is_empty() => Standing::Impossible,
            None => Standing::NotRun,
        }
    }

    fn cell(self) -> String {
        match self {
            Standing::Passed { drivers } => format!("{drivers} drivers"),
            Standing::PassedSlowly { drivers } => format!("{drivers} drivers, slow set"),
            Standing::PassedInPart { drivers } => format!("{drivers} drivers, in part"),
            Standing::Failed => "**failed**".into(),
            Standing::Elsewhere => "see *besides*".into(),
            Standing::Impossible => "–".into(),
            Standing::NotRun => "not run".into(),
        }
    }
}

/// Tests of the simulator say nothing about a kernel, nor the other way round; what the core refuses it refuses everywhere;
/// and of the two kernels one can re-register.
fn is_of(reference: &str, environment: &str) -> bool {
    if reference.starts_with("tests/kernel/src/rereg/") {
        return environment == "6.12";
    }
    reference.starts_with("proto/") || reference.starts_with("sim/") == (environment == "sim")
}

/// How the rows stand, in a line.
pub(crate) fn count(report: &Report, environment: &str) -> String {
    let mut counts = [
        (0, "passed"),
        (0, "passed in part"),
        (0, "failed"),
        (0, "shown elsewhere"),
        (0, "not applicable"),
        (0, "not run"),
    ];
    for row in BEHAVIOURS {
        let at = match Standing::of(row, report, environment) {
            Standing::Passed { .. } | Standing::PassedSlowly { .. } => 0,
            Standing::PassedInPart { .. } => 1,
            Standing::Failed => 2,
            Standing::Elsewhere => 3,
            Standing::Impossible => 4,
            Standing::NotRun => 5,
        };
        counts[at].0 += 1;
    }
    let said: Vec<_> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    format!("{} rows: {}", BEHAVIOURS.len(), said.join(", "))
}

fn render(context: &Context) -> Result<String> {
    let mut reports = Vec::new();
    for (environment, title) in ENVIRONMENTS {
        reports.push((environment, title, recorded(context, environment)?));
    }
    let mut text = String::from(
        "# The rows\n\nEvery row of observed behaviour of librdmacm, libibverbs and the kernel, and where the drivers were seen to do the \
         same: event types, statuses, private data lengths, depths, what calls return, what becomes of memory. \
         Rendered from `tests/conformance/results/` by `cargo xtask diagrams`; do not edit.\n\n\
         *Slow set*: time-outs that take up to 17 minutes, run by `cargo xtask test --slow`. *In part*: the rest needs minutes of \
         real time or a host that the environment has not; on the simulator virtual time shows it, see the last column. \
         \"Past the core\" is a call on the bare device, which shows what the kernel does where the core refuses. Rows 94 to 98, 118 and \
         122 to 124 are of devices that the simulator alone has, and of calls that fail.\n\n",
    );
    // Writing to a string does not fail.
    for (environment, title, report) in &reports {
        let _ = writeln!(text, "- **{title}** ({}): {}", report.environment, count(report, environment));
    }
    let titles: Vec<_> = reports.iter().map(|(_, title, _)| *title).collect();
    let _ = writeln!(text, "\n| row | about | {} | scenarios | besides |", titles.join(" | "));
    let _ = writeln!(text, "| --- | --- |{} --- | --- |", " --- |".repeat(reports.len()));
    for row in BEHAVIOURS {
        let cells: Vec<_> =
            reports.iter().map(|(environment, _, report)| Standing::of(row, report, environment).cell()).collect();
        let own = entries().iter().filter(|entry| entry.behaviours.contains(&row.number));
        let names: Vec<_> = own.map(|entry| format!("`{}`", entry.name)).collect();
        let mut besides: Vec<_> = row.elsewhere.iter().map(|at| format!("`{at}`")).collect();
        if !row.remark.is_empty() {
            besides.insert(0, row.remark.into());
        }
        let (cells, names, besides) = (cells.join(" | "), names.join("<br>"), besides.join("<br>"));
        let _ = writeln!(text, "| {} | {} | {cells} | {names} | {besides} |", row.number, row.about);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u8) -> &'static Behaviour {
        BEHAVIOURS.iter().find(|row| row.number == number).unwrap()
    }

    #[test]
    fn a_row_is_as_good_as_the_worst_of_its_scenarios() {
        let mut report = Report::new("here");
        assert_eq!(Standing::of(row(35), &report, "6.12"), Standing::NotRun);
        let mut own = entries().iter().filter(|entry| entry.behaviours.contains(&35));
        let first = own.next().unwrap();
        let others: Vec<_> = own.collect();
        report.note(first, "mio", Outcome::Passed);
        assert_eq!(Standing::of(row(35), &report, "6.12"), Standing::PassedInPart { drivers: 1 });
        others.iter().for_each(|other| report.note(other, "mio", Outcome::Passed));
        assert_eq!(Standing::of(row(35), &report, "6.12"), Standing::Passed { drivers: 1 });
        report.note(others[0], "epoll", Outcome::Failed("why".into()));
        assert_eq!(Standing::of(row(35), &report, "6.12"), Standing::Failed);
    }

    #[test]
    fn virtual_time_counts_for_the_simulator_only() {
        let nothing = Report::new("here");
        assert_eq!(Standing::of(row(29), &nothing, "sim"), Standing::Elsewhere);
        assert_eq!(Standing::of(row(29), &nothing, "6.12"), Standing::NotRun);
        assert_eq!(Standing::of(row(77), &nothing, "6.12"), Standing::Impossible);
    }
}
