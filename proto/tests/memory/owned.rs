//! The objects that regions own: uses of PDs, and memory.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use cmid_proto::memory::{Buffer, Domain, Pd};

/// A PD and its number.
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) device: usize,
    pub(crate) domain: RefCell<Domain>,
}

/// One use of a PD, counted by the machine under test.
pub(crate) struct Use(pub(crate) Rc<Slot>);

impl Use {
    pub(crate) fn of(slot: &Rc<Slot>) -> Option<Self> {
        slot.domain.borrow_mut().acquire().ok()?;
        Some(Use(Rc::clone(slot)))
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.0.domain.borrow_mut().share();
        Use(Rc::clone(&self.0))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.domain.borrow_mut().release();
    }
}

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PD {}", self.0.number)
    }
}

impl Pd for Use {
    fn same_device(&self, other: &Self) -> bool {
        self.0.device == other.0.device
    }
}

/// Memory with a number. Its type prevents a second return; `freed` counts the drops.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) number: u32,
    pub(crate) freed: Rc<Cell<u32>>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.freed.set(self.freed.get() + 1);
    }
}

impl Buffer for Memory {
    fn len(&self) -> usize {
        1
    }
}
