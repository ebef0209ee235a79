//! The results of cmid's cmtime and of rdma-core's (`cargo xtask cmtime`), as a section of the report.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::results::{Row, Section, Target};

/// The file of the output of the runs in the VM (`tests/kernel/scripts/cmtime.sh`).
const RUNS: &str = "cmtime.txt";
/// The phases that both programs have, in their order.
const PHASES: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
/// The number of these phases until the connection is established.
const UNTIL_CONNECTED: usize = 5;
/// The end of the names of the kernel backend's rows.
const ON_KERNEL: &str = ", kernel backend";
/// The unit of rates.
const RATE: &str = "connections/s";

/// Returns the section with the results of librdmacm in this folder. Takes the rows of the kernel backend from the
/// recorded section.
///
/// # Errors
/// The output of a run is missing or malformed.
pub fn section(folder: &Path, kernel: &str, recorded: Option<Section>) -> Result<Section> {
    let mut section = of_librdmacm(&read(folder)?, kernel)?;
    let rows = recorded.into_iter().flat_map(|section| section.rows);
    put_kernel_rows(&mut section, rows.filter(is_on_kernel).collect());
    Ok(section)
}

/// Puts the rates of the kernel backend in this folder into a recorded section, in place of earlier ones.
///
/// # Errors
/// The output of a run is missing or malformed.
pub fn add_kernel_backend(section: &mut Section, folder: &Path) -> Result<()> {
    put_kernel_rows(section, kernel_rows(&read(folder)?)?);
    Ok(())
}

fn read(folder: &Path) -> Result<Runs> {
    parse(&fs::read_to_string(folder.join(RUNS)).context(RUNS)?)
}

/// The JSON output of cmid's cmtime.
#[derive(Debug, Deserialize)]
struct Ours {
    connections: u64,
    phases: Vec<Phase>,
    connected_per_second: f64,
    per_second: f64,
}

#[derive(Debug, Deserialize)]
struct Phase {
    name: String,
    total_ms: f64,
}

/// One run: milliseconds by phase, and connections per second.
#[derive(Debug, PartialEq)]
struct Run {
    phases: BTreeMap<String, f64>,
    connected_per_second: f64,
    per_second: f64,
}

impl From<Ours> for Run {
    fn from(ours: Ours) -> Self {
        let phases = ours.phases.into_iter().map(|phase| (phase.name, phase.total_ms)).collect();
        Run { phases, connected_per_second: ours.connected_per_second, per_second: ours.per_second }
    }
}

impl Run {
    /// Parses the table of rdma-core's cmtime: the name, a colon, and the total in milliseconds first.
    fn theirs(table: &[&str], connections: u64) -> Result<Run> {
        let mut phases = BTreeMap::new();
        for line in table {
            let (name, numbers) = line.split_once(':').context("no colon")?;
            let total = numbers.split_whitespace().next().context("no number")?;
            phases.insert(name.trim().to_owned(), total.parse().with_context(|| (*line).to_owned())?);
        }
        let per_second = |count: usize| {
            let times: Option<Vec<f64>> = PHASES[..count].iter().map(|&phase| phases.get(phase).copied()).collect();
            Ok::<_, anyhow::Error>(connections as f64 * 1e3 / times.context("a phase is missing")?.iter().sum::<f64>())
        };
        let (connected_per_second, per_second) = (per_second(UNTIL_CONNECTED)?, per_second(PHASES.len())?);
        Ok(Run { phases, connected_per_second, per_second })
    }
}

/// The results of the runs in the VM, in their order.
#[derive(Debug, Default)]
struct Runs {
    /// The version of rdma-core's cmtime.
    version: String,
    /// The number of connections of each run.
    connections: u64,
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
        let run = lines.next().with_context(|| format!("nothing after \"{line}\""))?;
        let run: Ours = serde_json::from_str(run).context("the output of cmtime")?;
        ensure!(runs.connections == 0 || runs.connections == run.connections, "not all runs are alike");
        runs.connections = run.connections;
        ensure!(line == "ours", "what is \"{line}\"?");
        runs.ours.push(run.into());
    }
    let connections = runs.connections;
    runs.theirs = tables.iter().map(|table| Run::theirs(table, connections)).collect::<Result<_>>()?;
    ensure!(!runs.ours.is_empty() && runs.ours.len() == runs.theirs.len(), "runs are missing");
    Ok(runs)
}

/// The rows of the kernel backend: connections per second.
fn kernel_rows(runs: &Runs) -> Result<Vec<Row>> {
    let mut rows = rates_over_c(runs, 1.05)?;
    rows.iter_mut().for_each(|row| row.what.push_str(ON_KERNEL));
    Ok(rows)
}

/// After librdmacm's rates, which are the first rows.
fn put_kernel_rows(section: &mut Section, on_kernel: Vec<Row>) {
    section.rows.retain(|row| !is_on_kernel(row));
    let at = section.rows.len().min(2);
    section.rows.splice(at..at, on_kernel);
}

fn is_on_kernel(row: &Row) -> bool {
    row.what.ends_with(ON_KERNEL)
}

/// A row that compares both programs in one figure of each pair of runs.
fn compared(
    what: String,
    unit: &str,
    target: Option<Target>,
    runs: &Runs,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Result<Row> {
    let pairs = runs.ours.iter().zip(&runs.theirs).map(|(ours, theirs)| Some([figure(ours)?, figure(theirs)?]));
    let pairs = pairs.collect::<Option<_>>().context("a phase is missing")?;
    Ok(Row { what, unit: unit.to_owned(), target, pairs, ..Row::default() })
}

/// Connections per second of both programs, with a target for their ratio.
fn rates_over_c(runs: &Runs, target: f64) -> Result<Vec<Row>> {
    let what = |until: &str| format!("{} connections at once, {until}", runs.connections);
    let target = Some(Target::AtLeast(target));
    Ok(vec![
        compared(what("from creation to destruction"), RATE, target, runs, |run| Some(run.per_second))?,
        compared(what("until all are connected"), RATE, target, runs, |run| Some(run.connected_per_second))?,
    ])
}

fn of_librdmacm(runs: &Runs, kernel: &str) -> Result<Section> {
    Ok(Section {
        title: "Connections per second, against cmtime".to_owned(),
        about: format!(
            "Our `cmtime` (epoll, built with LTO) and rdma-core {}'s, each as client and as server of itself, over soft-RoCE in the VM, \
             in turns. The VM is emulated: only ratios mean something. Phase follows phase as in cmtime, with all \
             connections at once. `cargo xtask cmtime`.",
            runs.version
        ),
        kernel: Some(kernel.to_owned()),
        rows: rates_over_c(runs, 1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"phases":[{"name":"create id","total_ms":1.0},{"name":"resolve addr","total_ms":1.0},
        {"name":"resolve route","total_ms":1.0},{"name":"create qp","total_ms":1.0},{"name":"connect","total_ms":1.0},
        {"name":"disconnect","total_ms":1.0},{"name":"destroy","total_ms":1.0}],"connections":100,
        "connected_per_second":20.0,"per_second":10.0}"#;
    const THEIRS: &str = "create id    :        1.00       0.42       5.00      19.46\nresolve addr :        1.00 1 1 1\n\
        resolve route:        1.00 1 1 1\ncreate qp    :        1.00 1 1 1\nconnect      :        6.00 1 1 1\n\
        disconnect   :        5.00 1 1 1\ndestroy      :        5.00 1 1 1\n";

    fn text() -> String {
        let ours = OURS.replace('\n', "");
        format!("rdma-core 44.0-2\nours\n{ours}\ntheirs\n{THEIRS}theirs\n{THEIRS}ours\n{ours}\n")
    }

    /// A folder with the output of the runs.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(RUNS), text()).unwrap();
        folder
    }

    #[test]
    fn both_are_read_alike() {
        let runs = parse(&text()).unwrap();
        assert_eq!((runs.ours.len(), runs.theirs.len()), (2, 2));
        let theirs = &runs.theirs[0];
        assert_eq!((theirs.connected_per_second, theirs.per_second, theirs.phases["connect"]), (1e4, 5e3, 6.0));
        assert_eq!(runs.ours[1].phases["connect"], 1.0);
    }

    #[test]
    fn a_run_that_is_missing_is_an_error() {
        let ours = OURS.replace('\n', "");
        assert!(parse(&format!("rdma-core 44\nours\n{ours}\n")).is_err());
        assert!(parse(&format!("rdma-core 44\nours\n{ours}\ntheirs\ncreate id : 1.00\n")).is_err());
        assert!(parse(&(text() + "ours\n" + &ours.replace(":100,", ":99,"))).is_err());
        assert!(parse(text().split_once('\n').unwrap().1).is_err());
        assert!(parse("").is_err());
        assert!(section(tempfile::tempdir().unwrap().path(), "6.12", None).is_err());
    }

    #[test]
    fn the_section_has_the_ratios() {
        let section = section(folder().path(), "6.12", None).unwrap();
        assert_eq!(section.rows[0].pairs[0], [10.0, 5e3]);
        assert!(section.about.contains("rdma-core 44.0-2's"), "{section:?}");
    }

    #[test]
    fn the_kernel_backend_has_rows_beside_those_of_librdmacm() {
        let folder = folder();
        let mut recorded = section(folder.path(), "6.12", None).unwrap();
        let others = recorded.rows.len();
        for _ in 0..2 {
            add_kernel_backend(&mut recorded, folder.path()).unwrap();
            assert_eq!(recorded.rows.len(), others + 2);
        }
        let row = &recorded.rows[2];
        assert!(row.what.ends_with("from creation to destruction, kernel backend"), "{row:?}");
        assert!(matches!(row.target, Some(Target::AtLeast(1.05))) && row.pairs[0] == [10.0, 5e3], "{row:?}");
        let anew = section(folder.path(), "6.12", Some(recorded.clone())).unwrap();
        assert_eq!(serde_json::to_value(anew).unwrap(), serde_json::to_value(recorded).unwrap());
    }
}
