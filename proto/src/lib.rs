//! The pure core of cmid: RDMA connection management as state machines, without I/O.
//!
//! A [`Core`] holds the state of `rdma_cm_id`s and their event channels. It reads no clock, draws no random number
//! and touches no device. Its inputs are the requests of the application and the reports of the device. Its outputs
//! are the device calls to make and the events to deliver. There are six concepts:
//!
//! | concept | from | what it is |
//! | --- | --- | --- |
//! | [`Request`] | application | an operation on an id |
//! | [`Call`] | core | a device call to make |
//! | [`Outcome`] | driver | the result of that call |
//! | [`RawEvent`] | driver | an event read from an event channel |
//! | [`Event`] | core | an event for the application |
//! | deadline ([`Time`]) | application | the latest time at which a request ends |
//!
//! Two [tables](table) contain the effect of every request and event in every state.
//!
//! ```text
//!  application       request, ack                                  event
//!      |                  |                                           ^
//!      v                  v                                           |
//!  a driver:       +----------------------- Drive ------------------------+
//!  mio, epoll,     |                +----------------+                    |
//!  tokio, ...      |  <---- Call -- |      Core      | <-- RawEvent ---   |
//!  (it waits)      |   |  Outcome-> | no I/O, clock  |               |    |
//!                  +---v------------+----------------+---------------|----+
//!                      |                                             |
//!                 Device: the kernel, librdmacm, or a simulated fabric
//! ```
//!
//! # The contract
//!
//! The loop of a driver, for a [`Device`]:
//!
//! 1. **Set the time.** Pass `now` to the functions that take it. `now` never decreases.
//! 2. **Make requests** of the application: [`Core::open_channel`], [`Core::create_id`], [`Core::begin`]. Each returns a
//!    value that borrows the core: nothing can come between the decision and the outcome. Make its [`Begun::call`], and
//!    report the outcome to [`Begun::end`], which returns the next call of the request, or its result. Some requests make
//!    no call: report `Ok(())`. A refused request has changed nothing.
//! 3. **Make the calls that follow.** After each step make the calls of [`Core::next`] until it is `None`, in the same way.
//!    Those of [`Core::next_child`], for the undelivered requests of a destroyed listener, may be spread over turns.
//! 4. **Read the channels** that are readable, and those that [`Core::poll_readable`] returns: after a migration the
//!    kernel does not wake the new channel. Call [`Core::wants_event`] before each read. On `None` leave the event in
//!    the kernel and call [`Core::wait_for_room`]. With an edge-triggered poller, which reports a channel once, read
//!    until the channel is empty.
//! 5. **Feed each event** to [`Core::handle_event`]. The device has acked it already. Go to step 3.
//! 6. **Deliver.** Poll [`Core::poll_event`] per channel. On a channel with explicit acks, pass each ack token to
//!    [`Core::ack`]. [`Core::take_event`] is steps 5 and 6 in one, for an event that nothing precedes on its channel.
//! 7. **Let time pass.** When [`Core::poll_timeout`] is due, call [`Core::handle_timeout`]. Then wait for a channel, a
//!    request, or the next deadline, whichever is first.
//!
//! Complete each step: a `?` inside the loop would skip the rest of a step. [`Drive`] is this loop; all drivers share
//! it.
//!
//! ```
//! use cmid_proto::{Acks, Begun, Call, ChannelKey, Core, Device, Errno, Error, Flow, IdKey, Limits, Outcome};
//! use cmid_proto::{PortSpace, Progress, RawEvent, Request, Time};
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
//! /// Steps 2 and 3: makes the calls of a request.
//! fn make(device: &mut impl Device, mut begun: Begun<'_, '_>) -> Result<Progress, Error> {
//!     loop {
//!         let outcome = begun.call().map_or(Ok(()), |call| device.call(&call, begun.private_data()));
//!         match begun.end(outcome) {
//!             Flow::Next(next) => begun = next,
//!             Flow::Done(result) => return result,
//!         }
//!     }
//! }
//!
//! /// One turn: steps 3 to 7 without the waiting.
//! fn turn(core: &mut Core, device: &mut impl Device, readable: &[ChannelKey], now: Time) {
//!     core.handle_timeout(now);
//!     readable.iter().for_each(|&channel| core.handle_readable(channel));
//!     loop {
//!         while let Some(begun) = core.next() {
//!             if let Err(fault) = make(device, begun) {
//!                 eprintln!("{fault}");
//!             }
//!         }
//!         while let Some(begun) = core.next_child() {
//!             if let Err(fault) = make(device, begun) {
//!                 eprintln!("{fault}");
//!             }
//!         }
//!         let Some(channel) = core.poll_readable() else { break };
//!         let Some(child) = core.wants_event(channel) else {
//!             core.wait_for_room(channel); // poll_readable returns it again when there is room
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
//! let (channel, begun) = core.open_channel(Acks::OnDelivery)?;
//! make(&mut device, begun)?;
//! let (id, begun) = core.create_id(Some(channel), PortSpace::Tcp)?;
//! make(&mut device, begun)?;
//! let bind = Request::Bind { addr: "10.0.0.1:7471".parse()? };
//! make(&mut device, core.begin(now, id, &bind, Time::NEVER)?)?;
//! turn(&mut core, &mut device, &[], now);
//! assert_eq!(core.state(id), Some(cmid_proto::State::Bound));
//!
//! // A request in the wrong state is refused. The error names the state, and nothing has changed.
//! let refused = core.begin(now, id, &Request::Establish, Time::NEVER).unwrap_err();
//! assert_eq!(refused.to_string(), "establish on id0 while bound: not in this state");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - It makes no call that would invalidate an owed ack: no migration or destruction of an id while an ack of the id is
//!   owed, no leave while an ack of the membership is owed. The exception is [`Request::DestroyNow`], for ack tokens
//!   that are lost.
//! - A call is made between a decision and its effect: no event, deadline or other request comes between.
//! - It drops no event at a limit: it leaves the event in the kernel. Undelivered events of an id that is destroyed, or
//!   of a group that is left, are discarded, as the kernel does.
//! - It does not allocate once its tables have grown to the program's needs, except in [`Core::release`] and when an id
//!   with undelivered events is migrated to the channel that it is on.
//! - It does not panic on any input. (Only [`Core::check`] panics, for tests.)
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod arena;
mod call;
mod cells;
mod channel;
mod cm_event;
mod columns;
pub mod datapath;
mod deadlines;
mod device;
mod device_layer;
pub mod drive;
mod errno;
mod error;
mod error_with;
mod event;
mod event_result;
mod group;
mod guard;
pub mod handshake;
mod id;
#[cfg(feature = "std")]
mod into_io;
mod key;
pub mod key_table;
mod limits;
mod machine;
pub mod memory;
pub mod messages;
mod private_data;
pub mod redial;
mod refuse_reason;
mod reject_code;
mod request;
mod request_kind;
mod state;
mod stored;
pub mod table;
mod text;
mod time;
mod transport;
mod words;

pub use call::{Call, Outcome};
pub use cm_event::CmEvent;
pub use device::Device;
#[cfg(feature = "std")]
pub use device::Pollable;
pub use device_layer::DeviceLayer;
pub use drive::{Drive, Next, Observer, Poller, Step};
pub use errno::Errno;
pub use error::{AckError, Error, Failure, FailureCause, Fault, Refused};
pub use error_with::ErrorWith;
pub use event::{AckToken, ConnParam, Datagram, Ece, Event, EventKind, RawEvent, ReceivedParam};
pub use event_result::{EventError, Status};
pub use key::{ChannelKey, GroupKey, IdKey, Target};
pub use limits::Limits;
pub use machine::{Admission, Begun, Core, Flow, Progress, Released, info};
pub use private_data::PrivateData;
pub use refuse_reason::RefuseReason;
pub use reject_code::RejectCode;
pub use request::{Acks, CmOption, PortSpace, RejectReason, Request, Service};
pub use request_kind::RequestKind;
pub use state::State;
pub use text::ParseError;
pub use time::Time;
pub use transport::Transport;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
