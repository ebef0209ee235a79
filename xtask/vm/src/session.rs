//! One run, from the first package to the last byte of output.

use crate::{
    Kernel, Options,
    cache::{self, RunDirectory},
    error::{Error, WithPath},
    guest::Guest,
    initramfs,
    kernel::{self, Unpacked},
    modules,
    output::Pump,
    packages::{self, FOR_THE_MACHINE},
    progress::Step,
    qemu::{self, Files, Report},
    script,
    segment::Segment,
    transport::{self, Transport},
};
use std::{
    ffi::OsString,
    fs,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The longest time-out: a month, because every wait must be bounded.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time limit for the reader of the output to catch up after the command has ended, independent of the command's own
/// limit.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// The same after a signal.
const SHORT_DRAIN: Duration = Duration::from_secs(2);

/// Prepares what is kept between runs.
pub(crate) fn prepare(kernel: Kernel) -> Result<(PathBuf, Unpacked), Error> {
    packages::ensure(FOR_THE_MACHINE)?;
    let cache = cache::cache_directory()?;
    let unpacked = kernel::ensure(&cache, kernel)?;
    Ok((cache, unpacked))
}

pub(crate) fn run(
    options: &Options,
    wire: Option<Segment>,
    command: &[OsString],
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
) -> Result<u8, Error> {
    let options = checked(options)?;
    let (cache, kernel) = prepare(options.kernel)?;
    let booting = Step::begin(&format!("booting Linux {}", kernel.release));
    let directory = RunDirectory::create(&cache)?;
    let files = Files::new(directory.path());
    let mut modules = modules::load_order(&kernel, options.transport, wire)?;
    if options.transport == Transport::Siw {
        modules.push(modules::read(&kernel, &transport::ensure_siw(&cache, options.kernel, &kernel)?)?);
    }
    initramfs::write(&files.initramfs, &modules)?;
    let script = script::build(&options, command, &kernel.release)?;
    for (name, contents) in
        [("command", script), ("kernel", line(&kernel.directory)), ("writable", writable(&options.writable))]
    {
        let path = directory.path().join(name);
        fs::write(&path, contents).about_file(&path)?;
    }

    let guest = Guest::boot(&options, wire, &kernel, directory.path(), &files)?;
    drop(booting);
    let session = Session {
        guest,
        pumps: [Pump::start("stdout", &files.stdout, stdout)?, Pump::start("stderr", &files.stderr, stderr)?],
        deadline: Instant::now() + options.timeout,
    };
    session.finish(options.timeout)
}

struct Session {
    guest: Guest,
    pumps: [Pump; 2],
    /// When the run is given up.
    deadline: Instant,
}

impl Session {
    /// Waits for the command's status or for another end of the run.
    fn watch(&mut self, limit: Duration) -> Result<u8, Error> {
        while Instant::now() < self.deadline {
            for pump in &self.pumps {
                pump.check()?;
            }
            match self.guest.report()? {
                // The kernel may have failed while the status was in transit.
                Some(Report::Exit(status)) => return self.guest.check_console().map(|()| status),
                Some(other) => return Err(Error::Unexpected(format!("the guest reported {other:?}"))),
                None => {}
            }
        }
        Err(Error::Timeout { limit })
    }

    /// Watches the command, and forwards the rest of its output after any end.
    fn finish(mut self, limit: Duration) -> Result<u8, Error> {
        let outcome = self.watch(limit);
        // Output of a timed-out command is forwarded as far as it has been written.
        for warning in self.guest.stop() {
            eprintln!("softroce: the guest's kernel says: {warning}");
        }
        let drained = match outcome {
            // After an interrupt, a sleeping reader delays the end only briefly.
            Err(Error::Interrupted) => Instant::now() + SHORT_DRAIN,
            _ => self.deadline.max(Instant::now() + DRAIN_LIMIT),
        };
        let lost: Vec<_> = self.pumps.iter().filter_map(|pump| pump.finish(drained).err()).collect();
        let status = outcome?;
        lost.into_iter().next().map_or(Ok(status), Err)
    }
}

/// Checks the options, creates their directories and makes the paths absolute.
fn checked(options: &Options) -> Result<Options, Error> {
    let mut options = options.clone();
    if options.writable.len() > qemu::MOST_WRITABLE {
        return Err(Error::Usage(format!("more than {} writable directories", qemu::MOST_WRITABLE)));
    }
    if options.cpus == 0 || options.memory_mib < 256 {
        return Err(Error::Usage("the guest needs a CPU and 256 MiB".to_owned()));
    }
    if options.cpus > 1 && options.counted_clock {
        return Err(Error::Usage("a clock that counts instructions is for one CPU".to_owned()));
    }
    if options.timeout > LONGEST {
        return Err(Error::Usage(format!("the time-out is longer than {} s", LONGEST.as_secs())));
    }
    for directory in &mut options.writable {
        fs::create_dir_all(&directory).about_file(directory)?;
        *directory = directory.canonicalize().about_file(directory)?;
        if directory.as_os_str().as_bytes().contains(&b'\n') {
            return Err(Error::Usage(format!("a line break in the name of {}", directory.display())));
        }
    }
    Ok(options)
}

/// A path on a line, for the guest's init.
fn line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}

/// The writable directories for the guest's init: a mount tag and a path on each line.
fn writable(directories: &[PathBuf]) -> Vec<u8> {
    let lines = directories.iter().enumerate();
    lines.flat_map(|(index, path)| [qemu::writable_tag(index).as_bytes(), b" ", &line(path)].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused() {
        let none = Options { cpus: 0, ..Options::default() };
        assert!(matches!(checked(&none), Err(Error::Usage(_))));
        let endless = Options { timeout: Duration::MAX, ..Options::default() };
        assert!(matches!(checked(&endless), Err(Error::Usage(_))));
        let many = Options { writable: vec![PathBuf::from("/"); 17], ..Options::default() };
        assert!(matches!(checked(&many), Err(Error::Usage(_))));
    }

    #[test]
    fn writable_directories_are_listed_with_their_tags() {
        let lines = writable(&[PathBuf::from("/a b"), PathBuf::from("/c")]);
        assert_eq!(lines, b"writable0 /a b\nwritable1 /c\n");
    }
}
