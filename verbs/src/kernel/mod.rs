//! Connection management on `/dev/infiniband/rdma_cm`, without librdmacm.

pub(crate) mod abi;
#[cfg(all(test, feature = "scripted-kernel"))]
mod adopted_tests;
pub(crate) mod answer;
mod calls;
mod channel;
#[cfg(feature = "rdma-core")]
mod data_path;
#[cfg(all(test, feature = "scripted-kernel"))]
mod descriptor_tests;
mod device;
mod events;
#[cfg(all(test, feature = "scripted-kernel"))]
mod failing_tests;
#[cfg(all(test, feature = "scripted-kernel"))]
mod for_tests;
mod group;
#[cfg(all(test, feature = "scripted-kernel"))]
mod group_tests;
mod location;
mod node;
mod qp;
#[cfg(all(test, feature = "scripted-kernel"))]
mod removed_tests;
#[cfg(feature = "scripted-kernel")]
mod script;
#[cfg(all(test, feature = "scripted-kernel"))]
mod stray_tests;
mod transport;

pub(crate) use abi::{AhAttr as KernelAhAttr, QpAttr};
pub use device::{KernelCm, KernelHandle};
pub(crate) use location::{Depths, Location, NO_INDEX};
pub(crate) use node::Node;
pub use node::OpenError;
pub(crate) use qp::{Group, QueuePair};
#[cfg(feature = "scripted-kernel")]
pub use script::with_kernel;
