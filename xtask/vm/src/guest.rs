//! The guest as a whole: its machine, its console, and how it comes up.

use crate::console::{Alert, Console};
use crate::error::{Error, WithPath};
use crate::kernel::Unpacked;
use crate::qemu::{Machine, Report};
use crate::segment::Segment;
use crate::{Options, interrupt};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit from QEMU's start to the command's. An idle machine takes six seconds.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// How long a failing kernel may still write messages.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The number of attempts to boot a guest of several CPUs; see [`Guest::boot`].
const BOOT_ATTEMPTS: u32 = 4;

pub(crate) struct Guest {
    machine: Machine,
    console: Console,
    /// The file of QEMU's own messages.
    messages: PathBuf,
}

impl Guest {
    /// Boots the guest up to the start of the command.
    ///
    /// With several CPUs, QEMU's emulation has a race between a CPU that runs the kernel's code and another that
    /// patches it. It ends in an oops ("int3") once in some thirty boots on a busy host. No part of the command has
    /// run by then, so another attempt hides nothing.
    pub(crate) fn boot(
        options: &Options,
        wire: Option<&Segment>,
        kernel: &Unpacked,
        directory: &Path,
    ) -> Result<Self, Error> {
        let mut attempt = 1;
        loop {
            // Creates what is read before QEMU may have opened it, or clears the output of earlier attempts.
            for name in ["console", "stdout", "stderr"] {
                let path = directory.join(name);
                File::create(&path).about_file(&path)?;
            }
            let mut guest = Guest {
                machine: Machine::start(options, wire, kernel, directory)?,
                console: Console::open(&directory.join("console"))?,
                messages: directory.join("messages"),
            };
            match guest.wait_for_begin() {
                Ok(()) => return Ok(guest),
                Err(Error::GuestKernel { line, .. }) if options.cpus > 1 && attempt < BOOT_ATTEMPTS => {
                    eprintln!("softroce: the guest failed to boot with {} CPUs, trying again: {line}", options.cpus);
                }
                Err(error) => return Err(error),
            }
            attempt += 1;
        }
    }

    fn wait_for_begin(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + BOOT_LIMIT;
        while Instant::now() < deadline {
            match self.report()? {
                Some(Report::Begin) => return Ok(()),
                Some(other) => return Err(Error::Unexpected(format!("the guest reported {other:?} while booting"))),
                None => {}
            }
        }
        let reason = format!("it did not get there within {} s", BOOT_LIMIT.as_secs());
        Err(Error::Guest { reason, console: self.console.tail() })
    }

    /// Waits a few milliseconds for a report. A signal, a kernel failure, and the end of QEMU are errors.
    pub(crate) fn report(&mut self) -> Result<Option<Report>, Error> {
        interrupt::check()?;
        self.check_console()?;
        match self.machine.report()? {
            Some(Report::Gone) => Err(self.post_mortem()?),
            other => Ok(other),
        }
    }

    /// Fails if the console shows a failure, after the kernel has written all its messages.
    pub(crate) fn check_console(&mut self) -> Result<(), Error> {
        if self.console.alarm()?.is_none() {
            return Ok(());
        }
        self.machine.wait(LAST_WORDS);
        let console = self.console.tail();
        match self.console.alarm()? {
            Some(Alert::Kernel(line)) => Err(Error::GuestKernel { line: line.clone(), console }),
            Some(Alert::Setup(reason)) => Err(Error::Guest { reason: reason.clone(), console }),
            None => Ok(()),
        }
    }

    /// Finds the cause of QEMU's end: the kernel, the guest's init, or QEMU itself.
    fn post_mortem(&mut self) -> Result<Error, Error> {
        self.machine.wait(LAST_WORDS);
        self.check_console()?;
        let qemu = fs::read(&self.messages).about_file(&self.messages)?;
        let qemu = String::from_utf8_lossy(&qemu).trim_end().to_owned();
        Ok(Error::GuestDied { qemu, console: self.console.tail() })
    }

    /// Stops the machine. Returns the kernel's warnings.
    pub(crate) fn stop(&mut self) -> &[String] {
        self.machine.stop();
        self.console.warnings()
    }
}
