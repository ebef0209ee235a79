//! The data path: protection domains, memory, completion queues, queue pairs and address handles.
//!
//! Each handle holds the objects that it depends on by `Arc`. So objects are destroyed in the right order, whatever the
//! order of drops: a [`Qp`] before its [`Cq`]s and its [`Pd`], an [`Mr`] or an [`Ah`] before its [`Pd`], and all of
//! them before the device's context. The PD keeps an [`Mr`] that is dropped while work in flight names it (parked.rs).
//! If the kernel refuses to destroy an object, which it should not in this order, the library's object is leaked and
//! not used again.

mod ah;
mod anchor;
mod async_events;
mod blocks;
mod buffer;
mod bytes;
mod comp_channel;
mod completion;
mod context;
mod cq;
mod create_qp;
mod create_reasons;
mod device_attrs;
mod devices;
mod late_writers;
mod mr;
mod mw;
mod nic;
mod notifications;
mod parked;
mod pd;
mod piece;
mod port;
mod post;
mod post_checks;
mod post_list;
mod poster;
mod qp;
mod qp_attrs;
mod qp_ranges;
mod queue_pair;
mod ranges;
mod registration;
mod request;
mod resize;
mod srq;
mod staging;
mod vendor;
mod window_qps;
mod words;
mod wr_api;

use cmid_proto::memory::Access;

pub use ah::Ah;
pub(crate) use ah::path_from_c;
pub use async_events::AsyncEvents;
pub use buffer::{Buffer, SharedBuffer};
pub use comp_channel::CompChannel;
pub(crate) use context::{Context, Contexts};
pub use cq::Cq;
pub(crate) use create_qp::{QpInit, QpPlace};
pub(crate) use create_reasons::{QpDevice, cq_error, name_of, other_device, qp_error};
pub(crate) use devices::Devices;
pub use mr::Mr;
pub use mw::Mw;
pub use nic::Nic;
pub use pd::Pd;
pub use piece::Piece;
pub use qp::Qp;
pub(crate) use qp::QpInner;
pub(crate) use queue_pair::ibv_qp_attr_of;
pub use registration::{Change, Reregistered};
pub use srq::Srq;
pub use wr_api::PostCalls;
