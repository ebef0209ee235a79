//! Protection domains and memory regions, as far as scenarios use them.

use std::fmt::Debug;

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Change, Error, MrState, PdState, Policy, Returned, Way};

use crate::TestMw;

/// How a device re-registers memory: what the provider and the kernel's driver can do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rereg {
    /// Not at all: rxe through rdma-core, and most others. `ibv_rereg_mr` answers ERR_CMD and EOPNOTSUPP.
    No,
    /// Its PD and its rights: the kernel's rxe, where the provider lets one ask it (Linux 6.12).
    PdAccess,
    /// Everything, and the keys stay: mlx5 where it need not build a new registration.
    All,
    /// Everything, by a new registration with new keys: mlx5 where it must.
    NewKeys,
}

/// What is to go wrong with memory the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFault {
    /// `ibv_reg_mr` fails with this errno.
    Register(Errno),
    /// `ibv_dereg_mr` fails with this errno.
    Deregister(Errno),
    /// `ibv_rereg_mr` cannot keep the new memory from children of a fork.
    DontForkNew,
    /// `ibv_rereg_mr` succeeds, and cannot give the old memory back to children of a fork.
    DoForkOld,
    /// The driver refuses with this errno, before it has touched anything.
    Untouched(Errno),
    /// The driver fails with this errno when the hardware has let go of the old registration.
    Lost(Errno),
    /// As [`MemoryFault::Lost`], and the kernel takes the registration for one of the new PD, which it has not counted.
    LostAndPdSwitched(Errno),
    /// As [`MemoryFault::Lost`], and the advice for the new memory cannot be undone.
    LostAndDoForkNew(Errno),
    /// `ibv_rereg_mr` returns what nobody has documented.
    Undocumented,
}

/// What a re-registration came to, with the buffer that came back.
pub type Reregistered = (Result<Way, Error>, Option<Vec<u8>>);

/// A protection domain. A clone is another handle.
pub trait TestPd: Clone + Debug + Send + 'static {
    /// Memory that is registered in it.
    type Mr: TestMr<Pd = Self>;
    /// A memory window of it.
    type Mw: TestMw;

    /// Registers memory.
    ///
    /// # Errors
    /// The buffer comes back.
    fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, (Vec<u8>, Error)>;

    /// A memory window, not bound.
    ///
    /// # Errors
    /// What the device says.
    fn alloc_mw(&self) -> Result<Self::Mw, Errno>;

    /// How many things belong to it.
    fn users(&self) -> u32;

    /// How many things the device counts for it; `None` if that cannot be asked.
    fn users_at_device(&self) -> Option<u32>;

    /// Where it is in its life.
    fn state(&self) -> PdState;

    /// Deallocates it.
    ///
    /// # Errors
    /// Refused while something belongs to it.
    fn dealloc(&self) -> Result<(), Error>;
}

/// Registered memory.
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait TestMr: Debug + Send + Sized + 'static {
    /// The PDs that it can belong to.
    type Pd;

    /// Its address.
    fn addr(&self) -> u64;

    /// Its length.
    fn len(&self) -> usize;

    /// The key for this side.
    fn lkey(&self) -> u32;

    /// The key for the peer.
    fn rkey(&self) -> u32;

    /// Where it is in its life.
    fn state(&self) -> MrState;

    /// What may be done with it; `None` if it is not valid.
    fn access(&self) -> Option<Access>;

    /// How the present registration came to be.
    fn way(&self) -> Way;

    /// Its PD; `None` if it is not valid.
    fn pd(&self) -> Option<Self::Pd>;

    /// Copies bytes out.
    ///
    /// # Errors
    /// `EINVAL` if they are not all inside.
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes in.
    ///
    /// # Errors
    /// `EINVAL` if they are not all inside.
    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno>;

    /// Re-registers it.
    fn reregister(&mut self, change: Change<Self::Pd, Vec<u8>>, policy: Policy) -> Reregistered;

    /// Deregisters it.
    ///
    /// # Errors
    /// It comes back, registered or not.
    fn deregister(self) -> Result<Returned<Vec<u8>>, (Self, Error)>;
}
