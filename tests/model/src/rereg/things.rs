//! The contents of regions: uses of PDs, and memory; counted independently of the state machines.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use cmid_proto::memory::{Access, Buffer, Domain, Pd};

use crate::input::Input;

/// PDs, of which the last is of another device.
pub(super) const PDS: usize = 4;

/// A PD and its number.
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) domain: RefCell<Domain>,
    pub(super) copies_late: bool,
}

/// One use of a PD. The reference count counts uses independently of the state machine.
pub(super) struct Use(pub(super) Rc<Slot>);

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
        (self.0.number == PDS - 1) == (other.0.number == PDS - 1)
    }

    fn copies_late(&self) -> bool {
        self.0.copies_late
    }
}

/// A handle of memory, which several regions may share. It must not be dropped before it is returned.
#[derive(Debug)]
pub(super) struct Memory {
    /// The number of the handle.
    pub(super) number: u32,
    pub(super) len: usize,
    /// The memory: its handles count it.
    pub(super) whole: Rc<()>,
    pub(super) dropped: Rc<Cell<u32>>,
}

impl Memory {
    /// Whether no other handle has it.
    pub(super) fn is_alone(&self) -> bool {
        Rc::strong_count(&self.whole) == 1
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
    }
}

impl Buffer for Memory {
    fn len(&self) -> usize {
        self.len
    }
}

/// A posted work request that no polled completion has retired.
pub(super) struct Flight {
    /// The key that it names.
    pub(super) lkey: u32,
    pub(super) signaled: bool,
    pub(super) work: Work,
}

impl Flight {
    /// Whether the device may still execute it on this window.
    pub(super) fn names_window(&self, window: usize) -> bool {
        matches!(self.work, Work::Bind(of, _) | Work::Invalidate(of, _) if of == window)
    }
}

/// What a work request does.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The poll copies received data to this memory.
    Receive(u32),
    /// The device binds this window when it likes, at the latest before the poll; it then has this key.
    Bind(usize, u32),
    /// The device invalidates this window by this key before the poll.
    Invalidate(usize, u32),
    /// It is done.
    Nothing,
}

/// Rights, which may be illegal.
pub(super) fn access(input: &mut Input<'_>) -> Access {
    Access::from_bits_retain(input.below(16) as u32)
}

pub(super) fn is_legal(access: Access) -> bool {
    !access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) || access.contains(Access::LOCAL_WRITE)
}
