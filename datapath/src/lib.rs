//! The data path of both devices, for programs that are to run on either: [`cmid_sim::SimDevice`], and with the feature
//! `verbs` the real one.
//!
//! The two crates have the same types with the same methods, but not the same types. Here is a trait for each,
//! [`DataPath`] being the device's. A method has the name and the effect of the device's method; differences are
//! documented with it. There is no more here than the examples of this workspace need.
//!
//! ```
//! use cmid_datapath::{Access, DataPath, Mr as _, Pd as _};
//! use cmid_proto::{Errno, IdKey};
//!
//! /// Memory that holds a greeting, on whichever device.
//! fn greeting<D: DataPath>(device: &mut D, id: IdKey) -> Result<(D::Pd, D::Mr), Errno> {
//!     let pd = device.alloc_pd(id)?;
//!     let mut mr = pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
//!     mr.write(0, b"hello")?;
//!     Ok((pd, mr))
//! }
//! ```
#![forbid(unsafe_code)]

mod devices;
mod traced;
mod traits;
mod values;

pub use cmid_proto::memory::{Access, Flag};
pub use traits::{Completion, Cq, DataPath, Mr, Pd, Qp};
pub use values::{Caps, GRH_LEN, RECV, Remote, To, WcStatus};
