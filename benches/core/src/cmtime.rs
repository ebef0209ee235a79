//! The results of cmid's cmtime and of rdma-core's (`cargo xtask cmtime`), as a section of the report.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::results::{Row, Section, Target};

/// The file of the output of the runs in the VM (`tests/kernel/scripts/cmtime.sh`), in the folder of a backend.
const RUNS: &str = "cmtime.txt";
/// The folder of each backend of cmid, the end of its rows' names, and the target of the ratio.
const BACKENDS: [(&str, &str, f64); 2] = [("librdmacm", "", 1.0), ("kernel", ", kernel backend", 1.05)];
/// The phases that both programs have, in their order.
const PHASES: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
/// The number of these phases until the connection is established.
const UNTIL_CONNECTED: usize = 5;

/// Returns the section with the results in this folder.
///
/// # Errors
/// The output of a run is missing or malformed.
pub fn section(folder: &Path, kernel: &str) -> Result<Section> {
    let (mut rows, mut version) = (Vec::new(), String::new());
    for (backend, name, target) in BACKENDS {
        let path = folder.join(backend).join(RUNS);
        let runs = parse(&fs::read_to_string(&path).with_context(|| path.display().to_string())?)?;
        rows.extend(rates_over_c(&runs, name, target));
        version = runs.version;
    }
    Ok(Section {
        title: "Connections per second, against cmtime".to_owned(),
        about: format!(
            "Our `cmtime` (epoll, built with LTO) and rdma-core {version}'s, each as client and as server of itself, over soft-RoCE in the VM, \
             in turns. The VM is emulated: only ratios mean something. Phase follows phase as in cmtime, with all \
             connections at once. `cargo xtask cmtime`."
        ),
        kernel: Some(kernel.to_owned()),
        rows,
    })
}

/// One run, as in the JSON output of cmid's cmtime.
#[derive(Debug, PartialEq, Deserialize)]
struct Run {
    connections: u64,
    connected_per_second: f64,
    per_second: f64,
}

impl Run {
    /// Parses the table of rdma-core's cmtime: the name, a colon, and the total in milliseconds first.
    fn theirs(table: &[&str], connections: u64) -> Result<Run> {
        let mut phases: BTreeMap<_, f64> = BTreeMap::new();
        for line in table {
            let (name, numbers) = line.split_once(':').context("no colon")?;
            let total = numbers.split_whitespace().next().context("no number")?;
            phases.insert(name.trim(), total.parse().with_context(|| (*line).to_owned())?);
        }
        let per_second = |count: usize| {
            let times: Option<Vec<f64>> = PHASES[..count].iter().map(|&phase| phases.get(phase).copied()).collect();
            Ok::<_, anyhow::Error>(connections as f64 * 1e3 / times.context("a phase is missing")?.iter().sum::<f64>())
        };
        let (connected_per_second, per_second) = (per_second(UNTIL_CONNECTED)?, per_second(PHASES.len())?);
        Ok(Run { connections, connected_per_second, per_second })
    }
}

/// The results of the runs in the VM, in their order.
#[derive(Debug, Default)]
struct Runs {
    /// The version of rdma-core's cmtime.
    version: String,
    ours: Vec<Run>,
    theirs: Vec<Run>,
}

fn parse(text: &str) -> Result<Runs> {
    let mut runs = Runs::default();
    let mut lines = text.lines().peekable();
    let version = lines.next().and_then(|line| line.strip_prefix("rdma-core "));
    runs.version = version.context("which rdma-core?")?.to_owned();
    let mut tables = Vec::new();
    while let Some(line) = lines.next() {
        if line == "theirs" {
            let mut table = Vec::new();
            while let Some(line) = lines.next_if(|line| line.contains(':') && !line.starts_with('{')) {
                table.push(line);
            }
            tables.push(table);
            continue;
        }
        ensure!(line == "ours", "what is \"{line}\"?");
        let run = lines.next().with_context(|| format!("nothing after \"{line}\""))?;
        runs.ours.push(serde_json::from_str(run).context("the output of cmtime")?);
    }
    let connections = runs.ours.first().context("runs are missing")?.connections;
    ensure!(runs.ours.iter().all(|run| run.connections == connections), "not all runs are alike");
    runs.theirs = tables.iter().map(|table| Run::theirs(table, connections)).collect::<Result<_>>()?;
    ensure!(runs.ours.len() == runs.theirs.len(), "runs are missing");
    Ok(runs)
}

/// Connections per second of both programs, of each pair of runs, with a target for their ratio.
fn rates_over_c(runs: &Runs, name: &str, target: f64) -> [Row; 2] {
    let connections = runs.ours.first().map_or(0, |run| run.connections);
    let row = |until: &str, rate: fn(&Run) -> f64| Row {
        what: format!("{connections} connections at once, {until}{name}"),
        unit: "connections/s".to_owned(),
        target: Some(Target::AtLeast(target)),
        pairs: runs.ours.iter().zip(&runs.theirs).map(|(ours, theirs)| [rate(ours), rate(theirs)]).collect(),
        ..Row::default()
    };
    [
        row("from creation to destruction", |run| run.per_second),
        row("until all are connected", |run| run.connected_per_second),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str =
        r#"{"phases":[{"name":"create id"}],"connections":100,"connected_per_second":20.0,"per_second":10.0}"#;
    const THEIRS: &str = "create id    :        1.00       0.42       5.00      19.46\nresolve addr :        1.00 1 1 1\n\
        resolve route:        1.00 1 1 1\ncreate qp    :        1.00 1 1 1\nconnect      :        6.00 1 1 1\n\
        disconnect   :        5.00 1 1 1\ndestroy      :        5.00 1 1 1\n";

    fn text() -> String {
        format!("rdma-core 44.0-2\nours\n{OURS}\ntheirs\n{THEIRS}theirs\n{THEIRS}ours\n{OURS}\n")
    }

    #[test]
    fn both_are_read_alike() {
        let runs = parse(&text()).unwrap();
        assert_eq!((runs.ours.len(), runs.theirs.len()), (2, 2));
        assert_eq!(runs.ours[1], Run { connections: 100, connected_per_second: 20.0, per_second: 10.0 });
        assert_eq!(runs.theirs[0], Run { connections: 100, connected_per_second: 1e4, per_second: 5e3 });
    }

    #[test]
    fn a_run_that_is_missing_is_an_error() {
        assert!(parse(&format!("rdma-core 44\nours\n{OURS}\n")).is_err());
        assert!(parse(&format!("rdma-core 44\nours\n{OURS}\ntheirs\ncreate id : 1.00\n")).is_err());
        assert!(parse(&(text() + "ours\n" + &OURS.replace(":100,", ":99,"))).is_err());
        assert!(parse(text().split_once('\n').unwrap().1).is_err());
        assert!(parse("").is_err());
        assert!(section(tempfile::tempdir().unwrap().path(), "6.12").is_err());
    }

    #[test]
    fn the_section_has_the_ratios_of_both_backends() {
        let folder = tempfile::tempdir().unwrap();
        for (backend, ..) in BACKENDS {
            fs::create_dir(folder.path().join(backend)).unwrap();
            fs::write(folder.path().join(backend).join(RUNS), text()).unwrap();
        }
        let section = section(folder.path(), "6.12").unwrap();
        assert!(section.about.contains("rdma-core 44.0-2's"), "{section:?}");
        assert_eq!([0, 2].map(|row| section.rows[row].pairs[0]), [[10.0, 5e3]; 2]);
        let row = &section.rows[3];
        assert_eq!(row.what, "100 connections at once, until all are connected, kernel backend");
        assert!(matches!(row.target, Some(Target::AtLeast(1.05))), "{row:?}");
    }
}
