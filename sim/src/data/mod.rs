//! The data path: protection domains, memory regions and windows, completion queues, queue pairs. All safe code:
//! memory is moved to the fabric, and accessed by copies.

pub(crate) mod ah;
pub(crate) mod async_events;
pub(crate) mod async_readers;
pub(crate) mod bytes;
pub(crate) mod comp_channel;
pub(crate) mod completion;
pub(crate) mod cq;
pub(crate) mod datagram;
pub(crate) mod device;
pub(crate) mod domains;
pub(crate) mod fault;
pub(crate) mod fork;
pub(crate) mod ib_mw;
mod inject;
pub(crate) mod library;
pub(crate) mod memory;
mod memory_region;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod packet;
pub(crate) mod pair_state;
pub(crate) mod parked;
pub(crate) mod pd;
mod post;
mod protection_domain;
pub(crate) mod qp;
pub(crate) mod queues;
pub(crate) mod rereg;
pub(crate) mod shared_receive_queue;
pub(crate) mod space;
pub(crate) mod srq;
pub(crate) mod transfer;
pub(crate) mod window;
pub(crate) mod work;
