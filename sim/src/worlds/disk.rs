//! A small disk: files of bytes, which are safe only after a flush.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::Time;

use crate::fabric::Fabric;
use crate::fabric::rng::Rng;
use crate::worlds::program::Skew;

/// The longest time of a flush.
const FLUSH: Duration = Duration::from_millis(8);

/// The disk of a host. Clones are the same disk.
///
/// A program that ends or crashes loses nothing of what it has written. A host that loses its power may lose each write
/// that was not flushed, or a part of it: the last bytes of a write that is torn are missing. Each is decided by the seed.
/// A flush takes up to 8 ms; a power loss before its end may lose what it covers.
#[derive(Clone, Debug)]
pub struct Disk {
    fabric: Fabric,
    skew: Rc<std::cell::Cell<Skew>>,
    state: Rc<RefCell<State>>,
}

type Files = BTreeMap<Rc<str>, Vec<u8>>;

#[derive(Debug, Default)]
struct State {
    /// As the programs see it.
    seen: Files,
    /// What a power loss leaves.
    safe: Files,
    /// Writes that are not safe, oldest first, with the time when their flush ends.
    writes: Vec<(Write, Option<Time>)>,
}

#[derive(Clone, Debug)]
struct Write {
    file: Rc<str>,
    at: usize,
    /// `None` cuts the file off at `at`.
    bytes: Option<Vec<u8>>,
}

impl Write {
    /// Does it to a file, of its bytes only the first `most`.
    fn apply(&self, files: &mut Files, most: usize) {
        let file = match files.get_mut(&self.file) {
            Some(file) => file,
            None => files.entry(Rc::clone(&self.file)).or_default(),
        };
        match &self.bytes {
            None => file.truncate(self.at),
            Some(bytes) => {
                let bytes = bytes.get(..most).unwrap_or(bytes);
                if file.len() < self.at {
                    file.resize(self.at, 0);
                }
                let place = file.get_mut(self.at..).unwrap_or_default();
                let (within, beyond) = bytes.split_at(bytes.len().min(place.len()));
                place.iter_mut().zip(within).for_each(|(place, &byte)| *place = byte);
                file.extend_from_slice(beyond);
            }
        }
    }
}

impl Disk {
    pub(crate) fn new(fabric: &Fabric, skew: &Rc<std::cell::Cell<Skew>>) -> Self {
        Disk { fabric: fabric.clone(), skew: Rc::clone(skew), state: Rc::default() }
    }

    /// Returns the bytes of a file; none if there is no such file.
    #[must_use]
    pub fn read(&self, file: &str) -> Vec<u8> {
        self.state.borrow().seen.get(file).cloned().unwrap_or_default()
    }

    /// Writes bytes at this offset of a file. What is between its end and the offset is zero.
    pub fn write(&self, file: &str, at: usize, bytes: &[u8]) {
        self.change(file, at, Some(bytes.to_vec()));
    }

    /// Writes bytes at the end of a file.
    pub fn append(&self, file: &str, bytes: &[u8]) {
        let end = self.state.borrow().seen.get(file).map_or(0, Vec::len);
        self.write(file, end, bytes);
    }

    /// Cuts a file off at this length.
    pub fn truncate(&self, file: &str, len: usize) {
        self.change(file, len, None);
    }

    fn change(&self, file: &str, at: usize, bytes: Option<Vec<u8>>) {
        let state = &mut *self.state.borrow_mut();
        let file = state.seen.get_key_value(file).map_or_else(|| file.into(), |(name, _)| Rc::clone(name));
        let write = Write { file, at, bytes };
        write.apply(&mut state.seen, usize::MAX);
        state.writes.push((write, None));
    }

    /// Begins to make all writes so far safe. Returns the time of the host's clock when that is done: wait for it before
    /// telling anybody.
    #[must_use = "the writes are safe from then on"]
    pub fn flush(&self) -> Time {
        let (now, took) = self.fabric.with(|world| (world.now, world.rng.below(FLUSH.as_nanos() as u64)));
        let state = &mut *self.state.borrow_mut();
        state.settle(now);
        // Not before the flushes under way.
        let busy = state.writes.iter().filter_map(|(_, due)| *due).max().unwrap_or(now);
        let due = now.after(Duration::from_nanos(took)).max(busy);
        state.writes.iter_mut().for_each(|(_, safe)| *safe = Some(safe.unwrap_or(due)));
        self.skew.get().local(due)
    }

    /// The host loses its power.
    pub(crate) fn lose_power(&self) {
        let now = self.fabric.now();
        let state = &mut *self.state.borrow_mut();
        state.settle(now);
        for (write, _) in std::mem::take(&mut state.writes) {
            self.fabric.with(|world| state.keep_some(&write, &mut world.rng));
        }
        state.seen.clone_from(&state.safe);
    }

    /// The host gets an empty disk.
    pub(crate) fn clear(&self) {
        *self.state.borrow_mut() = State::default();
    }
}

impl State {
    /// Makes the writes safe whose flush has ended.
    fn settle(&mut self, now: Time) {
        let is_safe = |due: Option<Time>| due.is_some_and(|due| due <= now);
        let State { safe, writes, .. } = self;
        writes.retain(|(write, due)| {
            if is_safe(*due) {
                write.apply(safe, usize::MAX);
            }
            !is_safe(*due)
        });
    }

    /// A third of the unsafe writes is lost, a third is torn.
    fn keep_some(&mut self, write: &Write, rng: &mut Rng) {
        let len = write.bytes.as_ref().map_or(0, Vec::len);
        match rng.below(3) {
            0 => {}
            1 if write.bytes.is_some() => write.apply(&mut self.safe, rng.below(len as u64) as usize),
            _ => write.apply(&mut self.safe, usize::MAX),
        }
    }
}
