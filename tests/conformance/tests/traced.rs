//! Records every fast scenario, and replays the recordings through separate cores: these make the same calls, deliver
//! the same events and reach the same states as the drivers' cores.
//!
//! Runs on one driver: the recorded loop is shared by all drivers. `trace/tests/drivers.rs` covers the others.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cmid_conformance::scenarios;
use cmid_harness::{Make, OnEpoll, SimEnv, TracedEnv};
use cmid_sim::SimDevice;
use cmid_trace::{Memory, Recording, Trace, replay};
use libtest_mimic::{Arguments, Failed, Trial};

type Plain = SimEnv<OnEpoll<SimDevice>>;

/// Scenarios at a time. They mostly wait.
const AT_ONCE: usize = 16;
/// Lower bound of traces in a whole run. With fewer, scenarios are missing or their drivers are not recorded.
const TRACES_MIN: usize = 400;

#[derive(Debug, Default)]
struct Totals {
    traces: AtomicUsize,
    lines: AtomicUsize,
}

fn main() -> ExitCode {
    let totals = Arc::new(Totals::default());
    let trials = on::<OnEpoll<_, _>>(&totals);
    let arguments = Arguments { test_threads: Some(AT_ONCE), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    let [traces, lines] = [&totals.traces, &totals.lines].map(|total| total.load(Ordering::Relaxed));
    eprintln!("{traces} traces of {lines} lines replayed");
    let is_whole = conclusion.num_filtered_out == 0 && !arguments.list;
    if is_whole && traces < TRACES_MIN {
        eprintln!("at least {TRACES_MIN} were due");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn on<S: Make<SimDevice, Trace> + 'static>(totals: &Arc<Totals>) -> Vec<Trial> {
    let fits = Plain::new();
    let all = scenarios::<TracedEnv<Plain, S>>().into_iter().map(|scenario| scenario.entry);
    let wanted = all.filter(|entry| entry.runs_beside_others(&fits));
    let trial = |name: &'static str| {
        let totals = Arc::clone(totals);
        Trial::test(name, move || run::<S>(name, &totals).map_err(Failed::from))
    };
    wanted.map(|entry| trial(entry.name)).collect()
}

fn run<S: Make<SimDevice, Trace>>(name: &str, totals: &Totals) -> Result<(), String> {
    let memory = Memory::default();
    let env = TracedEnv::<_, S>::new(Plain::new(), Arc::new(memory.clone()));
    let scenario = scenarios().into_iter().find(|scenario| scenario.entry.name == name);
    let scenario = scenario.ok_or("it is gone")?;
    scenario.run(&env).map_err(|failure| format!("recorded, it fails: {}", failure.0))?;

    let read = |text: &Vec<u8>| Recording::read(&text[..]).map_err(|wrong| wrong.to_string());
    let recordings = memory.texts().iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if let Some(part) = recordings.iter().position(|recording| !recording.is_whole()) {
        return Err(format!("trace {part} has no end"));
    }
    let replayed = replay(&recordings, |_, _| {}).map_err(|wrong| format!("trace {}, {wrong}", wrong.recording))?;
    let ends = env.ends();
    if ends.is_empty() || ends.len() != replayed.len() {
        return Err(format!("{} drivers and {} traces", ends.len(), replayed.len()));
    }
    for (place, live) in ends {
        let replayed = replayed.get(place).ok_or("a driver without a trace")?;
        // Compares the complete state, not only the observable part.
        if *replayed != live {
            return Err(format!("trace {place} comes to another state:\n{replayed:?}\nlive it was\n{live:?}"));
        }
        totals.traces.fetch_add(1, Ordering::Relaxed);
    }
    totals.lines.fetch_add(recordings.iter().map(Recording::lines).sum(), Ordering::Relaxed);
    Ok(())
}
