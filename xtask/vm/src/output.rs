//! Forwards the command's output as it is written.
//!
//! QEMU writes each stream to a file. A pipe would be simpler, but while its reader sleeps the guest's driver spins
//! with interrupts off, and a reader, such as a pager, may sleep for long.

use crate::error::{Error, WithPath};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
    mpsc::{self, Receiver, RecvTimeoutError},
};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// A thread that copies a growing file to a writer.
pub(crate) struct Pump {
    /// Set when the file is complete.
    complete: Arc<AtomicBool>,
    result: Receiver<io::Result<()>>,
    name: &'static str,
}

impl Pump {
    pub(crate) fn start(name: &'static str, path: &Path, mut to: Box<dyn Write + Send>) -> Result<Self, Error> {
        let mut from = File::open(path).about_file(path)?;
        let complete = Arc::new(AtomicBool::new(false));
        let (sender, result) = mpsc::sync_channel(1);
        let flag = Arc::clone(&complete);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // The receiver is gone if the run has already failed.
                let _ = sender.send(copy(&mut from, &mut to, &flag));
            })
            .about("starting a thread")?;
        Ok(Pump { complete, result, name })
    }

    /// Fails if the writer has failed, so that a run without a reader ends early.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.result.try_recv() {
            Ok(result) => result.about(self.name),
            Err(_) => Ok(()),
        }
    }

    /// Marks the file as complete, and waits until all of it is forwarded.
    pub(crate) fn finish(&self, deadline: Instant) -> Result<(), Error> {
        self.complete.store(true, SeqCst);
        let rest = deadline.saturating_duration_since(Instant::now());
        match self.result.recv_timeout(rest) {
            Ok(result) => result.about(self.name),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Unexpected(format!("nobody reads our {}; some of it is lost", self.name)))
            }
            // An error returned by an earlier check().
            Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

fn copy(from: &mut File, to: &mut dyn Write, complete: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        // Loaded before the read, so that data written between the two is not missed.
        let last = complete.load(SeqCst);
        let mut some = false;
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            some = true;
            to.write_all(buffer.get(..length).unwrap_or_default())?;
        }
        if some {
            to.flush()?;
        }
        if last {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn nothing_is_lost_at_the_end() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let seen = Shared::default();
        let pump = Pump::start("stdout", file.path(), Box::new(seen.clone())).unwrap();
        let mut expected = Vec::new();
        for round in 0..200_u8 {
            let line = [round; 1000];
            file.write_all(&line).unwrap();
            expected.extend_from_slice(&line);
        }
        pump.finish(soon()).unwrap();
        assert!(*seen.0.lock().unwrap() == expected);
    }

    #[test]
    fn a_failing_writer_is_told() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"x").unwrap();
        let pump = Pump::start("stdout", file.path(), Box::new(Broken)).unwrap();
        assert!(pump.finish(soon()).is_err());
    }
}
