//! Compares docs/devices.md with the reports in `results/`. `UPDATE_EXPECT=1` writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use cmid_check::{DeviceReport, Outcome, Report};
use expect_test::expect_file;

const HEAD: &str = "\
# Devices

Rendered from the reports of `cmid-check` in `verbs/check/results/`. Only devices with a report are listed.

```sh
cargo install --path verbs/check --features verbs
cmid-check                             # each device of this machine with an address
cmid-check --serve --address ADDRESS   # on two machines: the server,
cmid-check --peer ADDRESS --json report.json   # and the client
```

`cmid-check` uses only ids, QPs and memory that it creates, and does not need root. If the limit on locked memory is too low, it
prints how to raise the limit. The exit status is 1 if a behaviour failed, 2 if no device could be checked.

To add a device: put the report of `--json` into `verbs/check/results/` and run `UPDATE_EXPECT=1 cargo test -p cmid-check --test documents`.
";

const FIGURES: &str = "
## Measurements

Both sides run on one machine, unless the row \"server\" has another machine. Soft-RoCE and soft-iWARP run in an emulated machine with one CPU and a clock that counts instructions: compare their
figures only with each other. With two emulated machines the clock is that of the host: do not compare these figures with others. On one CPU the two sides of `ibv_rc_pingpong`, which poll without
yielding, wait for the scheduler. A ping is a round trip. `cmtime` makes each phase for all connections at once; cmid-check makes one connection after the other.

";

fn reports() -> Vec<(Report, DeviceReport)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the results").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a report");
        let report: Report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        all.extend(report.devices.clone().into_iter().map(|device| (report.clone(), device)));
    }
    assert!(!all.is_empty(), "there are reports");
    all
}

fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().collect();
    writeln!(text, "| {} |", cells.join(" | ")).expect("a string");
}

fn rule(text: &mut String, columns: usize) {
    row(text, (0..columns).map(|_| "---".to_owned()));
}

fn title((report, device): &(Report, DeviceReport)) -> String {
    let kernel = report.host.kernel.split(['-', '+']).next().unwrap_or_default();
    let machines = if device.two_hosts { ", two machines" } else { "" };
    format!("{}, Linux {kernel}{machines}", device.name)
}

fn render() -> String {
    let all = reports();
    let mut text = HEAD.to_owned();
    let titles = || all.iter().map(title);
    text.push_str("\n## What was checked\n\n");
    row(&mut text, [String::new()].into_iter().chain(titles()));
    rule(&mut text, all.len() + 1);
    let mut line = |name: &str, of: &dyn Fn(&Report, &DeviceReport) -> String| {
        let cells = all.iter().map(|(report, device)| of(report, device));
        row(&mut text, [name.to_owned()].into_iter().chain(cells));
    };
    line("system", &|report, _| report.host.system.clone());
    line("kernel", &|report, _| format!("{} ({})", report.host.kernel, report.host.machine));
    line("libraries", &|report, _| report.host.libraries.join(", "));
    let names: BTreeSet<_> = all.iter().flat_map(|(_, device)| device.properties.keys().cloned()).collect();
    for name in &names {
        line(name, &|_, device| device.properties.get(name).cloned().unwrap_or_default());
    }
    line("server", &|_, device| if device.two_hosts { "another machine" } else { "the same machine" }.to_owned());
    text.push_str("\n## Behaviours\n\n");
    row(&mut text, [String::new()].into_iter().chain(titles()));
    rule(&mut text, all.len() + 1);
    let mut seen = Vec::new();
    for behaviour in all.iter().flat_map(|(_, device)| &device.behaviours) {
        if !seen.contains(&behaviour.name) {
            seen.push(behaviour.name.clone());
        }
    }
    for name in seen {
        let outcome = |device: &DeviceReport| {
            let found = device.behaviours.iter().find(|behaviour| behaviour.name == name);
            found.map_or_else(String::new, |behaviour| match (&behaviour.outcome, &behaviour.reason) {
                (Outcome::Pass, _) | (_, None) => behaviour.outcome.to_string(),
                (outcome, Some(reason)) => format!("{outcome} ({reason})"),
            })
        };
        row(&mut text, [name.clone()].into_iter().chain(all.iter().map(|(_, device)| outcome(device))));
    }
    text.push_str(FIGURES);
    row(&mut text, [String::new()].into_iter().chain(titles()));
    rule(&mut text, all.len() + 1);
    let figures = |device: &DeviceReport| {
        let own = device.figures.lines().into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(device.tools.clone()).collect::<Vec<_>>()
    };
    let names: Vec<_> = figures(&all[0].1).into_iter().map(|(name, _)| name).collect();
    for name in names {
        let value = |device: &DeviceReport| {
            figures(device).into_iter().find(|(other, _)| *other == name).map(|(_, value)| value).unwrap_or_default()
        };
        row(&mut text, [name.clone()].into_iter().chain(all.iter().map(|(_, device)| value(device))));
    }
    text
}

#[test]
fn devices_are_rendered_from_reports() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/devices.md")].assert_eq(&render());
}

/// A recorded report has a reason for each behaviour that did not pass.
#[test]
fn recorded_reports_name_the_reason_of_each_failure() {
    for (_, device) in reports() {
        for behaviour in &device.behaviours {
            assert_eq!(behaviour.reason.is_none(), behaviour.outcome == Outcome::Pass, "{}", behaviour.name);
        }
    }
}
