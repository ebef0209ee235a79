//! The pure core of cmid: RDMA connection management as state machines, without I/O.
//!
//! A [`Core`] holds the state of `rdma_cm_id`s and their event channels. It reads no clock, draws no random number and
//! touches no device: it is told what the application asks and what the device reports, and answers with the device
//! calls to make and the events to deliver. Six concepts are all there is:
//!
//! | concept | who makes it | what it is |
//! | --- | --- | --- |
//! | [`Request`] | application | something asked for on an id |
//! | [`Call`] | core | a device call to be made |
//! | [`Outcome`] | driver | what that call returned |
//! | [`RawEvent`] | driver | what an event channel said |
//! | [`Event`] | core | what the application sees |
//! | deadline ([`Time`]) | application | when a request is to end at the latest |
//!
//! What every request and event does in every state stands in two [tables](table).
//!
//! # The contract
//!
//! What a driver does, in a loop, for a [`Device`]:
//!
//! 1. **Tell the time.** Pass `now` wherever it is asked for; it never runs backwards.
//! 2. **Take requests** from the application: [`Core::open_channel`], [`Core::create_id`], [`Core::submit`],
//!    [`Core::ack`]. A refused one has changed nothing.
//! 3. **Make the calls.** Poll [`Core::poll_call`] until it is `None`; make each call, in that order, with the private
//!    data of [`Core::call_data`]; report what it returned to [`Core::handle_outcome`] before anything else.
//! 4. **Read the channels** that are readable, and those that [`Core::poll_readable`] names: after a migration the
//!    kernel does not wake the new channel. Before each read ask [`Core::wants_event`]; on `None` leave the event in the
//!    kernel and tell [`Core::wait_for_room`]. With an edge-triggered poller, which reports a channel once,
//!    read until the channel is empty.
//! 5. **Feed each event** to [`Core::handle_event`], acked to the device already, and go to step 3.
//! 6. **Deliver.** Poll [`Core::poll_event`] per channel. On a channel with explicit acks give each ack token back.
//! 7. **Let time pass.** When [`Core::poll_timeout`] is due, call [`Core::handle_timeout`]. Then wait for a channel, a
//!    request, or the next deadline, whichever is first.
//!
//! No step may be left half way: no `?` inside the loop. [`Drive`] is this loop, and what the drivers share.
//!
//! ```
//! use cmid_proto::{Acks, Call, ChannelKey, Core, Device, Errno, IdKey, Limits, Outcome, PortSpace, RawEvent, Request, Time};
//! # use std::net::SocketAddr;
//! # struct Yes;
//! # impl Device for Yes {
//! #     type Handle = ();
//! #     fn fetch(&mut self, _: ChannelKey, _: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> { Ok(None) }
//! #     fn call(&mut self, _: &Call, _: &[u8]) -> Outcome { Ok(()) }
//! #     fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> { Err(Errno::EADDRNOTAVAIL) }
//! #     fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> { Err(Errno::EADDRNOTAVAIL) }
//! #     fn remote_ece(&self, _: IdKey) -> Result<cmid_proto::Ece, Errno> { Err(Errno::EOPNOTSUPP) }
//! #     fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> { Ok(()) }
//! #     fn adopt(&mut self, _: IdKey, _: ChannelKey, _: ()) -> Outcome { Ok(()) }
//! # }
//!
//! /// One turn: steps 3 to 7 without the sync_state.
//! fn turn(core: &mut Core, device: &mut impl Device, readable: &[ChannelKey], now: Time) {
//!     core.handle_timeout(now);
//!     readable.iter().for_each(|&channel| core.handle_readable(channel));
//!     loop {
//!         while let Some((token, call)) = core.poll_call() {
//!             let outcome = device.call(&call, core.call_data(token));
//!             if let Err(fault) = core.handle_outcome(token, outcome) {
//!                 eprintln!("{fault}");
//!             }
//!         }
//!         let Some(channel) = core.poll_readable() else { break };
//!         let Some(child) = core.wants_event(channel) else {
//!             core.wait_for_room(channel); // it is named again when there is
//!             continue;
//!         };
//!         match device.fetch(channel, child) {
//!             Ok(Some(raw)) => {
//!                 if let Err(fault) = core.handle_event(channel, raw) {
//!                     eprintln!("{fault}");
//!                 }
//!                 core.handle_readable(channel); // until a read finds nothing
//!             }
//!             Ok(None) => {}
//!             Err(errno) => eprintln!("reading {channel}: {errno}"),
//!         }
//!     }
//! }
//!
//! let (mut core, mut device, now) = (Core::new(Limits::SINGLE), Yes, Time::ZERO);
//! let channel = core.open_channel(Acks::OnDelivery)?;
//! let id = core.create_id(Some(channel), PortSpace::Tcp)?;
//! turn(&mut core, &mut device, &[], now);
//! core.submit(now, id, Request::Bind { addr: "10.0.0.1:7471".parse()? }, Time::NEVER)?;
//! turn(&mut core, &mut device, &[], now);
//! assert_eq!(core.state(id), Some(cmid_proto::State::Bound));
//!
//! // A call in the wrong state is refused: it says which, and nothing has changed.
//! let refused = core.submit(now, id, Request::Establish, Time::NEVER).unwrap_err();
//! assert_eq!(refused.to_string(), "establish on id0 while bound: not in this state");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it never does
//!
//! It makes no call while the application owes an ack for what that call takes away: an id for a migration or a
//! destruction, a membership for a leave; [`Request::DestroyNow`] is the exception, for ack tokens that are lost. It never makes more than one call per id at a time. It drops no event for want
//! of room: at the limit it wants none. (What is undelivered of an id that is destroyed, or of a group that is left, goes
//! with it, as in the kernel.) It does not allocate once its tables have grown to what the program needs, but for
//! [`Core::release`]. It does not panic, whatever it is fed ([`Core::check`] does, for tests).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod arena;
mod call;
mod channel;
mod columns;
mod cq_room;
mod deadlines;
mod device;
mod device_layer;
mod drive;
mod errno;
mod error;
mod event;
mod guard;
mod id;
mod key;
mod key_table;
mod limits;
mod machine;
pub mod memory;
mod pending_events;
mod plain;
#[cfg(feature = "std")]
mod polled_device;
mod private_data;
mod request;
mod request_kind;
mod slab_index;
mod state;
mod stored;
pub mod table;
mod time;

pub use call::{Call, Outcome};
pub use channel::READ_FAILURES_MAX;
pub use cq_room::{CqRoom, Overrun};
pub use device::Device;
#[cfg(feature = "std")]
pub use device::Pollable;
pub use device_layer::DeviceLayer;
pub use drive::{AdoptError, Attaching, Drive, Next, Progress, ReleasedId, Step, StepRecord, Turn};
pub use errno::Errno;
pub use error::{AckError, Error, Failure, Fault, RefuseReason, Refused};
pub use event::{
    AckToken, AhAttr, CmEvent, ConnParam, Datagram, Ece, Event, EventKind, GlobalRoute, RawEvent, ReceivedParam,
};
pub use guard::private_data_max;
pub use key::{ChannelKey, GroupKey, IdKey, Target, Token};
pub use key_table::{KeyTable, TableKey};
pub use limits::{BACKLOG_MAX, Limits};
pub use machine::{Admission, Core, Counters, Ended, Released};
#[cfg(feature = "std")]
pub use polled_device::{PolledDevice, Poller};
pub use private_data::{PRIVATE_DATA_MAX, PrivateData};
pub use request::{Acks, CmOption, PortSpace, RejectReason, Request, Service};
pub use request_kind::RequestKind;
pub use state::State;
pub use time::Time;
