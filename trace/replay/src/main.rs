//! `cmid-replay`: replays recordings of cmid drivers in the pure core.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser;
use cmid_trace::{Chart, ChartFormat, Recording, replay};

/// Replays recordings of cmid drivers.
///
/// Runs the recorded steps through the state machines of cmid, without a device. Prints each step with the change of
/// state, and compares calls, events and the final state with the recording. The exit status is 0 if they agree.
#[derive(Debug, Parser)]
#[command(name = "cmid-replay", version)]
struct Arguments {
    /// The recordings; several for the drivers of a program, or of both sides of a connection
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Also draw a sequence chart: FILE.mmd for Mermaid, FILE.svg for a picture
    #[arg(long, value_name = "FILE", value_parser = chart)]
    chart: Option<(PathBuf, ChartFormat)>,
    /// Print only the result
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit status tells it too.
            let _ = writeln!(io::stderr(), "cmid-replay: {error:#}");
            ExitCode::FAILURE
        }
    }
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

/// Prints each step and a summary of each file to standard output, and writes the chart. An error names the file and the
/// line.
fn run(arguments: &Arguments) -> Result<()> {
    let recordings = arguments.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let mut drawn = Chart::default();
    let mut page = String::new();
    let replayed = replay(&recordings, |which, transition| {
        drawn.add(which, transition);
        if !arguments.quiet {
            let file = if recordings.len() > 1 { format!("{}:", which + 1) } else { String::new() };
            let _ = writeln!(page, "{file}{:>5}  {transition}", transition.line);
        }
    });
    // The chart of a replay that fails is drawn too; it ends at the failure.
    if let Some((path, format)) = &arguments.chart {
        fs::write(path, drawn.draw(*format)).with_context(|| path.display().to_string())?;
    }
    let cores = match replayed {
        Ok(cores) => cores,
        Err(wrong) => {
            // Reports the error of the replay and not that of the output.
            let _worse = print(io::stdout(), &page);
            let path =
                arguments.files.get(wrong.recording).map_or(String::new(), |path| format!("{}, ", path.display()));
            bail!("{path}{wrong}");
        }
    };
    for (which, ((path, recording), core)) in arguments.files.iter().zip(&recordings).zip(&cores).enumerate() {
        let (ids, channels) = (core.ids().count(), core.channels().count());
        let how = if recording.is_whole() {
            "and reached the recorded end"
        } else {
            "and the recording has no end: its program ended early, or still runs"
        };
        let (path, lines, number) = (path.display(), recording.lines(), recording.core());
        let file = if recordings.len() > 1 { format!("{}: ", which + 1) } else { String::new() };
        let _ = writeln!(
            page,
            "{file}{path}: core {number}, {lines} lines replayed, {how}; {ids} ids, {channels} channels"
        );
    }
    print(io::stdout(), &page).context("standard output")
}

/// Writes to standard output, which may be a pager. `BrokenPipe`, because the reader has closed the pager, is not an error.
fn print(mut out: impl Write, page: &str) -> io::Result<()> {
    match out.write_all(page.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn read(path: &Path) -> Result<Recording> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Recording::read(BufReader::new(file)).map_err(|wrong| anyhow!("{}, {wrong}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_may_go_and_a_disk_may_not_be_full() {
        let written = |kind| print(Fails(kind), "line\n").map_err(|error| error.kind());
        assert_eq!(written(ErrorKind::BrokenPipe), Ok(()));
        assert_eq!(written(ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
    }
}
