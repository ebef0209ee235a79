//! The results of the two cmtimes, as a section of the report (benches/results/).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The output of cmid's cmtime for a run on the simulator.
#[derive(Debug, Deserialize)]
pub(crate) struct Simulated {
    wall_seconds: f64,
    cpu_seconds: Option<f64>,
    peak_memory_kib: Option<u64>,
}

/// One run: milliseconds by phase, and connections per second.
#[derive(Debug, PartialEq)]
struct Run {
    phases: BTreeMap<String, f64>,
    connected_per_second: f64,
    per_second: f64,
}

/// The phases that both programs have, in their order.
const PHASES: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
/// The ratio of connections per second of the first version.
const BEFORE: &str = "0.77 to 0.87";
/// The number of these phases until the connection is established.
const UNTIL_CONNECTED: usize = 5;

impl Run {
    /// Parses the JSON output of cmid's cmtime.
    fn ours(json: &str) -> Result<Run> {
        let said: Value = serde_json::from_str(json)?;
        let number = |value: &Value, name: &str| value[name].as_f64().with_context(|| format!("no {name}"));
        let phases = said["phases"].as_array().context("no phases")?.iter();
        let phases =
            phases.map(|phase| Ok((phase["name"].as_str().context("no name")?.to_owned(), number(phase, "total_ms")?)));
        Ok(Run {
            phases: phases.collect::<Result<_>>()?,
            connected_per_second: number(&said, "connected_per_second")?,
            per_second: number(&said, "per_second")?,
        })
    }

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
struct CameOut {
    /// The version of rdma-core's cmtime.
    version: String,
    ours: Vec<Run>,
    theirs: Vec<Run>,
    by_in_flight: BTreeMap<u64, Vec<Run>>,
}

fn read(text: &str, connections: u64) -> Result<CameOut> {
    let mut came_out = CameOut::default();
    let mut lines = text.lines().peekable();
    let version = lines.next().and_then(|line| line.strip_prefix("rdma-core "));
    came_out.version = version.context("which rdma-core?")?.to_owned();
    while let Some(line) = lines.next() {
        if line == "theirs" {
            let mut table = Vec::new();
            while let Some(line) = lines.next_if(|line| line.contains(':') && !line.starts_with('{')) {
                table.push(line);
            }
            came_out.theirs.push(Run::theirs(&table, connections)?);
            continue;
        }
        let run = Run::ours(lines.next().with_context(|| format!("nothing after \"{line}\""))?)?;
        match line.strip_prefix("in flight ") {
            Some(most) => came_out.by_in_flight.entry(most.parse()?).or_default().push(run),
            None => {
                ensure!(line == "ours", "what is \"{line}\"?");
                came_out.ours.push(run);
            }
        }
    }
    ensure!(!came_out.ours.is_empty() && came_out.ours.len() == came_out.theirs.len(), "runs are missing");
    Ok(came_out)
}

/// The end of the names of the kernel backend's rows.
const ON_KERNEL: &str = ", kernel backend";

/// The rows of the kernel backend: connections per second.
fn kernel_rows(came_out: &CameOut, connections: u64) -> Result<Vec<Value>> {
    let mut rows = rates_over_c(came_out, connections, 1.05)?;
    for row in &mut rows {
        row["what"] = json!(format!("{}{ON_KERNEL}", row["what"].as_str().unwrap_or_default()));
    }
    Ok(rows)
}

/// Puts the results of the kernel backend into a recorded section, in place of earlier ones.
pub(crate) fn add_kernel_rows(section: &mut Value, text: &str, connections: u64) -> Result<()> {
    put_kernel_rows(section, kernel_rows(&read(text, connections)?, connections)?)
}

/// Copies the results of the kernel backend from the recorded section, if there are any.
pub(crate) fn keep_kernel_rows(section: &mut Value, recorded: &Value) -> Result<()> {
    let rows = recorded["rows"].as_array().into_iter().flatten().filter(|row| is_on_kernel(row)).cloned();
    put_kernel_rows(section, rows.collect())
}

/// After librdmacm's rates, which are the first rows.
fn put_kernel_rows(section: &mut Value, on_kernel: Vec<Value>) -> Result<()> {
    let rows = section["rows"].as_array_mut().context("nothing is recorded for librdmacm")?;
    rows.retain(|row| !is_on_kernel(row));
    let at = rows.len().min(2);
    rows.splice(at..at, on_kernel);
    Ok(())
}

fn is_on_kernel(row: &Value) -> bool {
    row["what"].as_str().is_some_and(|what| what.ends_with(ON_KERNEL))
}

/// A comparison of each pair of runs in one figure.
fn pairs(came_out: &CameOut, figure: &dyn Fn(&Run) -> Option<f64>) -> Result<Value> {
    let pairs = came_out.ours.iter().zip(&came_out.theirs);
    let pairs: Option<Vec<_>> = pairs.map(|(ours, theirs)| Some([figure(ours)?, figure(theirs)?])).collect();
    Ok(json!(pairs.context("a phase is missing")?))
}

/// Connections per second of both programs, with a target for their ratio.
fn rates_over_c(came_out: &CameOut, connections: u64, target: f64) -> Result<Vec<Value>> {
    let row = |until: &str, figure: &dyn Fn(&Run) -> Option<f64>| -> Result<Value> {
        let what = format!("{connections} connections at once, {until}");
        let target = json!({ "at_least": target });
        Ok(compared(what, "connections/s", target, pairs(came_out, figure)?))
    };
    Ok(vec![
        row("from creation to destruction", &|run| Some(run.per_second))?,
        row("until all are connected", &|run| Some(run.connected_per_second))?,
    ])
}

/// The section of the report.
pub(crate) fn section(
    text: &str,
    connections: u64,
    kernel: &str,
    simulated: u64,
    on_simulator: &[Simulated; 2],
) -> Result<Value> {
    let came_out = read(text, connections)?;
    let mut rows = rates_over_c(&came_out, connections, 1.0)?;
    rows[0]["before"] = json!(BEFORE);
    for phase in PHASES {
        let each = pairs(&came_out, &|run| run.phases.get(phase).map(|total| total * 1e3 / connections as f64))?;
        rows.push(compared(format!("the phase \"{phase}\", per connection"), "µs", Value::Null, each));
    }
    let (by_concurrency, points) = by_concurrency(&came_out, connections)?;
    rows.extend(by_concurrency);
    let at_once = |runs: &[Run]| Ok::<_, anyhow::Error>(json!([[connections, median(&rates(runs))?]]));
    let (ours, theirs) = (at_once(&came_out.ours)?, at_once(&came_out.theirs)?);
    for (run, how) in on_simulator.iter().zip(["100 at once", "phase after phase on each simulated host"]) {
        let memory = run.peak_memory_kib.map_or("unknown".to_owned(), |kib| format!("{} MiB", kib / 1024));
        let wall = run.wall_seconds;
        let (seconds, clock) = run.cpu_seconds.map_or((wall, "by the clock"), |cpu| (cpu, "of processor time"));
        let note = format!("{memory} of memory at most; {wall:.1} s by the clock.");
        let what = format!("{simulated} connections on the simulator, both sides, {how}: seconds {clock}");
        rows.push(alone(what, "s", &[seconds], Some(note)));
    }
    Ok(json!({
        "title": "Connections per second, against cmtime",
        "about": format!(
            "Our `cmtime` (epoll) and rdma-core {}'s, each as client and as server of itself, over soft-RoCE in the VM, \
             in turns. The VM is emulated: only ratios mean something. Phase follows phase as in cmtime, with all \
             connections at once. The simulated ones run on the host, in virtual time. `cargo xtask cmtime`.",
            came_out.version
        ),
        "kernel": kernel,
        "rows": rows,
        "plots": [{
            "file": "connections-by-concurrency.svg",
            "title": "Connections per second by concurrency, in the VM",
            "x": "connections at once",
            "y": "connections/s",
            "log": [true, false],
            "lines": [
                { "name": "cmid, each on its own", "points": points },
                { "name": "cmid, phase after phase", "points": ours },
                { "name": "cmtime, phase after phase", "points": theirs },
            ],
        }],
    }))
}

/// A row that compares both programs.
fn compared(what: String, unit: &str, target: Value, pairs: Value) -> Value {
    json!({ "what": what, "unit": unit, "target": target, "exact": false, "pairs": pairs, "note": null })
}

/// A row of cmid's cmtime alone.
fn alone(what: String, unit: &str, figures: &[f64], note: Option<String>) -> Value {
    json!({ "what": what, "unit": unit, "target": null, "exact": false, "figures": figures, "note": note })
}

fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.per_second).collect()
}

/// The rates of cmid's cmtime by connections in flight: a row for each and one for the best, and the points of the
/// plot.
fn by_concurrency(came_out: &CameOut, connections: u64) -> Result<(Vec<Value>, Vec<Value>)> {
    const UNIT: &str = "connections/s";
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    let figures = rates(&came_out.ours);
    let mut best = (median(&figures)?, format!("{connections} at once, phase after phase"), figures);
    for (most, runs) in &came_out.by_in_flight {
        let figures = rates(runs);
        let (middle, how) = (median(&figures)?, format!("{most} connections in flight, each on its own"));
        points.push(json!([most, middle]));
        rows.push(alone(format!("ours with {how}"), UNIT, &figures, None));
        if middle > best.0 {
            best = (middle, how, figures);
        }
    }
    let (_, how, figures) = best;
    rows.push(alone(format!("ours at the concurrency with the highest median: {how}"), UNIT, &figures, None));
    Ok((rows, points))
}

fn median(figures: &[f64]) -> Result<f64> {
    quartiles(figures).map(|[_, median, _]| median)
}

/// Lower quartile, median and upper quartile, interpolated linearly, as in docs/generated/performance.md.
fn quartiles(figures: &[f64]) -> Result<[f64; 3]> {
    ensure!(!figures.is_empty() && figures.iter().all(|figure| figure.is_finite()), "no figures, or no numbers");
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok([0.25, 0.5, 0.75].map(|share| {
        let place = share * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }))
}

/// A summary: each row with the median and quartiles of its ratios, or of its figures.
pub(crate) fn summary(section: &Value) -> Result<String> {
    let mut text = String::new();
    for row in section["rows"].as_array().into_iter().flatten() {
        let what = row["what"].as_str().unwrap_or_default();
        let line = match row["pairs"].as_array() {
            Some(pairs) => {
                let ratios = pairs.iter().filter_map(|pair| Some(pair[0].as_f64()? / pair[1].as_f64()?));
                let ratios: Vec<f64> = ratios.collect();
                let [low, median, high] = quartiles(&ratios).with_context(|| what.to_owned())?;
                format!("{what}: {median:.3} ({low:.3} to {high:.3}) of {}", ratios.len())
            }
            None => {
                let figures = row["figures"].as_array().into_iter().flatten().filter_map(Value::as_f64);
                let figures: Vec<f64> = figures.collect();
                format!("{what}: {:.1}", median(&figures).with_context(|| what.to_owned())?)
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"phases":[{"name":"create id","total_ms":1.0},{"name":"resolve addr","total_ms":1.0},
        {"name":"resolve route","total_ms":1.0},{"name":"create qp","total_ms":1.0},{"name":"connect","total_ms":1.0},
        {"name":"disconnect","total_ms":1.0},{"name":"destroy","total_ms":1.0}],"connected_per_second":20.0,"per_second":10.0}"#;
    const THEIRS: &str = "create id    :        1.00       0.42       5.00      19.46\nresolve addr :        1.00 1 1 1\n\
        resolve route:        1.00 1 1 1\ncreate qp    :        1.00 1 1 1\nconnect      :        6.00 1 1 1\n\
        disconnect   :        5.00 1 1 1\ndestroy      :        5.00 1 1 1\n";

    fn text() -> String {
        let ours = OURS.replace('\n', "");
        format!("rdma-core 44.0-2\nours\n{ours}\ntheirs\n{THEIRS}theirs\n{THEIRS}ours\n{ours}\nin flight 4\n{ours}\n")
    }

    #[test]
    fn both_are_read_alike() {
        let came_out = read(&text(), 100).unwrap();
        assert_eq!((came_out.ours.len(), came_out.theirs.len(), came_out.by_in_flight[&4].len()), (2, 2, 1));
        let theirs = &came_out.theirs[0];
        assert_eq!((theirs.connected_per_second, theirs.per_second, theirs.phases["connect"]), (1e4, 5e3, 6.0));
        assert_eq!(came_out.ours[1].phases["connect"], 1.0);
    }

    #[test]
    fn a_run_that_is_missing_is_an_error() {
        let ours = OURS.replace('\n', "");
        assert!(read(&format!("rdma-core 44\nours\n{ours}\n"), 100).is_err());
        assert!(read(&format!("rdma-core 44\nours\n{ours}\ntheirs\ncreate id : 1.00\n"), 100).is_err());
        assert!(read(text().split_once('\n').unwrap().1, 100).is_err());
        assert!(read("", 100).is_err());
    }

    #[test]
    fn the_section_has_the_ratios() {
        let simulated = || Simulated { wall_seconds: 9.0, cpu_seconds: Some(8.0), peak_memory_kib: Some(2048) };
        let section = section(&text(), 100, "6.12", 1000, &[simulated(), simulated()]).unwrap();
        assert_eq!(section["rows"][0]["pairs"][0], json!([10.0, 5e3]));
        assert!(section["about"].as_str().unwrap().contains("rdma-core 44.0-2's"), "{section}");
        assert_eq!(section["plots"][0]["lines"][1]["points"], json!([[100, 10.0]]));
        let summary = summary(&section).unwrap();
        assert!(summary.contains("from creation to destruction: 0.002 (0.002 to 0.002) of 2"), "{summary}");
        assert!(summary.contains("seconds of processor time: 8.0"), "{summary}");
        assert!(summary.contains("highest median: 100 at once, phase after phase: 10.0"), "{summary}");
    }

    #[test]
    fn the_kernel_backend_has_rows_beside_those_of_librdmacm() {
        let simulated = || Simulated { wall_seconds: 9.0, cpu_seconds: Some(8.0), peak_memory_kib: Some(2048) };
        let mut recorded = section(&text(), 100, "6.12", 1000, &[simulated(), simulated()]).unwrap();
        let others = recorded["rows"].as_array().unwrap().len();
        for _ in 0..2 {
            add_kernel_rows(&mut recorded, &text(), 100).unwrap();
            assert_eq!(recorded["rows"].as_array().unwrap().len(), others + 2);
        }
        let row = &recorded["rows"][2];
        assert!(row["what"].as_str().unwrap().ends_with("from creation to destruction, kernel backend"), "{row}");
        assert_eq!((&row["target"], &row["pairs"][0]), (&json!({ "at_least": 1.05 }), &json!([10.0, 5e3])));
        let mut anew = section(&text(), 100, "6.12", 1000, &[simulated(), simulated()]).unwrap();
        keep_kernel_rows(&mut anew, &recorded).unwrap();
        assert_eq!(anew, recorded);
        assert!(add_kernel_rows(&mut Value::Null, &text(), 100).is_err());
    }

    #[test]
    fn the_best_concurrency_is_named() {
        let (slow, fast) = (OURS.replace('\n', ""), OURS.replace('\n', "").replace(":10.0}", ":30.0}"));
        let text = text() + &format!("in flight 16\n{fast}\nin flight 64\n{slow}\n");
        let (rows, points) = by_concurrency(&read(&text, 100).unwrap(), 100).unwrap();
        assert_eq!(points, [json!([4, 10.0]), json!([16, 30.0]), json!([64, 10.0])]);
        let best = rows.last().unwrap();
        assert!(best["what"].as_str().unwrap().ends_with(": 16 connections in flight, each on its own"), "{best}");
        assert_eq!(best["figures"], json!([30.0]));
    }

    /// The same results as on the page (benches/core/src/report/comparison.rs).
    #[test]
    fn medians_and_quartiles() {
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]).unwrap(), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(&[1.0, 2.0]).unwrap(), [1.25, 1.5, 1.75]);
        assert!(quartiles(&[]).is_err() && quartiles(&[f64::NAN]).is_err());
    }
}
