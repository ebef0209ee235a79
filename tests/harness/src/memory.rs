//! The re-registrations that the devices of a test support, and faults of memory calls.

use cmid_proto::Errno;

/// The re-registrations that a device supports: the provider and the kernel's driver together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rereg {
    /// None: rxe through rdma-core, and most others. `ibv_rereg_mr` returns ERR_CMD and EOPNOTSUPP.
    No,
    /// Changes of the PD and the access rights: the kernel's rxe (Linux 6.12), with a provider that forwards the call.
    PdAccess,
    /// All changes, with the same keys: mlx5 where it changes the registration in place.
    All,
    /// All changes, by a new registration with new keys: mlx5 where it cannot change the registration in place.
    NewKeys,
}

/// A fault of the next memory call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFault {
    /// `ibv_reg_mr` fails with this errno.
    Register(Errno),
    /// `ibv_dereg_mr` fails with this errno.
    Deregister(Errno),
    /// `madvise(MADV_DONTFORK)` of the new memory fails in `ibv_rereg_mr`.
    DontForkNew,
    /// `ibv_rereg_mr` makes the change, and its `madvise(MADV_DOFORK)` of the old memory fails.
    DoForkOld,
    /// The driver refuses with this errno before any change.
    Untouched(Errno),
    /// The driver fails with this errno after the hardware has dropped the old registration.
    Lost(Errno),
    /// As [`MemoryFault::Lost`], and the kernel records the new PD for the registration without counting it.
    LostAndPdSwitched(Errno),
    /// As [`MemoryFault::Lost`], and `madvise(MADV_DOFORK)` of the new memory fails.
    LostAndDoForkNew(Errno),
    /// `ibv_rereg_mr` returns an undocumented value.
    Undocumented,
}
