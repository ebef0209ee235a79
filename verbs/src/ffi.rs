//! The bindings to librdmacm and libibverbs: those of this crate (`bindings`), or with the feature `rdma-sys` those of that
//! crate (`linked`). Only this file names them. A name that is imported here is in both.
//!
//! Three rules avoid the traps of the bindings. First: no value of type `ibv_event_type` is read, because it is a Rust
//! enum without the codes of newer libraries. One constant of it is passed. Second: the inline functions that the
//! bindings define by hand are not used. They return `Option<*mut T>` with null inside, and unwrap on the data path. As
//! the inline functions of C, this crate uses the operation table of the context. Third: memory is registered by
//! `ibv_reg_mr_iova2`. C's macro `ibv_reg_mr` uses it too for optional access rights; the symbol `ibv_reg_mr` does not
//! mask those rights on kernels that refuse them.

use core::mem::offset_of;
use core::ptr::NonNull;

use crate::descriptors;
use crate::errno;
use crate::kernel::OpenError;
use crate::macros;

pub(crate) use libc::{EAGAIN, EINTR, F_GETFL, F_SETFL, O_NONBLOCK, c_int, c_void, fcntl, free, malloc};
pub(crate) use libc::{sockaddr, sockaddr_storage};

use crate::bindings;
pub(crate) use crate::bindings::{
    atomic_t, bind_mw_t, bind_mw_tso_union_t, ibv_ack_async_event, ibv_ack_cq_events, ibv_ah, ibv_ah_attr,
    ibv_alloc_pd, ibv_async_event, ibv_attach_mcast, ibv_close_device, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_create_ah, ibv_create_ah_from_wc, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp,
    ibv_destroy_srq, ibv_detach_mcast, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_ece, ibv_event_type,
    ibv_free_device_list, ibv_get_async_event, ibv_get_cq_event, ibv_get_device_guid, ibv_get_device_index,
    ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_gid_entry, ibv_global_route, ibv_grh, ibv_moderate_cq,
    ibv_modify_cq_attr, ibv_modify_qp, ibv_modify_srq, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_mw_type, ibv_open_device,
    ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_create_send_ops_flags, ibv_qp_ex,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_state, ibv_qp_to_qp_ex, ibv_qp_type,
    ibv_query_device, ibv_query_ece, ibv_query_gid, ibv_query_qp, ibv_query_srq, ibv_recv_wr, ibv_reg_mr_iova2,
    ibv_rereg_mr, ibv_resize_cq, ibv_send_flags, ibv_send_wr, ibv_set_ece, ibv_sge, ibv_srq, ibv_srq_attr,
    ibv_srq_attr_mask, ibv_srq_init_attr, ibv_transport_type, ibv_wc, ibv_wr_opcode, imm_data_invalidated_rkey_union_t,
    rdma_t, ud_t, wr_t,
};
pub(crate) use crate::bindings::{
    rdma_accept, rdma_ack_cm_event, rdma_addrinfo, rdma_bind_addr, rdma_cm_event, rdma_cm_id, rdma_cm_join_mc_attr_ex,
    rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags, rdma_conn_param, rdma_connect, rdma_create_event_channel,
    rdma_create_id, rdma_create_qp, rdma_create_qp_ex, rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect,
    rdma_establish, rdma_event_channel, rdma_free_devices, rdma_freeaddrinfo, rdma_get_cm_event, rdma_get_devices,
    rdma_get_remote_ece, rdma_getaddrinfo, rdma_init_qp_attr, rdma_join_multicast_ex, rdma_leave_multicast,
    rdma_listen, rdma_migrate_id, rdma_notify, rdma_port_space, rdma_reject, rdma_reject_ece, rdma_resolve_addr,
    rdma_resolve_route, rdma_set_local_ece, rdma_set_option, rdma_ud_param, verbs_context,
};

/// Loads libibverbs, before the first call of it.
///
/// # Errors
/// [`OpenError::NoLibrary`]; [`OpenError::Failed`] without the descriptors for it.
pub(crate) fn load_ibverbs() -> Result<(), OpenError> {
    bindings::load_ibverbs().map_err(not_loaded)
}

/// Loads librdmacm, before the first call of it. It loads libibverbs, but not the functions of this crate's bindings to that.
///
/// # Errors
/// As [`load_ibverbs`].
pub(crate) fn load_rdmacm() -> Result<(), OpenError> {
    bindings::load_rdmacm().map_err(not_loaded)
}

/// The dynamic linker tells the reason as a text only.
#[cold]
fn not_loaded(reason: String) -> OpenError {
    descriptors::available(descriptors::LIST).map_or_else(OpenError::Failed, |()| OpenError::NoLibrary(reason))
}

/// Room for a result whose structure grows at its end. A library may fill all fields that it knows, more than the
/// bindings have: so does the function `ibv_query_port`, and so do libmlx5 and libmlx4 before rdma-core 33, whatever
/// size `ibv_query_device_ex` is given (`mlx5_query_device_ex`).
#[repr(C)]
struct Room<T> {
    value: T,
    _more: [u8; macros::RESULT_ROOM],
}

impl<T> Room<T> {
    /// Returns what a call has filled.
    ///
    /// # Safety
    /// Zeros are a value of the type, and so is what the call leaves.
    unsafe fn filled(call: impl FnOnce(*mut T) -> c_int) -> Result<T, cmid_proto::Errno> {
        let mut room = core::mem::MaybeUninit::<Self>::zeroed();
        errno::of_call(|| call(room.as_mut_ptr().cast()))?;
        // SAFETY: as the caller promises; the rest is integers.
        Ok(unsafe { room.assume_init() }.value)
    }
}

/// The function `ibv_query_port` of the library, and not the macro of verbs.h, which would call the provider itself.
///
/// # Errors
/// The errno of the provider.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr, cmid_proto::Errno> {
    // SAFETY: the context is open, and the result has room. It consists of integers.
    unsafe { Room::filled(|attr: *mut ibv_port_attr| bindings::ibv_query_port(context, port, attr.cast())) }
}

/// The inline function `ibv_query_gid_table` of verbs.h. Returns the number of entries that it has filled.
///
/// # Errors
/// `EOPNOTSUPP` if the library does not have it; the errno of the kernel.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_gid_table(
    context: *mut ibv_context,
    entries: &mut [ibv_gid_entry],
) -> Result<usize, cmid_proto::Errno> {
    // SAFETY: the context is open, and the entries have places.
    let filled = unsafe {
        bindings::_ibv_query_gid_table(context, entries.as_mut_ptr(), entries.len(), 0, size_of::<ibv_gid_entry>())
    };
    usize::try_from(filled)
        .map_err(|_| cmid_proto::Errno(c_int::try_from(filled.saturating_neg()).unwrap_or(libc::EIO)))
}

/// The inline function `ibv_create_qp_ex` of verbs.h.
///
/// # Errors
/// `EOPNOTSUPP` if the provider does not have it.
///
/// # Safety
/// The context is open. The rules of the C function apply.
pub(crate) unsafe fn ibv_create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, cmid_proto::Errno> {
    // SAFETY: the context is open, and has the field.
    let create = unsafe {
        let extended = extended(context, offset_of!(verbs_context, create_qp_ex))?;
        (*extended.as_ptr()).create_qp_ex.ok_or(UNSUPPORTED)?
    };
    // SAFETY: as the caller promises.
    Ok(unsafe { create(context, attr) })
}

/// The inline function `ibv_query_device_ex` of verbs.h.
///
/// # Errors
/// `EOPNOTSUPP` if the provider does not have it; the errno of the provider.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn query_device_ex(context: *mut ibv_context) -> Result<ibv_device_attr_ex, cmid_proto::Errno> {
    // SAFETY: the context is open, and has the field.
    let query = unsafe {
        let extended = extended(context, offset_of!(verbs_context, query_device_ex))?;
        (*extended.as_ptr()).query_device_ex.ok_or(UNSUPPORTED)?
    };
    // SAFETY: the context is open, and the result has room. It consists of integers. There is no input.
    unsafe { Room::filled(|attr| query(context, core::ptr::null(), attr, size_of::<ibv_device_attr_ex>())) }
}

/// The inline function `ibv_modify_cq` of verbs.h.
///
/// # Errors
/// `EOPNOTSUPP` if the provider does not have it; the errno of the provider.
///
/// # Safety
/// The CQ is alive. The rules of the C function apply.
pub(crate) unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> Result<(), cmid_proto::Errno> {
    // SAFETY: the context of the CQ is open, and has the field.
    let modify = unsafe {
        let extended = extended((*cq).context, offset_of!(verbs_context, modify_cq))?;
        (*extended.as_ptr()).modify_cq.ok_or(UNSUPPORTED)?
    };
    // SAFETY: as the caller promises.
    errno::of_call(|| unsafe { modify(cq, attr) })
}

const UNSUPPORTED: cmid_proto::Errno = cmid_proto::Errno(libc::EOPNOTSUPP);

/// Returns the extended context, if it has the field at this offset (`verbs_get_ctx_op`). The function of the bindings
/// with this name compares with a wrong number, and never finds an extended context.
///
/// # Safety
/// The context is open.
unsafe fn extended(context: *mut ibv_context, field: usize) -> Result<NonNull<verbs_context>, cmid_proto::Errno> {
    // SAFETY: the context is open. `abi_compat` shows whether it is the end of a `verbs_context`. The field `sz` of
    // that is its size: only the last `sz` bytes of the structure exist.
    unsafe {
        if (*context).abi_compat.addr() != usize::MAX {
            return Err(UNSUPPORTED);
        }
        let extended = context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        if (*extended).sz < size_of::<verbs_context>() - field {
            return Err(UNSUPPORTED);
        }
        NonNull::new(extended).ok_or(UNSUPPORTED)
    }
}

/// `ibv_post_send` as the provider has it.
pub(crate) type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `ibv_post_recv` as the provider has it.
pub(crate) type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `ibv_post_srq_recv` as the provider has it.
pub(crate) type PostSrqRecv = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `ibv_poll_cq` as the provider has it.
pub(crate) type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
/// `ibv_req_notify_cq` as the provider has it.
pub(crate) type ReqNotifyCq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;

// `rdma_cm_id.context` holds a key.
// 64-bit targets only.
static_assertions::const_assert!(size_of::<*mut c_void>() == size_of::<u64>());
