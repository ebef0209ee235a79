//! libibverbs' records of memory regions, and the arguments of a re-registration.

use std::collections::BTreeMap;

use cmid_proto::memory::{Access, Changes, Keys};

use crate::data::fork::ForkAdvice;
use crate::data::space::Stretch;
use crate::index::{MrHandle, PdNo};

/// The fields of `struct ibv_mr` that the library itself uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct IbvMr {
    pub(super) range: Stretch,
    pub(super) keys: Keys,
    /// Whether the first access rights include on-demand paging. Such memory is not excluded from forked children.
    pub(super) on_demand: bool,
}

/// The records of the library.
#[derive(Debug, Default)]
pub(crate) struct Library {
    pub(super) mrs: BTreeMap<MrHandle, IbvMr>,
    pub(crate) fork: ForkAdvice,
}

/// The arguments of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) flags: Changes,
    pub(crate) pd: Option<PdNo>,
    /// Address 0 is NULL.
    pub(crate) range: Stretch,
    pub(crate) access: Access,
}
