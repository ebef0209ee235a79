//! Connection management on `/dev/infiniband/rdma_cm`, without librdmacm.

mod abi;
mod answer;
mod calls;
mod channel;
mod device;
mod node;

pub use device::{KernelCm, KernelHandle};
pub use node::OpenError;
