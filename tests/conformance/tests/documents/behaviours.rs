//! Renders `docs/generated/behaviours.md`: every observed behaviour, and the scenarios that showed it, from the
//! recorded results.

use std::fmt::Write as _;

use cmid_conformance::{BEHAVIOURS, Behaviour, Entry, Outcome, Report, Speed, entries};
use cmid_harness::references;
use expect_test::expect_file;

use crate::root;

/// The recorded results, in the order of the columns: file name and title.
const ENVIRONMENTS: [(&str, &str); 5] = [
    ("sim", "sim"),
    ("6.1", "Linux 6.1"),
    ("6.12", "Linux 6.12"),
    ("6.1-kernel", "Linux 6.1, kernel backend"),
    ("6.12-kernel", "Linux 6.12, kernel backend"),
];

#[test]
fn rows_md_is_what_the_results_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generated/behaviours.md")].assert_eq(&render());
}

#[test]
fn what_rows_refer_to_exists() {
    for reference in BEHAVIOURS.iter().flat_map(|behaviour| behaviour.elsewhere) {
        references::check(root(), reference).unwrap_or_else(|error| panic!("{reference}: {error:#}"));
    }
}

/// The standing of a behaviour in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// All its scenarios passed on this many drivers.
    Passed { drivers: usize },
    /// The same, but some of them are in the slow set.
    PassedSlowly { drivers: usize },
    /// Its fast scenarios passed. The rest is shown outside of this suite, or not in this environment.
    PassedInPart { drivers: usize },
    /// A scenario of it failed.
    Failed,
    /// Shown outside of this suite.
    Elsewhere,
    /// A driver cannot show it.
    Impossible,
    /// Not shown.
    NotRun,
}

impl Standing {
    fn of(behaviour: &Behaviour, report: &Report, environment: &str) -> Self {
        let own: Vec<&Entry> = entries().iter().filter(|entry| entry.behaviours.contains(&behaviour.number)).collect();
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
            None if behaviour.elsewhere.iter().any(|at| is_of(at, environment)) => Standing::Elsewhere,
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

/// Whether a reference applies to an environment. Tests of the simulator do not apply to a kernel, nor the reverse.
/// Refusals of the core apply everywhere. Of the two kernels only one can re-register.
fn is_of(reference: &str, environment: &str) -> bool {
    if reference.starts_with("tests/kernel/src/rereg/") {
        return environment.starts_with("6.12");
    }
    reference.starts_with("proto/") || reference.starts_with("sim/") == (environment == "sim")
}

/// Counts the standings of all behaviours, in a line.
fn count(report: &Report, environment: &str) -> String {
    let mut counts = [
        (0, "passed"),
        (0, "passed in part"),
        (0, "failed"),
        (0, "shown elsewhere"),
        (0, "not applicable"),
        (0, "not run"),
    ];
    for behaviour in BEHAVIOURS {
        let at = match Standing::of(behaviour, report, environment) {
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
    format!("{} behaviours: {}", BEHAVIOURS.len(), said.join(", "))
}

fn render() -> String {
    let reports = ENVIRONMENTS.map(|(environment, title)| {
        let path = root().join(format!("tests/conformance/results/{environment}.json"));
        (environment, title, Report::read(&path).unwrap())
    });
    let mut text = String::from(
        "# The behaviours\n\nEvery observed behaviour of librdmacm, libibverbs and the kernel, and where the drivers were seen to do the \
         same: event types, statuses, private data lengths, depths, what calls return, what becomes of memory. \
         Rendered from `tests/conformance/results/` by `cargo xtask diagrams`; do not edit.\n\n\
         *Slow set*: time-outs that take up to 17 minutes, run by `cargo xtask test --slow`. *In part*: the rest needs minutes of \
         real time or a host that the environment has not; on the simulator virtual time shows it, see the last column. \
         \"Past the core\" is a call on the bare device, which shows what the kernel does where the core refuses. Rows 94 to 98, 118 and \
         122 to 124 are of devices that the simulator alone has, and of calls that fail.\n\n",
    );
    for (environment, title, report) in &reports {
        writeln!(text, "- **{title}** ({}): {}", report.environment, count(report, environment)).unwrap();
    }
    let titles: Vec<_> = reports.iter().map(|(_, title, _)| *title).collect();
    writeln!(text, "\n| behaviour | about | {} | scenarios | besides |", titles.join(" | ")).unwrap();
    writeln!(text, "| --- | --- |{} --- | --- |", " --- |".repeat(reports.len())).unwrap();
    for behaviour in BEHAVIOURS {
        let cells: Vec<_> = reports
            .iter()
            .map(|(environment, _, report)| Standing::of(behaviour, report, environment).cell())
            .collect();
        let own = entries().iter().filter(|entry| entry.behaviours.contains(&behaviour.number));
        let names: Vec<_> = own.map(|entry| format!("`{}`", entry.name)).collect();
        let mut besides: Vec<_> = behaviour.elsewhere.iter().map(|at| format!("`{at}`")).collect();
        if !behaviour.remark.is_empty() {
            besides.insert(0, behaviour.remark.into());
        }
        let (cells, names, besides) = (cells.join(" | "), names.join("<br>"), besides.join("<br>"));
        writeln!(text, "| {} | {} | {cells} | {names} | {besides} |", behaviour.number, behaviour.about).unwrap();
    }
    text
}

fn behaviour(number: u8) -> &'static Behaviour {
    BEHAVIOURS.iter().find(|behaviour| behaviour.number == number).unwrap()
}

#[test]
fn a_row_is_as_good_as_the_worst_of_its_scenarios() {
    let mut report = Report::new("here");
    assert_eq!(Standing::of(behaviour(35), &report, "6.12"), Standing::NotRun);
    let mut own = entries().iter().filter(|entry| entry.behaviours.contains(&35));
    let first = own.next().unwrap();
    let others: Vec<_> = own.collect();
    report.note(first.name, first.speed, "mio", Outcome::Passed);
    assert_eq!(Standing::of(behaviour(35), &report, "6.12"), Standing::PassedInPart { drivers: 1 });
    others.iter().for_each(|other| report.note(other.name, other.speed, "mio", Outcome::Passed));
    assert_eq!(Standing::of(behaviour(35), &report, "6.12"), Standing::Passed { drivers: 1 });
    report.note(others[0].name, others[0].speed, "epoll", Outcome::Failed("why".into()));
    assert_eq!(Standing::of(behaviour(35), &report, "6.12"), Standing::Failed);
}

#[test]
fn virtual_time_counts_for_the_simulator_only() {
    let nothing = Report::new("here");
    assert_eq!(Standing::of(behaviour(29), &nothing, "sim"), Standing::Elsewhere);
    assert_eq!(Standing::of(behaviour(29), &nothing, "6.12"), Standing::NotRun);
    assert_eq!(Standing::of(behaviour(77), &nothing, "6.12"), Standing::Impossible);
}
