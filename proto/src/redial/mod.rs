//! Connects, and connects again after every end that can heal.
//!
//! [`Redial`] decides when the program calls its peer, and what the program does with the calls of the peer. It makes no
//! call: it is fed with what has happened and with the time, and answers with what [to do](Todo). The handshakes
//! themselves are those of [`handshake`](crate::handshake); a [`Cause`] is made of their error.
//!
//! ```no_run
//! # use cmid_proto::{ChannelKey, Device, Drive, Error, Observer, Poller, Time};
//! # use cmid_proto::handshake::{Dial, DialTo, HandshakeError};
//! use cmid_proto::redial::{Cause, Redial, RedialLimits, Todo};
//! # fn wait<D: Device, P: Poller<D>, O: Observer>(_: &mut Drive<D, P, O>, _until: Option<Time>) {}
//! # fn random() -> u32 { 4 }
//! # fn call<D: Device, P: Poller<D>, O: Observer>(drive: &mut Drive<D, P, O>, channel: ChannelKey, to: &DialTo) {
//! let mut redial = Redial::new(1, RedialLimits::default(), drive.now());
//! let mut dial: Option<Dial<()>> = None;
//! loop {
//!     let mut todo = redial.handle_timeout(drive.now(), random());
//!     if let Todo::Dial { deadline } = todo {
//!         match Dial::start(drive, Some(channel), to, deadline) {
//!             Ok(started) => dial = Some(started),
//!             Err(error) => todo = redial.failed(Cause::of(&error), drive.now(), random()),
//!         }
//!     }
//!     while let (Some(started), Some(event)) = (&mut dial, drive.next_event(channel)) {
//!         match started.handle(drive, event, |_, _| Ok::<_, Error>(())) {
//!             Ok(None) => continue,
//!             Ok(Some(_connected)) => todo = redial.established(drive.now()),
//!             Err(error) => todo = redial.failed(Cause::of(&error), drive.now(), random()),
//!         }
//!         dial = None;
//!     }
//!     match todo {
//!         Todo::Use { .. } => return, // the program uses its connection, and reports its end: Redial::lost
//!         Todo::Cancel => drop(dial.take().map(|dial| dial.cancel(drive))),
//!         Todo::GiveUp(reason) => return eprintln!("no connection: {reason}"),
//!         _ => {}
//!     }
//!     wait(drive, redial.timeout());
//! }
//! # }
//! ```
//!
//! # What heals
//!
//! [`Cause::of`] says which end is which. A peer that is gone, or that starts again, is not a peer that refuses: both
//! reject with reason 28, the kernel of a program that has ended without private data, and the program with it. So a
//! program that refuses for good rejects with private data that has a byte other than zero.
//!
//! # Both sides call at the same time
//!
//! Each side has a number, which it sends in its private data. The call of the lower number is [`kept`]: this side
//! rejects the other call with the private data [`CROSSED`], the other side cancels its own call and accepts. With equal
//! numbers both calls end, and the jitter decides whose next call is the first. A side that waits or has a connection
//! takes every call. A connection is closed only when the new call is established, because a call may be older than the
//! connection, if it was read late.
//!
//! # Limits
//!
//! [`RedialLimits`] has them all. A series of attempts begins with [`Redial::new`] and with the loss of a connection. The number
//! of attempts and the backoff begin anew only after a connection that has lasted for the longest backoff, so a
//! connection that always ends at once is given up, too.
//!
//! # States
//!
//! [`rules::REDIAL`] says what follows in each state from each input; `docs/generated/redial.md` is the same, rendered.

mod cause;
mod limits;
mod machine;
pub mod rules;

pub use cause::{CROSSED, Cause};
pub use limits::RedialLimits;
pub use machine::{GivenUp, Kept, Redial, Todo, kept};
pub use rules::Stage;
