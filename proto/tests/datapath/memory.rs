//! Memory of the device that records its calls.

use cmid_proto::datapath::{Access, Flag, Part, Reregistered, prelude::*};
use cmid_proto::memory::{self, Change, MrState, Policy, Returned, Way};
use cmid_proto::{Errno, ErrorWith};

use crate::device::{Bytes, Mw, Pd, Piece, Plain};

impl MemoryRegion for Bytes {
    type Pd = Pd;
    type Buffer = Plain;
    type Slice<'a> = &'a [u8];
    type SliceMut<'a> = &'a mut [u8];

    fn addr(&self) -> u64 {
        4096
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn lkey(&self) -> u32 {
        5
    }

    fn rkey(&self) -> u32 {
        6
    }

    fn state(&self) -> MrState {
        MrState::Registered
    }

    fn access(&self) -> Option<Access> {
        None
    }

    fn way(&self) -> Way {
        Way::Anew
    }

    fn pd(&self) -> Option<Pd> {
        Some(Pd)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(self.0.get(offset..offset + into.len()).ok_or(Errno::EINVAL)?);
        Ok(())
    }

    fn write(&mut self, _: usize, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }

    fn load_relaxed<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.0.get(offset..offset + F::LEN).and_then(F::from_slice).ok_or(Errno::EINVAL)
    }

    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_relaxed(offset)
    }

    fn store_release<F: Flag>(&mut self, _: usize, _: F) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }

    fn slice(&mut self) -> Result<&[u8], Errno> {
        Ok(&self.0)
    }

    fn slice_mut(&mut self) -> Result<&mut [u8], Errno> {
        Ok(&mut self.0)
    }

    fn reregister(&mut self, change: Change<Pd, Plain>, _: Policy) -> Reregistered<Plain> {
        Reregistered { result: Ok(Way::Anew), buffer: change.buffer }
    }

    fn deregister(self) -> Result<Returned<Plain>, ErrorWith<Self, memory::MemoryError>> {
        Ok(Returned { buffer: Plain(self.0.to_vec()), other: None })
    }
}

impl MemoryWindow for Mw {
    type Piece = Piece;

    fn reclaim(&mut self) -> Option<Part<Piece>> {
        None
    }

    fn rkey(&self) -> u32 {
        8
    }

    fn dealloc(self) -> Result<Vec<Part<Piece>>, ErrorWith<Self, Errno>> {
        Ok(Vec::new())
    }
}

/// The length of memory that an MR returns; `None` if it returns none.
fn returned<M: MemoryRegion>(mr: M) -> Option<usize> {
    mr.deregister().ok().map(|returned| returned.buffer.len())
}

#[test]
fn generic_code_knows_the_length_of_memory_that_it_gets_back() {
    assert_eq!(returned(Bytes([0; 9])), Some(9));
}
