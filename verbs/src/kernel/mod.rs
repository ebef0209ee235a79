//! Connection management on `/dev/infiniband/rdma_cm`, without librdmacm.

mod abi;
mod answer;
mod calls;
mod channel;
mod device;
mod events;
mod node;
mod qp;
#[cfg(feature = "scripted-kernel")]
mod script;

pub(crate) use abi::{AhAttr as KernelAhAttr, QpAttr};
pub(crate) use calls::{Depths, Location, NO_INDEX};
pub use device::{KernelCm, KernelHandle};
pub use node::OpenError;
pub(crate) use qp::{Group, QueuePair};
#[cfg(feature = "scripted-kernel")]
pub use script::with_kernel;
