//! The cache that is kept between runs, and each run's own directory.

use crate::error::{Error, WithPath};
use crate::{interrupt, progress};
use rustix::fs::FlockOperation::NonBlockingLockExclusive;
use rustix::fs::flock;
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};
use tempfile::TempDir;

/// The longest wait for another process that prepares the same thing.
const LOCK_LIMIT: Duration = Duration::from_secs(3600);

/// The directory for kernels and other downloads: `$CMID_CACHE`, or `cmid` below `$XDG_CACHE_HOME` or `~/.cache`.
///
/// # Errors
///
/// None of the variables is set, or the directory cannot be made.
pub fn cache_directory() -> Result<PathBuf, Error> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = variable("CMID_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|base| base.join("cmid")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/cmid")))
        .ok_or_else(|| Error::Usage("none of CMID_CACHE, XDG_CACHE_HOME and HOME is set".to_owned()))?;
    fs::create_dir_all(&directory).about_file(&directory)?;
    directory.canonicalize().about_file(&directory)
}

/// Takes the lock of that name in this directory. It is released when the file is dropped, or when its process dies.
/// Fails if the file cannot be made, another process holds it for an hour, or a signal has arrived.
pub(crate) fn lock(cache: &Path, name: &str) -> Result<File, Error> {
    let path = cache.join(format!("{name}.lock"));
    let file = File::create(&path).about_file(&path)?;
    let deadline = Instant::now() + LOCK_LIMIT;
    let mut waiting = None;
    loop {
        match flock(&file, NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(io::Error::from(error)).about_file(&path),
        }
        interrupt::check()?;
        if Instant::now() > deadline {
            return Err(Error::Unexpected(format!("another process holds {} for too long", path.display())));
        }
        waiting.get_or_insert_with(|| progress::begin(&format!("waiting for another process that holds {name}.lock")));
        thread::sleep(Duration::from_millis(20));
    }
}

/// The files of one run, deleted on drop.
pub(crate) struct RunDirectory {
    directory: TempDir,
    /// A lock, held during the run. If it is free, the directory was left behind by a killed process.
    _alive: File,
}

impl RunDirectory {
    pub(crate) fn create(cache: &Path) -> Result<Self, Error> {
        let base = cache.join("run");
        fs::create_dir_all(&base).about_file(&base)?;
        // Without this lock, another process could delete a new directory before its own lock is taken.
        let _sweeping = lock(cache, "run")?;
        sweep(&base)?;
        let directory = tempfile::Builder::new().prefix("run-").tempdir_in(&base).about_file(&base)?;
        let alive = directory.path().join("alive");
        let alive = File::create(&alive).about_file(&alive)?;
        flock(&alive, NonBlockingLockExclusive).map_err(io::Error::from).about_file(directory.path())?;
        Ok(RunDirectory { directory, _alive: alive })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn sweep(base: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(base).about_file(base)?.flatten() {
        let dead = match File::open(entry.path().join("alive")) {
            Ok(alive) => flock(&alive, NonBlockingLockExclusive).is_ok(),
            // The process died before it created the file: this process holds the lock that it held.
            Err(_) => true,
        };
        if dead {
            // The directories of other users cannot be deleted, and do no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_run_is_swept_and_a_living_one_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let dead = cache.path().join("run/run-dead");
        fs::create_dir_all(&dead).unwrap();
        fs::write(dead.join("alive"), "").unwrap();
        let living = RunDirectory::create(cache.path()).unwrap();
        let second = RunDirectory::create(cache.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists());
        let gone = second.path().to_owned();
        drop(second);
        assert!(!gone.exists());
    }
}
