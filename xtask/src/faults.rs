//! Faults on the real kernel: the run in the VM, its comparison with the list of scenarios, and `docs/faults.md`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cmid_conformance::DriverName;
use cmid_faults::{Entry, Outcome, Report, Speed, Told, entries, groups};
use cmid_softroce::Kernel;

use crate::context::Context;
use crate::{guest, host, references};

const FILE: &str = "docs/faults.md";
/// The recorded results, in the order of the columns of the table.
const KERNELS: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];
/// The driver that the everyday run is with: what a fault does is the kernel's and the core's doing.
const EVERYDAY: &[DriverName] = &[DriverName::Epoll];

/// What shows faults besides, in words and by reference.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "the device goes while ids are in every state, under load, and comes back",
        "tests/conformance/src/soak/removal.rs::run",
    ),
    ("the device goes: every id is told once, and refuses what follows", "conformance::row_78_the_device_goes"),
    ("rdma-core's rping is killed while it sends", "conformance::row_10_a_client_process_is_killed"),
    (
        "the peer is destroyed before, during and after the answer",
        "conformance::row_25_the_client_goes_without_reading_the_answer",
    ),
    ("nobody answers a request, to the end (1.3 minutes)", "conformance::row_29_nobody_there"),
    ("a server never reads the request, to the end (17 minutes)", "conformance::row_30_the_server_never_reads"),
    (
        "a client never reads the answer, to the end (17 minutes)",
        "conformance::row_31_the_client_never_reads_the_answer",
    ),
    ("a disconnect is never answered, to the end (1.3 minutes)", "conformance::row_32_a_disconnect_is_never_answered"),
    ("the peer's link address changes", "conformance::row_36_a_neighbour_moves"),
    ("a bond fails over", "conformance::row_79_a_bond_fails_over"),
    ("a device goes from under PDs, MRs, CQs and QPs", "tests/kernel/src/device/removal.rs::device_removed"),
    (
        "the device is removed under a PD and an MR after their ids are destroyed; a PD is allocated without a free descriptor",
        "tests/kernel/src/device/opened.rs::all",
    ),
    ("a device goes while a group is left", "tests/kernel/src/device/removal.rs::left_as_it_goes"),
    ("ibacm does not answer", "tests/kernel/src/device/ibacm.rs::silent"),
    ("an id cannot be destroyed", "tests/kernel/src/device/forgotten.rs::make_room"),
    ("the limit on locked memory, counted to the byte", "tests/kernel/src/device/registration.rs::lock_limit"),
];

/// What `cargo xtask faults` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel of the VM: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
    /// Those that take minutes
    #[arg(long)]
    slow: bool,
    /// Only those whose name has one of these in it, with all their drivers, fast or slow; nothing is recorded of it
    names: Vec<String>,
}

/// `cargo xtask faults`: builds what it takes, and runs in the VM.
pub(crate) fn command(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmid-faults", "--features", "verbs"], &[])?;
    if !arguments.names.is_empty() {
        let mut command = vec![context.release("faults").into_os_string(), "run".into()];
        command.extend(arguments.names.iter().map(OsString::from));
        return guest::run(arguments.kernel, 600, &command, Vec::new());
    }
    let speed = if arguments.slow { Speed::Slow } else { Speed::Fast };
    run(context, arguments.kernel, speed, &DriverName::ALL, 900)
}

/// The step of every day.
pub(crate) fn in_guest(context: &Context, kernel: Kernel, limit: u64) -> Result<()> {
    run(context, kernel, Speed::Fast, EVERYDAY, limit)
}

/// All that there is. What Linux 6.1 does otherwise while a link is down is not in the list of scenarios yet.
pub(crate) fn at_length(context: &mut Context) -> Result<()> {
    run(context, Kernel::V6_12, Speed::Fast, &DriverName::ALL, 900)?;
    run(context, Kernel::V6_12, Speed::Slow, &DriverName::ALL, 900)
}

fn run(context: &Context, kernel: Kernel, speed: Speed, drivers: &[DriverName], limit: u64) -> Result<()> {
    let report = report_path(context, kernel, speed)?;
    // An old report must not pass for this run's.
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    let mut command = vec![context.release("faults").into_os_string()];
    command.extend(["run", "--speed", name(speed), "--report"].map(OsString::from));
    command.push(report.clone().into_os_string());
    if let [driver] = drivers {
        command.extend(["--driver", driver.name()].map(OsString::from));
    }
    let result = guest::run(kernel, limit, &command, vec![reports(context)?]);
    if !report.exists() {
        result?;
        bail!("the run left no report at {}", report.display());
    }
    // What did not run has not passed.
    let differences = Report::read(&report)?.differences(speed, drivers);
    for difference in &differences {
        println!("{difference}");
    }
    result?;
    ensure!(differences.is_empty(), "{} scenarios have not passed", differences.len());
    Ok(())
}

fn reports(context: &Context) -> Result<PathBuf> {
    let directory = context.target().join("faults-reports");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

fn report_path(context: &Context, kernel: Kernel, speed: Speed) -> Result<PathBuf> {
    Ok(reports(context)?.join(format!("{}-{}.json", kernel.series(), name(speed))))
}

fn name(speed: Speed) -> &'static str {
    match speed {
        Speed::Fast => "fast",
        Speed::Slow => "slow",
    }
}

fn recorded_path(context: &Context, kernel: Kernel) -> PathBuf {
    context.root.join("tests/faults/results").join(format!("{}.json", kernel.series()))
}

fn recorded(context: &Context, kernel: Kernel) -> Result<Report> {
    let path = recorded_path(context, kernel);
    if !path.exists() {
        return Ok(Report::new(format!("Linux {}", kernel.series())));
    }
    let mut report = Report::read(&path)?;
    report.forget_what_is_out_of_date(kernel.series());
    Ok(report)
}

/// Makes the reports that runs have left the recorded results, and renders the table from them.
pub(crate) fn record(context: &Context) -> Result<()> {
    for kernel in KERNELS {
        let mut results = recorded(context, kernel)?;
        for speed in [Speed::Fast, Speed::Slow] {
            let path = report_path(context, kernel, speed)?;
            if path.exists() {
                results.merge(Report::read(&path)?, kernel.series());
            }
        }
        if !results.scenarios.is_empty() {
            let path = recorded_path(context, kernel);
            fs::create_dir_all(path.parent().context("a file of the source")?)?;
            results.write(&path)?;
        }
    }
    write(context)
}

/// Writes the file.
pub(crate) fn write(context: &Context) -> Result<()> {
    fs::write(context.root.join(FILE), render(context)?).context(FILE)
}

/// The file says what the scenarios and the results say, and what it refers to is there.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    for (_, reference) in ELSEWHERE {
        references::check(&context.root, reference).with_context(|| format!("{FILE} refers to {reference}"))?;
    }
    let written = fs::read_to_string(context.root.join(FILE)).context(FILE)?;
    ensure!(
        written == render(context)?,
        "{FILE} is not what the scenarios and results say: run `cargo xtask diagrams`"
    );
    Ok(())
}

fn render(context: &Context) -> Result<String> {
    let reports = KERNELS.map(|kernel| recorded(context, kernel)).into_iter().collect::<Result<Vec<_>>>()?;
    let mut text = String::from(
        "# Faults on the real kernel\n\nWhat goes wrong, and what an application that uses the core's deadlines (two seconds here) is then told, line by line: \
         events with their statuses, and what its requests answer. Each scenario fails if anything else, or anything more, is told; if it is not over \
         within its bound; if destroying all ids takes more than five seconds; if a descriptor (but those of devices, which librdmacm keeps), an id, a QP, a CQ, a PD or an MR is left; \
         or if the core's books are not in order. Rendered from `tests/faults/src/scenarios/` and `tests/faults/results/` by `cargo xtask diagrams`; do not edit. \
         `cargo xtask faults [--kernel 6.1] [--slow] [NAME...]` runs them.\n\n\
         The two hosts are two soft-RoCE devices on a veth pair; messages are lost by a filter where they come in. \
         \"All is well again\" means that the fault is repaired; \"a new connection: stands\", that fresh drivers of the same process make one then. \
         The number of drivers that it was shown with stands under each kernel.\n\n",
    );
    // Writing to a string does not fail.
    for report in &reports {
        let _ = writeln!(text, "- {}: {}", report.environment, count(report));
    }
    for group in groups() {
        let _ = writeln!(
            text,
            "\n## {group}\n\n| what | told | Linux 6.1 | Linux 6.12 | scenario |\n| --- | --- | --- | --- | --- |"
        );
        for entry in entries().iter().filter(|entry| entry.group == group) {
            let told: Vec<_> = entry.observed.iter().map(in_words).collect();
            let cells: Vec<_> = reports.iter().map(|report| cell(entry, report)).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} | `{}` |",
                entry.fault,
                told.join("<br>"),
                cells.join(" | "),
                entry.name
            );
        }
    }
    text.push_str("\n## Shown elsewhere\n\n| what | where |\n| --- | --- |\n");
    for (what, reference) in ELSEWHERE {
        let _ = writeln!(text, "| {what} | `{reference}` |");
    }
    Ok(text)
}

fn in_words(told: &Told) -> String {
    match told {
        Told::Always(line) => (*line).to_owned(),
        Told::OneOf(lines) => lines.join(" *or* "),
        Told::By { v6_1, v6_12 } => {
            let on =
                |lines: &[&str], kernel| (!lines.is_empty()).then(|| format!("{}: {}", kernel, lines.join(" *or* ")));
            [on(v6_1, "on 6.1"), on(v6_12, "on 6.12")].into_iter().flatten().collect::<Vec<_>>().join("<br>")
        }
    }
}

fn cell(entry: &Entry, report: &Report) -> String {
    let Some(findings) = report.scenarios.get(entry.name) else { return "not run".to_owned() };
    let failed = findings.drivers.values().any(|outcome| matches!(outcome, Outcome::Failed(_)));
    if failed { "**failed**".to_owned() } else { findings.drivers.len().to_string() }
}

fn count(report: &Report) -> String {
    let of = |wanted: &dyn Fn(&Entry) -> bool| entries().iter().filter(|entry| wanted(entry)).count();
    let passed = of(&|entry| report.scenarios.get(entry.name).is_some_and(cmid_faults::Findings::passed));
    let ran = of(&|entry| report.scenarios.contains_key(entry.name));
    format!(
        "{} scenarios: {passed} passed, {} failed, {} not run",
        entries().len(),
        ran - passed,
        entries().len() - ran
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_or_did_not_run_does_not_look_passed() {
        let entry = &entries()[0];
        let mut report = Report::new("here");
        assert_eq!(cell(entry, &report), "not run");
        report.note(entry.name, entry.speed, "mio", Outcome::Passed(Vec::new()));
        assert_eq!(cell(entry, &report), "1");
        report.note(entry.name, entry.speed, "epoll", Outcome::Failed("why".into()));
        assert_eq!(cell(entry, &report), "**failed**");
        assert!(count(&report).contains("0 passed, 1 failed"), "{}", count(&report));
    }
}
