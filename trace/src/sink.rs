//! Where traces go.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gives each driver's trace a place of its own.
pub trait TraceSink: fmt::Debug + Send + Sync {
    /// Where the next one goes.
    ///
    /// # Errors
    /// What making the place failed with.
    fn next(&self) -> io::Result<Stream>;

    /// Hears why the trace at a place ends before its driver does, or why a driver has no place at all.
    fn on_error(&self, stream: Option<usize>, error: &io::Error) {
        let _ = (stream, error);
    }
}

/// A place on a reel.
pub struct Stream {
    /// Which, from 0. A place counts also where nothing comes to be written there.
    pub number: usize,
    /// What is written to, a whole line at a time.
    pub writer: Box<dyn Write + Send>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Files: `NAME`, then `NAME.2`, `NAME.3` and so on. Each line is in its file when the step that it tells of is over, also
/// where the program ends badly after it.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    made: AtomicUsize,
    /// The first: what kind of error, and of which file.
    lost: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Files {
    /// Files with this name.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Files { path: path.to_owned(), made: AtomicUsize::new(0), lost: Mutex::default() }
    }

    /// Whether all is written of what was to be. To be asked when the drivers have gone: they go on without their
    /// traces.
    ///
    /// # Errors
    /// Why the first file that is not complete is not, with its name.
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
        match File::create(&name) {
            // Without a buffer: a line that stayed in one would be lost in silence.
            Ok(file) => Ok(Stream { number, writer: Box::new(file) }),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", name.display()))),
        }
    }

    fn on_error(&self, stream: Option<usize>, error: &io::Error) {
        let reason = match stream {
            Some(number) => format!("{}: {error}", self.name(number).display()),
            // It could not be made, and says its name.
            None => error.to_string(),
        };
        lock(&self.lost).get_or_insert((error.kind(), reason));
    }
}

/// Memory; its clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    texts: Arc<Mutex<Vec<Text>>>,
}

impl Memory {
    /// Every trace so far, in the order in which they were begun.
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
