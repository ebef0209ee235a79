//! PDs that count their uses, and memory that records when it is freed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use cmid_proto::memory::{Buffer, Pd};

/// A PD as the kernel has it: its device and its number of uses.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) name: &'static str,
    pub(crate) device: u8,
    uses: Cell<u32>,
}

impl Counted {
    pub(crate) fn new(name: &'static str, device: u8) -> Rc<Self> {
        Rc::new(Counted { name, device, uses: Cell::new(0) })
    }

    pub(crate) fn uses(&self) -> u32 {
        self.uses.get()
    }
}

/// One use of a PD.
pub(crate) struct Use(Rc<Counted>);

impl Use {
    pub(crate) fn of(pd: &Rc<Counted>) -> Self {
        pd.uses.set(pd.uses.get() + 1);
        Use(Rc::clone(pd))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.name
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        Use::of(&self.0)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.set(self.0.uses.get() - 1);
    }
}

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Pd for Use {
    fn same_device(&self, other: &Self) -> bool {
        self.0.device == other.0.device
    }

    fn copies_late(&self) -> bool {
        false
    }
}

/// Names of the memory that has been freed, in order.
pub(crate) type Freed = Rc<RefCell<Vec<&'static str>>>;

/// Memory that adds its name to `freed` when it is dropped.
pub(crate) struct Memory {
    pub(crate) name: &'static str,
    len: usize,
    freed: Freed,
}

impl Memory {
    pub(crate) fn new(name: &'static str, len: usize, freed: &Freed) -> Self {
        Memory { name, len, freed: Rc::clone(freed) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.freed.borrow_mut().push(self.name);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Buffer for Memory {
    fn len(&self) -> usize {
        self.len
    }
}
