//! The re-registrations that the devices of a test support.

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
