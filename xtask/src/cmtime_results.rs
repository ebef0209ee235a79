//! What came out of the two cmtimes, as a section of the report (benches/results/).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// What our cmtime says of a run on the simulator.
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

/// The phases that both have, in their order.
const PHASES: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
/// How many of them make a connection.
const UNTIL_CONNECTED: usize = 5;

impl Run {
    /// From the JSON of ours.
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

    /// From the table of theirs: the name, a colon, and the total in milliseconds first.
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

/// What the runs in the VM said, in their order.
#[derive(Debug, Default)]
struct CameOut {
    ours: Vec<Run>,
    theirs: Vec<Run>,
    by_in_flight: BTreeMap<u64, Vec<Run>>,
}

fn read(text: &str, connections: u64) -> Result<CameOut> {
    let mut came_out = CameOut::default();
    let mut lines = text.lines().peekable();
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

/// The section of the report.
pub(crate) fn section(
    text: &str,
    connections: u64,
    kernel: &str,
    simulated: u64,
    on_simulator: &[Simulated; 2],
) -> Result<Value> {
    let came_out = read(text, connections)?;
    let pairs = |figure: &dyn Fn(&Run) -> Option<f64>| -> Result<Value> {
        let pairs = came_out.ours.iter().zip(&came_out.theirs);
        let pairs: Option<Vec<_>> = pairs.map(|(ours, theirs)| Some([figure(ours)?, figure(theirs)?])).collect();
        Ok(json!(pairs.context("a phase is missing")?))
    };
    let row = |what: String, unit: &str, target: Value, pairs: Value| json!({ "what": what, "unit": unit, "target": target, "exact": false, "pairs": pairs, "note": null });
    let mut rows = vec![
        row(
            format!("{connections} connections at once, from creation to destruction"),
            "connections/s",
            json!({ "at_least": 1.0 }),
            pairs(&|run| Some(run.per_second))?,
        ),
        row(
            format!("{connections} connections at once, until all are connected"),
            "connections/s",
            json!({ "at_least": 1.0 }),
            pairs(&|run| Some(run.connected_per_second))?,
        ),
    ];
    for phase in PHASES {
        let each = pairs(&|run| run.phases.get(phase).map(|total| total * 1e3 / connections as f64))?;
        rows.push(row(format!("the phase \"{phase}\", per connection"), "µs", Value::Null, each));
    }
    let mut points = Vec::new();
    for (most, runs) in &came_out.by_in_flight {
        let figures: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
        points.push(json!([most, median(&figures)]));
        let what = format!("ours with {most} connections in flight, each on its own");
        rows.push(json!({ "what": what, "unit": "connections/s", "target": null, "exact": false, "figures": figures, "note": null }));
    }
    let theirs: Vec<f64> = came_out.theirs.iter().map(|run| run.per_second).collect();
    for (run, how) in on_simulator.iter().zip(["100 at once", "all of them open at once"]) {
        let memory = run.peak_memory_kib.map_or("unknown".to_owned(), |kib| format!("{} MiB", kib / 1024));
        let wall = run.wall_seconds;
        let (seconds, clock) = run.cpu_seconds.map_or((wall, "by the clock"), |cpu| (cpu, "of processor time"));
        let note =
            format!("{memory} of memory at most; {wall:.1} s by the clock, of a machine that does other things too.");
        let what = format!("{simulated} connections on the simulator, both sides, {how}: seconds {clock}");
        rows.push(
            json!({ "what": what, "unit": "s", "target": null, "exact": false, "figures": [seconds], "note": note }),
        );
    }
    Ok(json!({
        "title": "Connections per second, against cmtime",
        "about": "Our `cmtime` (epoll) and rdma-core 44's, each as client and as server of itself, over soft-RoCE in the VM, in turns. The VM is \
                  emulated: only ratios mean something, and runs of the same program differ by a factor of two and more where the host has \
                  other work. Quartiles on both sides of 1 show no difference. Phase follows phase as in cmtime, with all connections at once. \
                  The simulated ones run on the host, in virtual time. `cargo xtask cmtime`.",
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
                { "name": "cmtime, phase after phase", "points": [[connections, median(&theirs)]] },
            ],
        }],
    }))
}

/// The middle one; of an even number the lower of both.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Each row with the median of its ratios and their quartiles, or of its figures.
pub(crate) fn summary(section: &Value) -> String {
    let mut text = String::new();
    for row in section["rows"].as_array().into_iter().flatten() {
        let what = row["what"].as_str().unwrap_or_default();
        let numbers =
            |value: &Value| value.as_array().map(|all| all.iter().filter_map(Value::as_f64).collect::<Vec<_>>());
        let line = match row["pairs"].as_array() {
            Some(pairs) => {
                let ratios = pairs.iter().filter_map(|pair| Some(pair[0].as_f64()? / pair[1].as_f64()?));
                let mut ratios: Vec<f64> = ratios.collect();
                ratios.sort_by(f64::total_cmp);
                let at = |part: usize| ratios.get((ratios.len().saturating_sub(1)) * part / 4).copied().unwrap_or(0.0);
                format!("{what}: {:.3} ({:.3} to {:.3}) of {}", at(2), at(1), at(3), ratios.len())
            }
            None => format!("{what}: {:.1}", median(&numbers(&row["figures"]).unwrap_or_default())),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
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
        format!("ours\n{ours}\ntheirs\n{THEIRS}theirs\n{THEIRS}ours\n{ours}\nin flight 4\n{ours}\n")
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
        assert!(read(&format!("ours\n{ours}\n"), 100).is_err());
        assert!(read(&format!("ours\n{ours}\ntheirs\ncreate id : 1.00\n"), 100).is_err());
        assert!(read("", 100).is_err());
    }

    #[test]
    fn the_section_has_the_ratios() {
        let simulated = || Simulated { wall_seconds: 9.0, cpu_seconds: Some(8.0), peak_memory_kib: Some(2048) };
        let section = section(&text(), 100, "6.12", 1000, &[simulated(), simulated()]).unwrap();
        assert_eq!(section["rows"][0]["pairs"][0], json!([10.0, 5e3]));
        let summary = summary(&section);
        assert!(summary.contains("from creation to destruction: 0.002 (0.002 to 0.002) of 2"), "{summary}");
        assert!(summary.contains("seconds of processor time: 8.0"), "{summary}");
    }
}
