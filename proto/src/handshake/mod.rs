//! Connects and accepts as values: the application passes the events of an id to the value of its handshake.
//!
//! [`Dial`] is the active side: it resolves the address and the route, attaches a QP, connects. [`Incoming`] is a
//! connection request; [`Incoming::accept`] turns it into a [`Serve`], the passive side. Each handshake has one result,
//! and one deadline for all of its requests. An error destroys the id; [`Dial::cancel`] and [`Serve::cancel`] destroy
//! it before the end. The module uses only the public requests of [`Drive`](crate::Drive), so it works with every
//! driver.
//!
//! To connect again after a failure, see [`redial`](crate::redial). `Session` goes on after the handshake, to the end of
//! the connection.
//!
//! - **On a channel**: pass each event of the id to [`Dial::handle`] or [`Serve::handle`].
//! - **In synchronous mode**: call [`Dial::poll`] or [`Serve::poll`] after each wait.
//!
//! ```no_run
//! # use cmid_proto::{Acks, Device, Drive, Error, Observer, Poller, Time};
//! use cmid_proto::handshake::{Dial, DialTo, HandshakeError};
//! # fn wait<D: Device, P: Poller<D>, O: Observer>(_: &mut Drive<D, P, O>) {}
//! # fn connect<D: Device, P: Poller<D>, O: Observer>(drive: &mut Drive<D, P, O>, qp_num: u32) -> Result<(), HandshakeError> {
//! let channel = drive.open_channel(Acks::OnDelivery)?;
//! let mut to = DialTo::new("10.0.0.2:7471".parse().expect("an address"));
//! to.param.qp_num = qp_num; // for an id without a QP
//! let mut dial = Dial::start(drive, Some(channel), &to, Time::NEVER)?;
//! let connected = loop {
//!     let Some(event) = drive.next_event(channel) else {
//!         wait(drive); // in the driver's or the application's loop
//!         continue;
//!     };
//!     // With a QP: |drive, id| drive.attach_qp(id, |device, attaching| device.create_qp(attaching, ..))
//!     if let Some(connected) = dial.handle(drive, event, |_, _| Ok::<_, Error>(()))? {
//!         break connected;
//!     }
//! };
//! println!("{} is connected", connected.id);
//! # Ok(())
//! # }
//! ```
//!
//! # Handing a request to another reactor
//!
//! One reactor can accept for several. On that reactor [`Incoming::release`] returns a [`ReleasedIncoming`], which is
//! `Send`. The other reactor calls [`ReleasedIncoming::adopt`] on its thread, and then [`Incoming::accept`]: the QP is
//! created on the device of the reactor that uses it. Both drivers must count time from the same epoch, as the
//! project's drivers do (`CLOCK_MONOTONIC`), and each needs room for one more channel during the handover. A waker of
//! the driver wakes the other reactor.
//!
//! An established connection is handed over by [`Drive::migrate`](crate::Drive::migrate) to `None`,
//! [`Drive::release`](crate::Drive::release), [`Drive::adopt`](crate::Drive::adopt) and a migration to a channel of
//! the other driver.
#![allow(
    clippy::result_large_err,
    reason = "an error may hold the event that ended the handshake; nothing is allocated"
)]

mod dial;
mod error;
mod incoming;
mod serve;
#[cfg(feature = "std")]
mod session;
mod wait;

pub use crate::error::BoxError;
pub use dial::{Dial, DialTo};
pub use error::HandshakeError;
pub use incoming::{Incoming, ReleasedIncoming};
pub use serve::Serve;
#[cfg(feature = "std")]
pub use session::Session;

use crate::event::{Datagram, ReceivedParam};
use crate::key::IdKey;
use crate::private_data::PrivateData;

/// The result of a handshake.
#[derive(Debug)]
pub struct Connected<Q> {
    /// The id, which now belongs to the application.
    pub id: IdKey,
    /// The value that the closure `attach` has returned.
    pub attached: Q,
    /// The peer's parameters, from its reply or its request.
    pub param: ReceivedParam,
    /// The peer's private data, from its reply or its request, padded with zeros by the transport.
    pub private_data: PrivateData,
    /// For an active id of a datagram service: the destination of datagrams.
    pub datagram: Option<Datagram>,
}
