//! Compares `docs/generated/faults.md` with the scenarios and the recorded results. `UPDATE_EXPECT=1` writes the
//! file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use cmid_faults::{Entry, Expected, Outcome, Report, entries, groups};
use cmid_harness::references;
use expect_test::expect_file;

/// The recorded results, in the order of the columns of the table.
const ENVIRONMENTS: [&str; 4] = ["6.1", "6.12", "6.1-kernel", "6.12-kernel"];

/// Other tests that show faults, each with a description and a reference.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "the device goes while ids are in every state, under load, and comes back",
        "tests/conformance/src/soak/removal.rs::run",
    ),
    (
        "the device goes: every id reports it once, and refuses what follows",
        "conformance::behaviour_78_the_device_goes",
    ),
    ("rdma-core's rping is killed while it sends", "conformance::behaviour_10_a_client_process_is_killed"),
    (
        "the peer is destroyed before, during and after the answer",
        "conformance::behaviour_25_the_client_goes_without_reading_the_answer",
    ),
    ("nobody answers a request, to the end (1.3 minutes)", "conformance::behaviour_29_nobody_there"),
    ("a server never reads the request, to the end (17 minutes)", "conformance::behaviour_30_the_server_never_reads"),
    (
        "a client never reads the answer, to the end (17 minutes)",
        "conformance::behaviour_31_the_client_never_reads_the_answer",
    ),
    (
        "a disconnect is never answered, to the end (1.3 minutes)",
        "conformance::behaviour_32_a_disconnect_is_never_answered",
    ),
    ("the peer's link address changes", "conformance::behaviour_36_a_neighbour_moves"),
    ("a bond fails over", "conformance::behaviour_79_a_bond_fails_over"),
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

#[test]
fn faults_md_is_what_the_scenarios_and_the_results_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generated/faults.md")].assert_eq(&render());
}

#[test]
fn what_shows_faults_besides_exists() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for (_, reference) in ELSEWHERE {
        references::check(root, reference).unwrap_or_else(|error| panic!("{reference}: {error:#}"));
    }
}

fn recorded(environment: &str) -> Report {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/results/{}.json"), environment);
    let mut report = Report::read(Path::new(&path)).unwrap();
    report.forget_what_is_out_of_date();
    report
}

fn render() -> String {
    let reports = ENVIRONMENTS.map(recorded);
    let mut text = String::from(
        "# Faults on the real kernel\n\nWhat goes wrong, and what an application that uses the core's deadlines (two seconds here) then observes, line by line: \
         events with their statuses, and what its requests answer. Each scenario fails if anything else, or anything more, is observed; if it is not over \
         within its bound; if destroying all ids takes more than five seconds; if a descriptor (but those of devices, which librdmacm keeps), an id, a QP, a CQ, a PD or an MR is left; \
         or if the core's books are not in order. Rendered from `tests/faults/src/scenarios/` and `tests/faults/results/` by `cargo xtask diagrams`; do not edit. \
         `cargo xtask faults [--kernel 6.1] [--backend librdmacm] [--slow] [NAME...]` runs them.\n\n\
         The two hosts are two soft-RoCE devices on a veth pair; messages are lost by a filter where they come in. \
         \"All is well again\" means that the fault is repaired; \"a new connection: stands\", that fresh drivers of the same process make one then. \
         The number of drivers that it was shown with stands under each kernel and backend of `cmid-verbs`.\n\n",
    );
    for report in &reports {
        writeln!(text, "- {}: {}", report.environment, count(report)).unwrap();
    }
    for group in groups() {
        writeln!(
            text,
            "\n## {group}\n\n| fault | observed | 6.1, librdmacm | 6.12, librdmacm | 6.1, kernel | 6.12, kernel | scenario |\n| --- | --- | --- | --- | --- | --- | --- |"
        )
        .unwrap();
        for entry in entries().iter().filter(|entry| entry.group == group) {
            let observed: Vec<_> = entry.observed.iter().map(in_words).collect();
            let cells: Vec<_> = reports.iter().map(|report| cell(entry, report)).collect();
            writeln!(
                text,
                "| {} | {} | {} | `{}` |",
                entry.fault,
                observed.join("<br>"),
                cells.join(" | "),
                entry.name
            )
            .unwrap();
        }
    }
    text.push_str("\n## Shown elsewhere\n\n| what | where |\n| --- | --- |\n");
    for (what, reference) in ELSEWHERE {
        writeln!(text, "| {what} | `{reference}` |").unwrap();
    }
    text
}

fn in_words(observed: &Expected) -> String {
    match observed {
        Expected::Always(lines) => lines.join("<br>"),
        Expected::OneOf(lines) => lines.join(" *or* "),
        Expected::Backend { librdmacm, kernel } => format!("{librdmacm}<br>on the kernel backend: {kernel}"),
        Expected::By { v6_1, v6_12 } => {
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
