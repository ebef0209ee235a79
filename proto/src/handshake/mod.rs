//! Connects and accepts as values: the application passes the events of an id to the value of its handshake.
//!
//! [`Dial`] is the active side: it resolves the address and the route, attaches a QP, connects. [`Incoming`] is a
//! connection request; [`Incoming::accept`] turns it into a [`Serve`], the passive side. Each handshake has one result,
//! and one deadline for all of its requests. An error destroys the id ([`Fault::Leak`](crate::Fault::Leak) tells if that fails);
//! [`Dial::cancel`] and [`Serve::cancel`] destroy it before the end. The module uses only the public requests of [`Drive`](crate::Drive), so it works with every
//! driver.
//!
//! To connect again after a failure, see [`redial`](crate::redial). `Session` goes on after the handshake, to the end of
//! the connection.
//!
//! - **On a channel**: pass each event of the id to [`Dial::handle`] or [`Serve::handle`].
//! - **In synchronous mode**: call [`Dial::poll`] or [`Serve::poll`] after each wait.
//!
//! ```
//! use cmid_proto::datapath::QpParts;
//! use cmid_proto::handshake::{Dial, DialTo, Incoming, Serve};
//! use cmid_proto::{Acks, ConnParam, Drive, Limits, PortSpace};
//! use std::time::Duration;
//! # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//!
//! // Both sides on one driver. Here it is a `Drive` in virtual time, on the simulator.
//! let mut drive = Drive::new(host.device(), Limits::default());
//! let channel = drive.open_channel(Acks::OnDelivery)?;
//! let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
//! drive.bind(listener, "10.0.0.2:7471".parse()?)?;
//! drive.listen(listener, 8)?;
//!
//! let deadline = drive.within(Duration::from_secs(10));
//! let mut dial = Dial::start(&mut drive, Some(channel), &DialTo::new("10.0.0.2:7471".parse()?), deadline)?;
//! let (mut serve, mut client, mut server) = (None::<Serve<_>>, None, None);
//! while client.is_none() || server.is_none() {
//!     let Some(event) = drive.next_event(channel) else {
//!         fabric.advance_to(fabric.next_due().ok_or("nothing is due")?); // in the driver's or the application's loop: a wait
//!         drive.set_now(fabric.now());
//!         drive.readable_all();
//!         let _next = drive.run(64);
//!         continue;
//!     };
//!     if event.id == dial.id() {
//!         client = dial.handle(&mut drive, event, |drive, id| drive.attach_qp(id, QpParts::attach))?;
//!     } else if let Some(serve) = &mut serve {
//!         server = serve.handle(&mut drive, event)?;
//!     } else {
//!         let incoming = Incoming::new(&mut drive, event).map_err(|event| event.to_string())?;
//!         println!("{} asks", incoming.peer_addr(&drive)?);
//!         let attach = |drive: &mut Drive<_>, id| drive.attach_qp(id, QpParts::attach);
//!         serve = Some(incoming.accept(&mut drive, ConnParam::default(), &[], deadline, attach)?);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Handing a request or a connection to another reactor
//!
//! One reactor can accept for several. On that reactor [`Incoming::release`] returns a [`ReleasedIncoming`], which is
//! `Send`. The other reactor calls [`ReleasedIncoming::adopt`] on its thread, and then [`Incoming::accept`]: the QP is
//! created on the device of the reactor that uses it. Both drivers must count time from the same epoch, as the
//! project's drivers do (`CLOCK_MONOTONIC`), and each needs room for one more channel during the handover. A waker of
//! the driver wakes the other reactor.
//!
//! An established connection is handed over in the same way: `Session::release`, then `ReleasedSession::adopt`.
#![allow(
    clippy::result_large_err,
    reason = "an error may hold the event that ended the handshake; nothing is allocated"
)]

mod dial;
mod error;
mod incoming;
#[cfg(feature = "std")]
mod options;
mod serve;
#[cfg(feature = "std")]
mod session;
mod wait;

pub use crate::error::BoxError;
pub use dial::{Dial, DialTo};
pub use error::HandshakeError;
pub use incoming::{Incoming, ReleasedIncoming};
#[cfg(feature = "std")]
pub use options::Options;
pub use serve::Serve;
#[cfg(feature = "std")]
pub use session::{ReleasedSession, Session};

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
