//! The kernel's record of a memory window.

use cmid_proto::memory::Access;

use crate::data::space::Stretch;
use crate::index::{HostNo, MrHandle, PdNo, QpNo};

/// `struct ib_mw`, of type 2.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) host: HostNo,
    pub(super) pd: PdNo,
    pub(super) rkey: u32,
    pub(super) bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Debug)]
pub(super) struct Bound {
    /// The QP with the peer that may use the window.
    pub(super) qp: QpNo,
    pub(super) mr: MrHandle,
    /// The MR's key at the time of the bind. A new object under the same handle is another MR.
    pub(super) lkey: u32,
    pub(super) range: Stretch,
    pub(super) access: Access,
}

impl Window {
    pub(crate) fn is_bound_to(&self, mr: MrHandle, lkey: u32) -> bool {
        self.bound.as_ref().is_some_and(|bound| (bound.mr, bound.lkey) == (mr, lkey))
    }
}
