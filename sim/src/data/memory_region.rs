//! The calls of a memory region.

use cmid_proto::Errno;
use cmid_proto::datapath::{Flag, MemoryRegion};
use cmid_proto::memory::{Access, MemoryError, MrState, Policy, Returned, Way};

use crate::data::buffer::Buffer;
use crate::data::bytes::{Slice, SliceMut};
use crate::data::mr::{Change, Mr, Reregistered};
use crate::data::pd::Pd;

impl MemoryRegion for Mr {
    type Pd = Pd;
    type Buffer = Buffer;
    type Slice<'a> = Slice<'a>;
    type SliceMut<'a> = SliceMut<'a>;

    fn addr(&self) -> u64 {
        self.stretch().addr
    }

    fn len(&self) -> usize {
        self.stretch().len
    }

    fn lkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.lkey)
    }

    fn rkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.rkey)
    }

    fn state(&self) -> MrState {
        self.machine().state()
    }

    fn access(&self) -> Option<Access> {
        self.machine().access()
    }

    fn way(&self) -> Way {
        self.machine().way()
    }

    fn pd(&self) -> Option<Pd> {
        let machine = self.machine();
        machine.pd().map(|pd| Pd::another(&self.fabric, pd.device, pd.no))
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        self.copy_out(offset, into)
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        self.copy_in(offset, from)
    }

    fn load_relaxed<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_number(offset)
    }

    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_number(offset)
    }

    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        self.store_number(offset, number)
    }

    /// In the simulator the slice is a copy.
    fn slice(&mut self) -> Result<Slice<'_>, Errno> {
        self.borrow_bytes()
    }

    /// In the simulator the bytes become visible to peers when the slice is dropped; those of a forgotten slice are
    /// lost.
    fn slice_mut(&mut self) -> Result<SliceMut<'_>, Errno> {
        self.borrow_bytes_mut()
    }

    fn reregister(&mut self, change: Change, policy: Policy) -> Reregistered {
        self.change(change, policy)
    }

    fn deregister(self) -> Result<Returned<Buffer>, (Mr, MemoryError)> {
        self.give_back()
    }
}
