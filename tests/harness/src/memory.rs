//! What the devices of a test can do with memory, and the faults of memory calls.

use cmid_proto::Errno;

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
