//! The environments: a simulated fabric in real time, and the RDMA devices of the project's VM.

#[cfg(feature = "verbs")]
mod backend;
#[cfg(feature = "verbs")]
mod guest;
mod network;
mod sim;
mod traced;
#[cfg(feature = "verbs")]
mod verbs;

#[cfg(feature = "verbs")]
pub use backend::{BACKEND, backend, open_verbs};
pub use sim::{SimEnv, sim_host};
pub use traced::{Devices, OnTraced, TracedEnv};
#[cfg(feature = "verbs")]
pub use verbs::VerbsEnv;
