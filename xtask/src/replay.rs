//! `cargo xtask replay FILE`: a recording, run through the pure core.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use cmid_trace::{Chart, ChartFormat, Recording, replay};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The recordings; several where one driver adopts what another one has released
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Also draw a sequence chart of the only file: FILE.mmd for Mermaid, FILE.svg for a picture
    #[arg(long, value_name = "FILE", value_parser = chart)]
    chart: Option<(PathBuf, ChartFormat)>,
    /// Say only how it ended
    #[arg(long)]
    quiet: bool,
}

fn chart(path: &str) -> Result<(PathBuf, ChartFormat), String> {
    let path = PathBuf::from(path);
    let format = match path.extension().and_then(|it| it.to_str()) {
        Some("mmd") => ChartFormat::Mermaid,
        Some("svg") => ChartFormat::Svg,
        Some(_) | None => return Err("a chart is a file that ends in .mmd or .svg".into()),
    };
    Ok((path, format))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.chart.is_some() && arguments.files.len() > 1 {
        bail!("a chart shows one driver: give one file");
    }
    let recordings = arguments.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let mut drawn = Chart::default();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let replayed = replay(&recordings, |which, transition| {
        drawn.add(transition);
        if !arguments.quiet && written.is_ok() {
            let file = if recordings.len() > 1 { format!("{}:", which + 1) } else { String::new() };
            written = writeln!(out, "{file}{:>5}  {transition}", transition.line);
        }
    });
    // The pages of a long replay may be closed before its end.
    let _nobody_reads_on = written.and_then(|()| out.flush());
    drop(out);
    // Of one that goes wrong too: it leads to where it does.
    if let Some((path, format)) = &arguments.chart {
        fs::write(path, drawn.draw(*format)).with_context(|| path.display().to_string())?;
    }
    let replays = replayed.map_err(|(which, wrong)| match arguments.files.get(which) {
        Some(path) => anyhow!("{}, {wrong}", path.display()),
        None => anyhow!("{wrong}"),
    })?;
    for ((path, recording), replay) in arguments.files.iter().zip(&recordings).zip(&replays) {
        let (ids, channels) = (replay.core().ids(), replay.core().channels());
        let how = if recording.is_whole() {
            "and came to the recorded end"
        } else {
            "and the recording has no end: its program did not come to one, or still runs"
        };
        println!("{}: {} lines replayed, {how}; {ids} ids, {channels} channels", path.display(), recording.lines());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Recording> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Recording::read(BufReader::new(file)).map_err(|wrong| anyhow!("{}, {wrong}", path.display()))
}
