//! The pure core of cmid.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod columns;
mod device;
mod errno;
mod error;
mod event;
mod key;
mod limits;
mod request;
mod state;
mod time;

#[cfg(feature = "std")]
pub use device::Pollable;
pub use device::{Call, Device, Outcome};
pub use errno::Errno;
pub use error::{Error, Failure, Fault, Refused, Why};
pub use event::{
    CmEvent, ConnParam, Event, EventKind, PRIVATE_DATA_MAX, PrivateData, RawEvent, Receipt, ReceivedParam,
};
pub use key::{ChannelKey, IdKey, Token};
pub use limits::Limits;
pub use request::{Acks, PortSpace, Request, Verb};
pub use state::State;
pub use time::Time;
