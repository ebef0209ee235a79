//! Destinations of traces.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The mode of the files: only their owner may read and write them.
const OWNERS: u32 = 0o600;

/// Creates one stream per driver.
pub trait TraceSink: fmt::Debug + Send + Sync {
    /// Creates the stream of the next driver.
    ///
    /// # Errors
    /// The error of creating the stream.
    fn next(&self) -> io::Result<Stream>;

    /// Called when writing a stream fails, or with `stream` `None` when a driver has no stream.
    fn on_error(&self, stream: Option<usize>, error: &io::Error) {
        let _ = (stream, error);
    }
}

/// The output of one trace.
pub struct Stream {
    /// The number of the stream, from 0. A stream that cannot be created counts too.
    pub number: usize,
    /// The writer. Receives whole lines.
    pub writer: Box<dyn Write + Send>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Writes files `NAME`, `NAME.2`, `NAME.3` and so on. Each line is in its file when its step is complete, so a crash
/// later does not lose it. A file that exists is emptied: move that of a crash away before the program starts again. The
/// files have mode 0600, because they contain the private data of the peers.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    made: AtomicUsize,
    /// The first error: its kind, and a message with the name of the file.
    lost: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Files {
    /// Creates a sink for files with this name. A file is created by [`Trace::new`](crate::Trace::new).
    ///
    /// ```
    /// let files = cmid_trace::Files::at("server.trace");
    /// assert!(files.check().is_ok());
    /// ```
    #[must_use]
    pub fn at(path: impl AsRef<Path>) -> Self {
        Files { path: path.as_ref().to_owned(), made: AtomicUsize::new(0), lost: Mutex::default() }
    }

    /// Checks that all traces are complete. Call it after the drivers are dropped: a driver continues without its
    /// trace.
    ///
    /// # Errors
    /// The first error, with the name of its file.
    pub fn check(&self) -> io::Result<()> {
        match &*lock(&self.lost) {
            None => Ok(()),
            Some((kind, reason)) => Err(io::Error::new(*kind, reason.clone())),
        }
    }

    fn name(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{}", number + 1));
        }
        name.into()
    }
}

impl TraceSink for Files {
    fn next(&self) -> io::Result<Stream> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = self.name(number);
        match create(&name) {
            // Unbuffered: a buffered line could be lost without an error.
            Ok(file) => Ok(Stream { number, writer: Box::new(file) }),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", name.display()))),
        }
    }

    fn on_error(&self, stream: Option<usize>, error: &io::Error) {
        let reason = match stream {
            Some(number) => format!("{}: {error}", self.name(number).display()),
            // The file could not be created; the error contains its name.
            None => error.to_string(),
        };
        lock(&self.lost).get_or_insert((error.kind(), reason));
    }
}

/// Creates or empties a file that only its owner may read: a trace contains the private data of the peers. Changes
/// nothing about what is no regular file, such as a pipe.
fn create(name: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNERS).open(name)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(OWNERS))?;
    }
    Ok(file)
}

/// Stores traces in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    texts: Arc<Mutex<Vec<Text>>>,
}

impl Memory {
    /// Returns all traces so far, in the order of their creation.
    #[must_use]
    pub fn texts(&self) -> Vec<Vec<u8>> {
        lock(&self.texts).iter().map(|text| lock(&text.0).clone()).collect()
    }
}

impl TraceSink for Memory {
    fn next(&self) -> io::Result<Stream> {
        let text = Text::default();
        let mut texts = lock(&self.texts);
        let number = texts.len();
        texts.push(text.clone());
        Ok(Stream { number, writer: Box::new(text) })
    }
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
