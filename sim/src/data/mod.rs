//! The data path: protection domains, memory regions and windows, completion queues, queue pairs. It has no unsafe
//! code: memory is moved to the fabric, and accessed by copies.

pub(crate) mod action;
pub(crate) mod ah;
pub(crate) mod async_events;
pub(crate) mod blocks;
pub(crate) mod buffer;
pub(crate) mod bytes;
pub(crate) mod comp_channel;
pub(crate) mod cq;
pub(crate) mod datagram;
pub(crate) mod device;
mod device_attrs;
pub(crate) mod fault;
mod late;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod packet;
pub(crate) mod pd;
pub(crate) mod pending;
mod post;
pub(crate) mod qp;
pub(crate) mod queues;
pub(crate) mod receive;
pub(crate) mod rereg;
mod responder;
mod retry;
pub(crate) mod siw;
mod space;
pub(crate) mod srq;
pub(crate) mod transfer;
pub(crate) mod window;
pub(crate) mod work;
