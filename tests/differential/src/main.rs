//! The differential test as a program: against the kernel in the VM, or on the simulator alone to show its trace.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;
use cmid_differential::campaign::FIRST_SEED;
use cmid_differential::generate::Kind;
use cmid_differential::program::{Network, Program};
use cmid_differential::{generate, simulated};
use cmid_sim::Flavour;

/// Fewer programs need not reach all goals, unless a minimum must agree.
#[cfg(feature = "verbs")]
const ENOUGH: u64 = 300;

#[derive(Debug, Parser)]
#[command(about = "Random programs of calls, on the simulator and on a kernel")]
struct Args {
    /// The seed of the first program
    #[arg(long, default_value_t = FIRST_SEED)]
    seed: u64,
    /// The number of programs
    #[arg(long, default_value_t = 100)]
    programs: u64,
    /// The number of concurrent programs
    #[arg(long, default_value_t = 24)]
    batch: usize,
    /// The minimum number that must agree, and reach all goals; 100 with --seconds
    #[arg(long, value_name = "N")]
    least: Option<u64>,
    /// Begin no new program after this many seconds, if that many agree
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Repeat nothing after this many seconds: undecided programs stay undecided
    #[arg(long, value_name = "S")]
    deadline: Option<u64>,
    /// Stop after the batch with this many disagreements, and show no more
    #[arg(long, default_value_t = 3)]
    failures: usize,
    /// Do not shrink programs that differ
    #[arg(long)]
    no_shrink: bool,
    /// The timers of Linux 6.1 instead of 6.12
    #[arg(long)]
    old: bool,
    /// The backend of cmid on the kernel: librdmacm or kernel
    #[arg(long, value_name = "NAME", default_value = "kernel")]
    backend: String,
    /// Run only this program
    #[arg(long, value_name = "JSON")]
    program: Option<String>,
    /// Programs with steps of the data path
    #[arg(long)]
    data: bool,
    /// Programs for soft-iWARP
    #[arg(long)]
    iwarp: bool,
    /// Show the program and its trace on the simulator
    #[arg(long)]
    simulate: bool,
    /// Write the programs to this file, one on a line, and run none
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Read the programs from a file that `--write` has made for the same seeds, because an emulated CPU generates
    /// them slowly
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<bool> {
    let flavour = if args.old { Flavour::Linux6_1 } else { Flavour::Linux6_12 };
    let given: Option<Program> = args.program.as_deref().map(serde_json::from_str).transpose()?;
    if let Some(file) = &args.write {
        return write(args, file).with_context(|| file.display().to_string()).map(|()| true);
    }
    if args.simulate {
        show(&given.unwrap_or_else(|| args.kind().program(args.seed)), flavour);
        return Ok(true);
    }
    against_kernel(args, given.as_ref(), flavour)
}

impl Args {
    fn kind(&self) -> Kind {
        if self.data { Kind::Data(self.network()) } else { Kind::Calls(self.network()) }
    }

    fn network(&self) -> Network {
        if self.iwarp { Network::Iwarp } else { Network::Roce }
    }

    fn seeds(&self) -> anyhow::Result<Range<u64>> {
        let end = self.seed.checked_add(self.programs).context("there are no seeds beyond the largest")?;
        Ok(self.seed..end)
    }
}

fn write(args: &Args, file: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    for seed in args.seeds()? {
        serde_json::to_writer(&mut out, &args.kind().program(seed))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Reads programs written by [`write()`]. They must be requested in order.
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "only for the kernel"))]
fn reader(file: &Path) -> anyhow::Result<impl FnMut(u64) -> anyhow::Result<Program> + use<>> {
    let name = file.display().to_string();
    let mut lines = BufReader::new(File::open(file).with_context(|| name.clone())?).lines();
    Ok(move |seed| {
        let line = lines.next().with_context(|| format!("{name} ends before seed {seed}"))??;
        let program: Program = serde_json::from_str(&line).with_context(|| name.clone())?;
        ensure!(program.seed == seed, "{name} has seed {} instead of {seed}", program.seed);
        Ok(program)
    })
}

#[allow(clippy::print_stdout, reason = "it was asked for")]
fn show(program: &Program, flavour: Flavour) {
    print!("{program}");
    for schedule in simulated::schedules(program) {
        let simulated::Simulated { trace, limits, stalls, .. } =
            simulated::simulate(program, generate::NUMBERS, flavour, &schedule);
        println!("schedule {schedule:?}, {stalls} stalls, {limits:?}");
        for (side, lines) in [("a", &trace.a), ("b", &trace.b)] {
            lines.iter().for_each(|line| println!("  {side} {line}"));
        }
    }
}

#[cfg(not(feature = "verbs"))]
fn against_kernel(_: &Args, _: Option<&Program>, _: Flavour) -> anyhow::Result<bool> {
    anyhow::bail!("built without the feature `verbs`; there is --simulate")
}

#[cfg(feature = "verbs")]
#[allow(clippy::print_stdout, reason = "it was asked for")]
fn against_kernel(args: &Args, given: Option<&Program>, flavour: Flavour) -> anyhow::Result<bool> {
    use cmid_differential::{campaign, judge, kernel::Kernel, side_by_side};
    use judge::{Reality as _, Verdict};
    use std::time::Duration;
    let mut kernel =
        Kernel::open(flavour, args.backend.parse()?, given.map_or(args.network(), |program| program.network))?;
    if let Some(program) = given {
        ensure!(generate::is_safe(program), "a call would block in this kernel");
        print!("{program}");
        let mut agrees = true;
        for run in kernel.run(std::slice::from_ref(program))? {
            let verdict = judge::judge(program, &run, flavour);
            match &verdict {
                Verdict::Agrees => println!("{}they agree", side_by_side(&run.trace, &run.trace)),
                Verdict::TooSlow(simulator) => {
                    println!("{}too slow for its timers: {:?}", side_by_side(simulator, &run.trace), run.phases);
                }
                Verdict::Differs(simulator) => println!("{}they differ", side_by_side(simulator, &run.trace)),
            }
            agrees &= verdict == Verdict::Agrees;
        }
        return Ok(agrees);
    }
    let least = args.least.or(args.seconds.map(|_| campaign::LEAST));
    let plan = campaign::Plan {
        kind: args.kind(),
        seeds: args.seeds()?,
        batch: args.batch,
        limit: args.seconds.map(Duration::from_secs),
        least: least.unwrap_or(1),
        deadline: args.deadline.map(Duration::from_secs),
        failures: args.failures,
        shrink: !args.no_shrink,
    };
    let say = |line: &str| println!("{line}");
    let outcome = match &args.from {
        Some(file) => campaign::run_made(&plan, reader(file)?, &mut kernel, say)?,
        None => campaign::run(&plan, &mut kernel, say)?,
    };
    println!("{outcome}");
    let objections = outcome.objections(&plan, !args.data && (least.is_some() || outcome.agreed >= ENOUGH));
    objections.iter().for_each(|objection| eprintln!("differential: {objection}"));
    Ok(objections.is_empty())
}
