//! Where traces go.

use std::fmt;
use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gives each driver's trace a place of its own.
pub trait Reel: fmt::Debug + Send + Sync {
    /// Where the next one goes. It is written to line by line.
    ///
    /// # Errors
    /// What making the place failed with.
    fn next(&self) -> io::Result<Box<dyn Write + Send>>;
}

/// Files: `NAME`, then `NAME.2`, `NAME.3` and so on. Each line is in its file when the step that it tells of is over, also
/// where the program ends badly after it.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    made: AtomicU32,
}

impl Files {
    /// Files with this name.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Files { path: path.to_owned(), made: AtomicU32::new(0) }
    }
}

impl Reel for Files {
    fn next(&self) -> io::Result<Box<dyn Write + Send>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut path = self.path.clone().into_os_string();
        if number > 1 {
            path.push(format!(".{number}"));
        }
        Ok(Box::new(LineWriter::new(File::create(path)?)))
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

impl Reel for Memory {
    fn next(&self) -> io::Result<Box<dyn Write + Send>> {
        let text = Text::default();
        lock(&self.texts).push(text.clone());
        Ok(Box::new(text))
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
