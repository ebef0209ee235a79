//! Memory regions (MR) and protection domains (PD) as pure state machines.
//!
//! A [`Region`] is one MR: registered, re-registered (`ibv_rereg_mr`), deregistered. A [`Domain`] is one PD and
//! counts the objects that use it. Both are separate from the [`Core`](crate::Core) and from each other, because memory
//! belongs to no event loop: any thread may register memory and own the `Region`.
//!
//! The concepts are those of the core: a request, its [`MemoryCall`]s, their [`MemoryOutcome`]s. A region owns the objects that the
//! device may refer to: the buffer, and the use of a PD. After each outcome the region records which registration is
//! valid. It returns the buffers that the device no longer refers to, and keeps those that the device may refer to.
//!
//! | concept | here |
//! | --- | --- |
//! | request | [`Region::register`], [`Region::reregister`], [`Region::deregister`], [`Domain::dealloc`] |
//! | call | [`Region::call`], one at a time; [`Region::run`] makes them |
//! | outcome | [`Region::handle_outcome`], which returns the result of the request when it has ended |
//! | device removal | [`Region::handle_removal`], [`Domain::handle_removal`] |
//!
//! [`rules`] defines the effect of each input in each state. [`valid_after`] defines which registration is valid after
//! each return value and errno of `ibv_rereg_mr`.
//!
//! ```
//! use cmid_proto::memory::{Access, Change, Ended, Fallback, Keys, MemoryCall, MemoryOutcome, Pd, Policy, Region, Reply, Traffic};
//! # #[derive(Clone, Debug, PartialEq)]
//! # struct Use(u32);
//! # impl Pd for Use {
//! #     fn same_device(&self, _: &Self) -> bool { true }
//! #     fn copies_late(&self) -> bool { false }
//! # }
//! let buffer = vec![0; 4096];
//! let mut region: Region<Use, Vec<u8>, u32> = Region::register(Use(1), buffer, Access::LOCAL_WRITE)?;
//! assert!(matches!(region.call(), Some(MemoryCall::Register { .. })));
//! let keys = Keys { lkey: 7, rkey: 7 };
//! assert_eq!(region.handle_outcome(MemoryOutcome::Registered(Ok((42, keys))))?, Some(Ended::Registered(keys)));
//!
//! // Move it to another PD. This device does not support that: the old registration stays valid.
//! let change = Change::default().to_pd(Use(2));
//! region.reregister(change, Policy::default(), Traffic::Quiet)?;
//! assert!(matches!(region.call(), Some(MemoryCall::Reregister { .. })));
//! let reply = Reply { code: -4, errno: cmid_proto::Errno::EOPNOTSUPP, keys };
//! let Some(Ended::Reregistered(settled)) = region.handle_outcome(MemoryOutcome::Reregistered(reply))? else { unreachable!() };
//! assert_eq!(settled.result.unwrap_err().to_string(), "ibv_rereg_mr: ERR_CMD, EOPNOTSUPP; the old registration is valid");
//! assert_eq!(region.pd(), Some(&Use(1)));
//!
//! // The fallback makes a new registration, then deregisters the old one.
//! let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
//! region.reregister(Change::default().to_pd(Use(2)), policy, Traffic::Quiet)?;
//! region.handle_outcome(MemoryOutcome::Reregistered(reply))?;
//! assert!(matches!(region.call(), Some(MemoryCall::Register { pd: Use(2), .. })));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod access;
#[cfg(feature = "std")]
mod bindings;
mod change;
mod device;
mod domain;
mod ended;
mod error;
mod flag;
mod outcome;
mod owned;
mod policy;
mod reason;
mod region;
pub mod rules;

pub use access::Access;
#[cfg(feature = "std")]
pub use bindings::{Bind, Bindings};
pub use change::{Change, Changes};
pub use device::{Keys, MemoryCall};
pub use domain::Domain;
pub use ended::{Ended, Returned, Settled};
pub use error::{MemoryError, MemoryFailure, MemoryFault, MemoryRefused, MemoryStep, MemoryTarget, RegisterCause};
pub use flag::Flag;
pub use outcome::{Code, MemoryOutcome, Provider, Reply, Valid, valid_after};
pub use owned::{Buffer, Pd};
pub use policy::{Fallback, Policy, Traffic, Way};
pub use reason::MemoryReason;
pub use region::Region;
pub use rules::{MemoryRequest, MrState, PdState};
