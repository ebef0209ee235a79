//! One `rdma_cm_id`: its owner, its pointers, and its destruction.

use core::net::SocketAddr;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::{Errno, IdKey, Outcome, PortSpace};

use crate::data::QpInner;
use crate::errno;
use crate::ffi::{self, c_void, ibv_context, ibv_qp_type, rdma_cm_id};
use crate::kernel::QueuePair as _;
use crate::librdmacm::channel::Channel;
use crate::librdmacm::group::Membership;
use crate::process::Process;
use crate::sockaddr;
use crate::tables::Destroy;

/// An `rdma_cm_id` that this device owns; dropping it destroys it.
///
/// Its `context` field holds the core's key of it. Its `channel` field points at an open [`Channel`]: the one that it is on
/// in its [`Tables`](crate::tables::Tables), or that of its handle. One thread at a time uses it: all code that takes the
/// pointer takes the device by `&mut`, or reads fields that only such calls write.
pub(crate) struct Id {
    raw: NonNull<rdma_cm_id>,
    /// The process that made it.
    process: Process,
    /// Its QP. The id holds it because librdmacm follows `id->qp` when it reads an event of this id
    /// (rdma_get_cm_event).
    pub(crate) qp: Option<Arc<QpInner>>,
    /// The multicast groups that it is in (group.rs).
    pub(crate) groups: Vec<Membership>,
    /// Whether librdmacm has freed it.
    ended: bool,
}

// SAFETY: librdmacm ties an rdma_cm_id to no thread. It only requires that calls on one id do not run at the same
// time, and `Id` is not Sync. A QP may be used from any thread (`QpInner` is Send and Sync).
unsafe impl Send for Id {}

impl Id {
    /// `rdma_create_id` on a channel.
    pub(crate) fn create(key: IdKey, channel: &Channel, space: PortSpace) -> Result<Self, Errno> {
        let (mut raw, context) = (ptr::null_mut(), as_context(key.to_bits()));
        // SAFETY: the channel is open and `raw` is a place for the result. The context is only kept, never followed.
        errno::of_call(|| unsafe { ffi::rdma_create_id(channel.as_ptr(), &raw mut raw, context, space.code()) })?;
        Ok(Id {
            raw: NonNull::new(raw).ok_or(Errno::EIO)?,
            process: channel.process(),
            qp: None,
            groups: Vec::new(),
            ended: false,
        })
    }

    /// Wraps the new id of a CONNECT_REQUEST.
    ///
    /// # Safety
    /// `raw` is from a CONNECT_REQUEST and has no other owner. Its channel stays open until the id is dropped.
    pub(crate) unsafe fn child(raw: NonNull<rdma_cm_id>, process: Process) -> Self {
        Id { raw, process, qp: None, groups: Vec::new(), ended: false }
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Writes the core's key into the id. Until then a child has the key of its listener.
    pub(crate) fn set_key(&mut self, key: IdKey) {
        // SAFETY: the id is alive, and no other code uses it now. `context` is the application's field
        // (rdma_create_id(3)).
        unsafe { (*self.raw.as_ptr()).context = as_context(key.to_bits()) };
    }

    /// Returns the device of the id; `None` until a specific address was bound or ADDR_RESOLVED was read.
    pub(crate) fn verbs(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the id is alive; librdmacm writes the field only inside calls that take the device by `&mut`.
        NonNull::new(unsafe { (*self.raw.as_ptr()).verbs })
    }

    /// Returns the local address that librdmacm has stored.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the id is alive and librdmacm writes its addresses only inside calls that take the device by
        // `&mut`. The union is storage for any family, and all bit patterns are values of it.
        sockaddr::from_c(unsafe { &(*self.raw.as_ptr()).route.addr.src_addr_union.src_storage })
    }

    /// Returns the peer's address that librdmacm has stored.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as in `local_addr`.
        sockaddr::from_c(unsafe { &(*self.raw.as_ptr()).route.addr.dst_addr_union.dst_storage })
    }

    /// Returns the port of the id on its device; 0 without a device.
    pub(crate) fn port_num(&self) -> u8 {
        // SAFETY: as in `verbs`.
        unsafe { (*self.raw.as_ptr()).port_num }
    }

    /// Whether its QP is a datagram QP; librdmacm decides that by the port space (rdma_create_id(3)).
    pub(crate) fn is_datagram(&self) -> bool {
        // SAFETY: the id is alive, and the field does not change.
        unsafe { (*self.raw.as_ptr()).qp_type == ibv_qp_type::IBV_QPT_UD }
    }

    /// Checks that the id has a device, for calls in which librdmacm follows `verbs` or `cma_dev` unchecked.
    ///
    /// # Errors
    /// `EINVAL` on an id without a device, as the kernel would return.
    pub(crate) fn needs_device(&self) -> Result<(), Errno> {
        self.verbs().map(|_| ()).ok_or(Errno::EINVAL)
    }

    /// Refuses to end it in a forked child, with the errno that the kernel has for the child's commands
    /// (`ib_safe_file_access`).
    fn is_own(&self) -> Result<(), Errno> {
        if self.process.is_other() { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Detaches the QP from the id. The QP is destroyed if no handle of it is left. Otherwise it goes to the error
    /// state: posted work is flushed, and nothing is sent for a connection that is no longer managed.
    pub(crate) fn detach_qp(&mut self) -> Result<(), Errno> {
        self.is_own()?;
        // The kernel refuses to destroy a QP that is attached to a group.
        self.detach_groups();
        let qp = self.qp.take().ok_or(Errno::EINVAL)?;
        // SAFETY: the id is alive and no other code uses it now. rdma_destroy_qp does the same to the id. From here on
        // librdmacm cannot reach the QP, which may be freed at any time.
        unsafe { (*self.raw.as_ptr()).qp = ptr::null_mut() };
        // Only an owner (the handle, a memory window) can create another owner. So if this is the only one, it stays
        // the only one.
        if Arc::strong_count(&qp) > 1 {
            qp.stop();
        }
        Ok(())
    }

    /// Whether librdmacm has already destroyed the id, while the core still has it. The device was then removed while
    /// the id left a group (group.rs). Only [`Destroy::destroy`] may be called afterwards.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Destroy for Id {
    /// `rdma_destroy_id`. First leaves the groups and detaches the QP, as the man page requires. After a success the
    /// id can only be dropped.
    ///
    /// # Errors
    /// The id then stays; unless the kernel takes no command of this thread, without its QP and its groups.
    fn destroy(&mut self) -> Outcome {
        if self.ended {
            return Ok(());
        }
        self.is_own()?;
        self.leave_all()?;
        // Usually there is no QP.
        let _ = self.detach_qp();
        // SAFETY: the id is alive and its channel open. After a success no code uses it again: `ended` records that,
        // and its owner drops it. The call does not wait, because every event of the id was acked when it was read.
        errno::of_call(|| unsafe { ffi::rdma_destroy_id(self.raw.as_ptr()) })?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // If it fails (no known case), the memory is leaked: librdmacm and the kernel still refer to it.
        let _ = self.destroy();
    }
}

/// Converts a key to the pointer of the application, which librdmacm stores and never follows.
pub(crate) fn as_context(bits: u64) -> *mut c_void {
    // 64-bit targets only (ffi.rs).
    ptr::without_provenance_mut(bits as usize)
}

/// Returns the key in an id's `context`.
///
/// # Safety
/// `id` points at a living rdma_cm_id that no other thread writes to.
pub(crate) unsafe fn key_of(id: NonNull<rdma_cm_id>) -> Option<IdKey> {
    // SAFETY: as the caller promises.
    let context = unsafe { (*id.as_ptr()).context };
    IdKey::from_bits(context.addr() as u64)
}
