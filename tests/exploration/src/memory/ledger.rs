//! Tracks the uses of PDs and the place of each buffer, by clones and drops of a region's contents.

use std::cell::RefCell;

use cmid_proto::memory::{Buffer, Pd};

/// What a step did to the uses of PDs and to buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A use of this PD was cloned.
    Shared(usize),
    /// A use of this PD was dropped.
    Released(usize),
    /// A buffer was cloned or dropped: it should have gone from hand to hand.
    Lost,
}

thread_local! {
    /// `None` but while a step is taken: states are cloned and dropped by the checker too.
    static BOOKS: RefCell<Option<Vec<Note>>> = const { RefCell::new(None) };
}

/// Closes the books, whatever happens.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        BOOKS.with_borrow_mut(|ledger| *ledger = None);
    }
}

/// Keeps books on a step.
pub(super) fn keep<T>(step: impl FnOnce() -> T) -> (T, Vec<Note>) {
    BOOKS.with_borrow_mut(|ledger| *ledger = Some(Vec::new()));
    let _open = Open;
    let result = step();
    (result, BOOKS.with_borrow_mut(|ledger| ledger.take().unwrap_or_default()))
}

fn note(note: Note) {
    BOOKS.with_borrow_mut(|ledger| ledger.iter_mut().for_each(|ledger| ledger.push(note)));
}

/// One use of a PD.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Use(pub(super) usize);

impl Clone for Use {
    fn clone(&self) -> Self {
        note(Note::Shared(self.0));
        Use(self.0)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        note(Note::Released(self.0));
    }
}

impl Pd for Use {
    fn same_device(&self, _: &Self) -> bool {
        true
    }

    fn copies_late(&self) -> bool {
        false
    }
}

/// A buffer.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Memory(pub(super) usize);

impl Clone for Memory {
    fn clone(&self) -> Self {
        note(Note::Lost);
        Memory(self.0)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        note(Note::Lost);
    }
}

impl Buffer for Memory {
    fn len(&self) -> usize {
        1
    }
}
