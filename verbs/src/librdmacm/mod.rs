//! Connection management through librdmacm.

mod acm;
mod calls;
mod channel;
mod data_path;
mod device;
mod event;
mod fetch;
mod group;
mod id;

pub(crate) use channel::{Channel, set_nonblocking};
pub(crate) use device::{Handle, Rdmacm};
pub(crate) use id::Id;
