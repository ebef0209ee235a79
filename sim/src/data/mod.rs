//! The data path: protection domains, memory regions, completion queues, queue pairs. Safe throughout: memory is lent
//! to the fabric by value, and read and written by copies.

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod datagram;
mod device;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod queues;
pub(crate) mod transfer;
