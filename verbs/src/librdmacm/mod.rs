//! Connection management through librdmacm.

mod acm;
mod aside;
mod bell;
mod calls;
mod channel;
mod data_path;
mod device;
mod event;
mod fetch;
mod group;
mod id;
mod membership;
mod raw_channel;

pub(crate) use channel::Channel;
pub(crate) use device::{Handle, Rdmacm};
pub(crate) use id::Id;
pub(crate) use raw_channel::set_nonblocking;
