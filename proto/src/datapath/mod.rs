//! The data path: the types and traits of protection domains, memory regions, completion queues and queue pairs.
//!
//! The simulator, `cmid-verbs`, and every layer over them implement the traits. A program that is generic over
//! [`DataPath`] runs on each of them. The names are those of libibverbs; [`prelude`] has all traits. Without the feature
//! `std` the traits with file descriptors are missing.
//!
//! | trait | here | libibverbs |
//! | --- | --- | --- |
//! | data path of a device | [`DataPath`] | ibv_alloc_pd(3), ibv_create_cq(3), rdma_create_qp(3) |
//! | device | [`RdmaDevice`] | ibv_query_device(3), ibv_query_port(3), ibv_query_gid_table(3) |
//! | protection domain | [`ProtectionDomain`] | ibv_reg_mr(3), ibv_create_ah(3), ibv_alloc_mw(3) |
//! | memory region | [`MemoryRegion`] | ibv_rereg_mr(3), ibv_dereg_mr(3) |
//! | memory window | [`MemoryWindow`] | ibv_dealloc_mw(3) |
//! | asynchronous events | [`AsyncEventQueue`] | ibv_get_async_event(3) |
//! | completion channel of several CQs | [`CompletionChannel`] | ibv_create_comp_channel(3), ibv_get_cq_event(3) |
//! | completion queue | [`CompletionQueue`] | ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3) |
//! | queue pair | [`QueuePair`] | ibv_post_send(3), ibv_post_recv(3), ibv_modify_qp(3) |
//! | shared receive queue | [`SharedReceiveQueue`] | ibv_create_srq(3), ibv_modify_srq(3), ibv_post_srq_recv(3) |
//!
//! A work request names ranges of registered memory as [`Sge`]s. [`SendWr`] describes one request of a send queue.
//!
#![cfg_attr(feature = "std", doc = "```")]
#![cfg_attr(not(feature = "std"), doc = "```ignore")]
//! use cmid_proto::datapath::{Access, DataPath, PostError, QueuePair, Remote, SendWr, prelude::*};
//! use cmid_proto::{Errno, IdKey};
//!
//! /// Returns registered memory that contains a greeting.
//! fn greeting<D: DataPath>(device: &mut D, id: IdKey) -> Result<(D::Pd, D::Mr), Errno> {
//!     let pd = device.alloc_pd(id)?;
//!     let mut mr = pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
//!     mr.write(0, b"hello")?;
//!     Ok((pd, mr))
//! }
//!
//! /// Sends a message, and then writes the region to the memory of the peer. Only the write has a completion.
//! fn twice<Q: QueuePair>(qp: &mut Q, mr: &Q::Mr, remote: Remote) -> Result<(), PostError> {
//!     qp.post_send(SendWr::send(1, mr.sge(0..5)).unsignaled())?;
//!     qp.post_send(SendWr::write(2, mr.sge(0..64), remote))
//! }
//! ```

mod async_event;
mod completion;
#[cfg(feature = "std")]
mod completion_queue;
mod cq_room;
mod create_error;
#[cfg(feature = "std")]
mod device;
mod device_attrs;
#[cfg(feature = "std")]
mod drain;
#[cfg(feature = "std")]
mod layer;
#[cfg(feature = "std")]
mod lent;
mod maxima;
mod memory_region;
mod numbers;
#[cfg(feature = "std")]
mod parts;
#[cfg(feature = "std")]
mod pool;
mod post_error;
mod protection_domain;
mod qp_attrs;
#[cfg(feature = "std")]
mod qp_builder;
mod queue_pair;
mod shared_receive_queue;
#[cfg(feature = "std")]
mod signaled;
mod values;
mod work_request;

pub use crate::drive::Attaching;
pub use crate::event::{AhAttr, GlobalRoute};
pub use crate::memory::{Access, Flag};
pub use async_event::{AsyncEvent, AsyncEventKind, AsyncSource};
pub use completion::{Completion, WcFlags, WcOpcode, WcStatus};
#[cfg(feature = "std")]
pub use completion_queue::{AsyncEventQueue, CompletionChannel, CompletionQueue};
pub use cq_room::{CqRoom, Overrun};
pub use create_error::{Capacity, CreateCall, CreateError, CreateReason, DeviceName, OfDevice};
#[cfg(feature = "std")]
pub use device::{DataPath, RdmaDevice};
pub use device_attrs::{Atomics, DeviceAttrs, GidKind, LinkLayer, Odp, OdpOps, PortAttrs, PortGid, PortState};
#[cfg(feature = "std")]
pub use drain::{Drain, DrainError, Draining};
#[cfg(feature = "std")]
pub use lent::{Lent, Returns};
pub use maxima::Maxima;
pub use memory_region::{Memory, MemoryRegion, MemoryWindow, Reregistered, zeros};
#[cfg(feature = "std")]
pub use parts::{Part, Parts, Unposted, UnpostedBatch};
#[cfg(feature = "std")]
pub use pool::{Block, Piece, Pool};
pub use post_error::{BatchError, Length, OfPd, PostCall, PostError, PostReason};
pub use protection_domain::ProtectionDomain;
pub use qp_attrs::{AckTimeout, ModifyError, ModifyReason, QpAttr, QpAttrs, RnrTimer};
#[cfg(feature = "std")]
pub use qp_builder::{Cqs, Fitting, QpBuilder, QpParts};
pub use queue_pair::QueuePair;
pub use shared_receive_queue::{SharedReceiveQueue, SrqCaps};
#[cfg(feature = "std")]
pub use signaled::Signaled;
pub use values::{Caps, GRH_LEN, MESSAGE_MAX, QpState, Remote, To, Unpolled};
pub use work_request::{SendFlags, SendOp, SendWr, Sge};

/// The traits of the data path, to bring their methods into scope.
pub mod prelude {
    #[cfg(feature = "std")]
    pub use super::{AsyncEventQueue, CompletionChannel, CompletionQueue, DataPath, RdmaDevice};
    pub use super::{Memory as _, MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair, SharedReceiveQueue};
    #[cfg(feature = "std")]
    pub use crate::device::Pollable as _;
    pub use crate::memory::Buffer as _;
}
