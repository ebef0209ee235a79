//! Raw pointers to the objects of libibverbs and librdmacm, for applications with a data path of their own.
//!
//! The types are opaque: cast a pointer to the type of any bindings to the same libraries. The application must follow
//! these rules:
//!
//! - It destroys no object of this crate, and keeps a pointer only as long as the object lives.
//! - The application keeps the [`Pd`](crate::Pd) and the [`Cq`](crate::Cq)s that its own QP uses, and destroys the QP
//!   before them. The work in flight of that QP does not pin an [`Mr`](crate::Mr): the application keeps the MR too, on
//!   soft-iWARP also one that the peer of that QP writes to, for which a deregistration does not wait (hazard P71).
//! - It polls and arms only its own CQs. If its own QP reports to a [`Cq`](crate::Cq), it posts only with a `wr_id` of
//!   at least 2^63. The poll of the `Cq` drops such completions; this crate's own numbers are smaller. While they keep coming it
//!   may return 0 before the queue is empty; what is left then has come after an arm of the `Cq` that precedes the call.
//! - It does not post to an [`Srq`](crate::Srq), and its own QPs use none: this crate would not get the completions.
//! - It posts to a [`Qp`](crate::Qp) of this crate only with a `wr_id` of at least 2^63, and does not rely on the
//!   completion. It does not move one to RESET: what is in its queues would then have no completion.
//!
//! To connect its own QP, the application moves the QP to INIT with [`Verbs::qp_attr`](crate::Verbs::qp_attr), connects
//! the id with [`ConnParam::qp_num`](cmid_proto::ConnParam::qp_num), moves the QP to RTR and RTS after
//! CONNECT_RESPONSE, and calls establish. On the passive side it moves the QP to RTR and RTS before the accept
//! (rdma_accept(3)).

use core::fmt;
use core::marker::{PhantomData, PhantomPinned};

use cmid_proto::datapath::QpState;

use crate::ffi::ibv_qp_attr;

macro_rules! opaque {
    ($($name:ident $c:literal),+ $(,)?) => {$(
        #[doc = concat!("`struct ", $c, "`.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            opaque: [u8; 0],
            /// Neither `Send`, `Sync` nor `Unpin`.
            marker: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )+};
}

opaque! {
    RdmaCmId "rdma_cm_id",
    IbvContext "ibv_context",
    IbvPd "ibv_pd",
    IbvCq "ibv_cq",
    IbvQp "ibv_qp",
    IbvMr "ibv_mr",
    IbvSrq "ibv_srq",
    IbvQpAttr "ibv_qp_attr",
}

/// The attributes that move a QP to the next state of its connection, for ibv_modify_qp(3).
pub struct QpAttr {
    attr: ibv_qp_attr,
    mask: i32,
}

impl QpAttr {
    pub(crate) const fn new(attr: ibv_qp_attr, mask: i32) -> Self {
        QpAttr { attr, mask }
    }

    /// Returns the attributes.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut IbvQpAttr {
        (&raw mut self.attr).cast()
    }

    /// Returns the mask of the attributes that are set (`enum ibv_qp_attr_mask`).
    #[must_use]
    pub const fn mask(&self) -> i32 {
        self.mask
    }

    /// Returns the state that they move the QP to.
    #[must_use]
    pub const fn state(&self) -> QpState {
        QpState(self.attr.qp_state)
    }
}

impl fmt::Debug for QpAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpAttr").field("state", &self.state()).field("mask", &self.mask).finish_non_exhaustive()
    }
}
