//! One run, from the first package to the last byte of output.

use crate::cache::{self, RunDirectory};
use crate::error::{Error, WithPath};
use crate::guest::Guest;
use crate::kernel::{self, Unpacked};
use crate::output::Pump;
use crate::packages::{self, FOR_THE_MACHINE};
use crate::qemu::{self, Report};
use crate::segment::Segment;
use crate::transport::{self, Transport};
use crate::{Kernel, Options, initramfs, modules, progress, script};
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write};
use std::os::unix::{ffi::OsStrExt, net::UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time-out: a month, because every wait must be bounded.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time limit for the reader of the output to catch up after the command has ended, independent of the command's own
/// limit.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// The same after a signal.
const SHORT_DRAIN: Duration = Duration::from_secs(2);
/// The limit of an answer of QEMU's monitor.
const MONITOR_LIMIT: Duration = Duration::from_secs(10);
/// What the monitor writes when it is ready for a command.
const PROMPT: &[u8] = b"(qemu) ";

/// Prepares what is kept between runs.
pub(crate) fn prepare(kernel: Kernel) -> Result<(PathBuf, Unpacked), Error> {
    packages::ensure(FOR_THE_MACHINE)?;
    let cache = cache::cache_directory()?;
    let unpacked = kernel::ensure(&cache, kernel)?;
    Ok((cache, unpacked))
}

pub(crate) fn run(
    options: &Options,
    wire: Option<&Segment>,
    command: &[OsString],
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
) -> Result<u8, Error> {
    start(options, wire, command, stdout, stderr)?.finish(options.timeout)
}

/// Boots a machine up to the start of the command.
pub(crate) fn start(
    options: &Options,
    wire: Option<&Segment>,
    command: &[OsString],
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
) -> Result<Session, Error> {
    let options = checked(options)?;
    let (cache, kernel) = prepare(options.kernel)?;
    progress::begin(&format!("booting Linux {}", kernel.release));
    let directory = RunDirectory::create(&cache)?;
    let file = |name| directory.path().join(name);
    let mut modules = modules::load_order(&kernel, options.transport, wire)?;
    if options.transport == Transport::Siw {
        modules.push(modules::read(&kernel, &transport::ensure_siw(&cache, options.kernel, &kernel)?)?);
    }
    initramfs::write(&file("initramfs"), &modules)?;
    let script = script::build(&options, command, &kernel.release)?;
    for (name, contents) in
        [("command", script), ("kernel", line(&kernel.directory)), ("writable", writable(&options.writable))]
    {
        let path = file(name);
        fs::write(&path, contents).about_file(&path)?;
    }

    let guest = Guest::boot(&options, wire, &kernel, directory.path())?;
    Ok(Session {
        guest,
        pumps: [Pump::start("stdout", &file("stdout"), stdout)?, Pump::start("stderr", &file("stderr"), stderr)?],
        deadline: Instant::now() + options.timeout,
        monitor: file("monitor"),
        _directory: directory,
    })
}

pub(crate) struct Session {
    guest: Guest,
    pumps: [Pump; 2],
    /// When the run is given up.
    deadline: Instant,
    monitor: PathBuf,
    /// Removed at the end.
    _directory: RunDirectory,
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

    /// Fails if the guest has failed or its command has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.guest.report()? {
            None => Ok(()),
            Some(Report::Exit(status)) => Err(Error::Unexpected(format!("the command has ended with status {status}"))),
            Some(other) => Err(Error::Unexpected(format!("the guest reported {other:?}"))),
        }
    }

    /// Stops the machine as a power cut does: what it has not written to its disk is lost.
    pub(crate) fn cut_power(mut self) -> Result<(), Error> {
        self.guest.stop();
        let drained = Instant::now() + SHORT_DRAIN;
        self.pumps.iter().try_for_each(|pump| pump.finish(drained))
    }

    /// Switches the link of a machine on a wire. Returns when QEMU has done it.
    pub(crate) fn set_link(&self, up: bool) -> Result<(), Error> {
        let state = if up { "on" } else { "off" };
        let mut monitor = UnixStream::connect(&self.monitor).about_file(&self.monitor)?;
        monitor.set_read_timeout(Some(MONITOR_LIMIT)).about("the monitor")?;
        // The answer to the second command shows that the first has been done.
        let commands = format!("set_link {} {state}\ninfo version\n", Segment::WIRE);
        monitor.write_all(commands.as_bytes()).about("the monitor")?;
        let mut said = Vec::new();
        let prompts = |said: &[u8]| said.windows(PROMPT.len()).filter(|part| *part == PROMPT).count();
        while prompts(&said) < 3 {
            let mut bytes = [0; 1024];
            let len = monitor.read(&mut bytes).about("the monitor")?;
            if len == 0 {
                return Err(Error::Unexpected("QEMU has closed its monitor".to_owned()));
            }
            said.extend_from_slice(bytes.get(..len).unwrap_or_default());
        }
        Ok(())
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
