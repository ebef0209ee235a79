//! Peers whose writes a deregistration does not wait for: those of soft-iWARP's QPs.
//!
//! siw checks the key of a segment and then copies it, under the lock of the QP's state (`siw_tcp_rx_data`,
//! `siw_rx_umem`). A deregistration takes the memory out of the table, and waits for no copy (`siw_dereg_mr`). A change of
//! the attributes of the QP waits: it takes that lock for writing (`siw_verbs_modify_qp`).

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use cmid_proto::Errno;
use parking_lot::Mutex;

use crate::data::Access;
use crate::errno;
use crate::ffi::{self, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as Mask};
use crate::sign::signed;

/// The QPs of a PD of soft-iWARP.
#[derive(Default)]
pub(super) struct LateWriters(Mutex<Vec<Writer>>);

/// A QP. It is destroyed under the lock.
#[derive(PartialEq)]
struct Writer(NonNull<ibv_qp>);

// SAFETY: libibverbs is thread-safe, and a QP is tied to no thread.
unsafe impl Send for Writer {}

impl LateWriters {
    /// Adds a QP that was just created.
    pub(super) fn add(&self, qp: NonNull<ibv_qp>) {
        self.0.lock().push(Writer(qp));
    }

    /// Removes a QP after `destroy`, which destroys it. It stays if that fails. Returns whether it is destroyed.
    pub(super) fn remove(&self, qp: NonNull<ibv_qp>, destroy: impl FnOnce() -> bool) -> bool {
        let mut qps = self.0.lock();
        let destroyed = destroy();
        if destroyed {
            qps.retain(|other| *other != Writer(qp));
        }
        destroyed
    }

    /// Waits until no write of a peer is copied to memory that was deregistered before the call: sets the rights of peers on
    /// each QP to those that the connection manager has set (`iwcm_init_qp_init_attr`).
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp`: a peer may still be writing.
    pub(super) fn end_writes(&self) -> Result<(), Errno> {
        let rights = (Access::REMOTE_WRITE | Access::REMOTE_READ).bits();
        self.0.lock().iter().try_for_each(|Writer(qp)| {
            // SAFETY: zeros are a value of it: integers, and a union of integers.
            let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
            attr.qp_access_flags = rights;
            // SAFETY: the QP is alive, because it is destroyed under the lock; the attribute is read during the call.
            errno::of_call(|| unsafe {
                ffi::ibv_modify_qp(qp.as_ptr(), &raw mut attr, signed(Mask::IBV_QP_ACCESS_FLAGS.0))
            })
        })
    }
}
