//! Traits of protection domains and memory regions for scenarios.

use std::fmt::Debug;

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Change, Error, MrState, PdState, Policy, Returned, Way};

use crate::TestMw;

/// The re-registrations that a device supports: the provider and the kernel's driver together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rereg {
    /// None: rxe through rdma-core, and most others. `ibv_rereg_mr` returns ERR_CMD and EOPNOTSUPP.
    No,
    /// The PD and the access rights: the kernel's rxe, if the provider passes the call on (Linux 6.12).
    PdAccess,
    /// All changes, with the same keys: mlx5 if it need not create a new registration.
    All,
    /// All changes, by a new registration with new keys: mlx5 if it must.
    NewKeys,
}

/// A fault of the next memory call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFault {
    /// `ibv_reg_mr` fails with this errno.
    Register(Errno),
    /// `ibv_dereg_mr` fails with this errno.
    Deregister(Errno),
    /// `ibv_rereg_mr` cannot exclude the new memory from forked children.
    DontForkNew,
    /// `ibv_rereg_mr` succeeds, but cannot give the old memory back to forked children.
    DoForkOld,
    /// The driver refuses with this errno before any change.
    Untouched(Errno),
    /// The driver fails with this errno after the hardware has dropped the old registration.
    Lost(Errno),
    /// As [`MemoryFault::Lost`], and the kernel records the new PD for the registration without counting it.
    LostAndPdSwitched(Errno),
    /// As [`MemoryFault::Lost`], and the advice for the new memory cannot be undone.
    LostAndDoForkNew(Errno),
    /// `ibv_rereg_mr` returns an undocumented value.
    Undocumented,
}

/// The result of a re-registration, with the returned buffer.
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
    /// Returns the buffer with the error.
    fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, (Vec<u8>, Error)>;

    /// Allocates a memory window, not bound.
    ///
    /// # Errors
    /// The error of the device.
    fn alloc_mw(&self) -> Result<Self::Mw, Errno>;

    /// The number of its users.
    fn users(&self) -> u32;

    /// The number of users that the device counts; `None` if it cannot be queried.
    fn users_at_device(&self) -> Option<u32>;

    /// Its state.
    fn state(&self) -> PdState;

    /// Deallocates it.
    ///
    /// # Errors
    /// Refused while it has users.
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

    /// Its state.
    fn state(&self) -> MrState;

    /// Its access rights; `None` if it is not valid.
    fn access(&self) -> Option<Access>;

    /// How the current registration was made.
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
    /// Returns the region with the error, registered or not.
    fn deregister(self) -> Result<Returned<Vec<u8>>, (Self, Error)>;
}
