//! cmid in a `mio::Poll` that the user owns.
//!
//! [`Mio`] registers its channels in the user's registry, under a range of tokens that the user chooses. The user's
//! own sources use other tokens. No call waits: the user polls.
//!
//! ```text
//!  application --request--> Mio: Drive ( Core: tables, no I/O ) --call--> Device: Verbs, or a simulated one
//!       |      <--event---   |                                  <-event--     ^
//!       |                    | its channels, as tokens                        |
//!       +--poll, handle--> mio::Poll <-- the descriptors of CQs, and others   |
//!       +-------- posts and polls: the data path does not pass through Mio ---+
//! ```
//!
//! # A server and a client
//!
//! The client sends a word, and the server returns it in capital letters. Each wait has a limit, and both sides end in
//! order. With the feature `verbs` the device is `cmid_mio::verbs::Verbs::open()?`, and all else stays.
//!
//! ```
//! use cmid_mio::proto::datapath::{Access, Attaching, Completion, CreateError, DataPath, QpParts, SendWr, prelude::*};
//! use cmid_mio::proto::handshake::{Connected, Dial, DialTo, Incoming};
//! use cmid_mio::proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, Limits, PortSpace, Time};
//! use cmid_mio::{Config, Mio};
//! use mio::{Events, Interest, Poll, Token, unix::SourceFd};
//! use std::time::{Duration, Instant};
//! use std::{io, net::SocketAddr, os::fd::AsRawFd, thread};
//!
//! /// The limit of each step: a peer may be silent for ever.
//! const LIMIT: Duration = Duration::from_secs(10);
//! /// The application's token for its CQ. The driver has those from 1000 on.
//! const CQ: Token = Token(0);
//! const RECEIVE: u64 = 1;
//! const SEND: u64 = 2;
//!
//! /// The default repeats 7 times, which soft-RoCE takes for "without end".
//! fn param() -> ConnParam {
//!     ConnParam { retry_count: 6, ..ConnParam::default() }
//! }
//!
//! /// A QP with its PD and CQ, and memory: 32 bytes to receive into, 32 to send from.
//! type Attached<D> = (QpParts<D>, <D as DataPath>::Mr);
//!
//! fn attach<D: DataPath>(device: &mut D, to: Attaching<'_>) -> Result<Attached<D>, CreateError> {
//!     let mut made = device.qp(to).attach()?;
//!     let mr = made.pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
//!     made.qp.post_recv(RECEIVE, mr.sge(0..32))?;
//!     Ok((made, mr))
//! }
//!
//! /// One side: its poll, its driver, the channel of its events.
//! struct Side<D: DataPath> {
//!     poll: Poll,
//!     driver: Mio<D>,
//!     channel: ChannelKey,
//! }
//!
//! impl<D: DataPath> Side<D> {
//!     fn new(device: D) -> io::Result<Self> {
//!         let poll = Poll::new()?;
//!         let config = Config { limits: Limits::default(), tokens: 1000..1064 };
//!         let mut driver = Mio::new(device, poll.registry(), config)?;
//!         let channel = driver.drive().open_channel(Acks::OnDelivery)?;
//!         Ok(Side { poll, driver, channel })
//!     }
//!
//!     /// The loop: a turn, what the application does, a poll.
//!     fn until<T>(&mut self, mut look: impl FnMut(&mut Mio<D>) -> io::Result<Option<T>>) -> io::Result<T> {
//!         let (end, mut events) = (Instant::now() + LIMIT, Events::with_capacity(64));
//!         loop {
//!             let _next = self.driver.turn();
//!             if let Some(found) = look(&mut self.driver)? {
//!                 return Ok(found);
//!             }
//!             let left = end.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
//!             match self.poll.poll(&mut events, self.driver.timeout(Some(left))) {
//!                 Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
//!                 _ => {}
//!             }
//!             for event in &events {
//!                 let _is_of_the_driver = self.driver.handle(event); // false: `look` polls the CQ in any case
//!             }
//!         }
//!     }
//!
//!     fn event(&mut self) -> io::Result<Event> {
//!         let channel = self.channel;
//!         self.until(|driver| Ok(driver.drive().next_event(channel)))
//!     }
//!
//!     /// Waits for a request to complete. A peer that disconnects completes no receive, so it looks for events too.
//!     fn complete(&mut self, cq: &mut D::Cq, wr_id: u64) -> io::Result<()> {
//!         let channel = self.channel;
//!         self.until(|driver| {
//!             let mut some = [Completion::default()];
//!             while cq.poll_or_arm(&mut some)? > 0 {
//!                 let [done] = &some;
//!                 if !done.is_success() {
//!                     return Err(io::Error::other(done.status.to_string()));
//!                 } else if done.wr_id == wr_id {
//!                     return Ok(Some(()));
//!                 }
//!             }
//!             match driver.drive().next_event(channel) {
//!                 Some(_disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
//!                 None => Ok(None),
//!             }
//!         })
//!     }
//!
//!     /// Sends what is in the second half of the memory.
//!     fn send(&mut self, (made, mr): &mut Attached<D>, bytes: &[u8]) -> io::Result<()> {
//!         mr.write(32, bytes)?;
//!         made.qp.post_send(SendWr::send(SEND, mr.sge(32..32 + bytes.len())))?;
//!         Ok(())
//!     }
//!
//!     /// Registers the CQ of a connection with the poll.
//!     fn watch(&mut self, (made, _): &Attached<D>) -> io::Result<()> {
//!         self.poll.registry().register(&mut SourceFd(&made.cq.fd().as_raw_fd()), CQ, Interest::READABLE)
//!     }
//!
//!     /// Disconnects, waits for the peer's disconnect, and lets everything go.
//!     fn end(mut self, id: IdKey, attached: Attached<D>) -> io::Result<()> {
//!         let deadline = self.driver.drive().within(LIMIT);
//!         self.driver.drive().disconnect(id, deadline)?;
//!         while self.event()?.into_result()?.cm() != Some(CmEvent::Disconnected) {}
//!         self.driver.drive().detach_qp(id, |device, id| device.destroy_qp(id))?;
//!         self.driver.drive().destroy(id, Time::NEVER)?;
//!         drop(attached);
//!         Ok(())
//!     }
//! }
//!
//! fn client<D: DataPath>(mut side: Side<D>, server: SocketAddr) -> io::Result<()> {
//!     let (channel, deadline) = (side.channel, side.driver.drive().within(LIMIT));
//!     let to = DialTo { param: param(), ..DialTo::new(server) };
//!     let mut dial = Dial::start(side.driver.drive(), Some(channel), &to, deadline)?;
//!     let Connected { id, mut attached, .. } = side.until(|driver| {
//!         let Some(event) = driver.drive().next_event(channel) else { return Ok(None) };
//!         Ok(dial.handle(driver.drive(), event, |drive, id| drive.attach_qp(id, attach::<D>))?)
//!     })?;
//!     side.watch(&attached)?;
//!     side.send(&mut attached, b"hello")?;
//!     side.complete(&mut attached.0.cq, RECEIVE)?;
//!     let mut answer = [0; 5];
//!     attached.1.read(0, &mut answer)?;
//!     assert_eq!(&answer, b"HELLO");
//!     side.end(id, attached)
//! }
//!
//! fn listen<D: DataPath>(device: D, address: SocketAddr) -> io::Result<(Side<D>, IdKey)> {
//!     let mut side = Side::new(device)?;
//!     let listener = side.driver.drive().create_id(Some(side.channel), PortSpace::Tcp)?;
//!     side.driver.drive().bind(listener, address)?;
//!     side.driver.drive().listen(listener, 8)?;
//!     Ok((side, listener))
//! }
//!
//! fn server<D: DataPath>(mut side: Side<D>, listener: IdKey) -> io::Result<()> {
//!     let request = side.event()?.into_result()?;
//!     let incoming = Incoming::new(side.driver.drive(), request).map_err(|event| io::Error::other(event.to_string()))?;
//!     let (channel, deadline) = (side.channel, side.driver.drive().within(LIMIT));
//!     let mut serve = incoming
//!         .accept(side.driver.drive(), param(), &[], deadline, |drive, id| drive.attach_qp(id, attach::<D>))?;
//!     let Connected { id, mut attached, .. } = side.until(|driver| {
//!         let Some(event) = driver.drive().next_event(channel) else { return Ok(None) };
//!         Ok(serve.handle(driver.drive(), event)?)
//!     })?;
//!     side.watch(&attached)?;
//!     side.complete(&mut attached.0.cq, RECEIVE)?;
//!     let mut word = [0; 5];
//!     attached.1.read(0, &mut word)?;
//!     side.send(&mut attached, &word.to_ascii_uppercase())?;
//!     // The client disconnects when it has the answer, and this side replies with its own disconnect.
//!     while side.event()?.into_result()?.cm() != Some(CmEvent::Disconnected) {}
//!     side.driver.drive().disconnect(id, Time::NEVER)?;
//!     side.driver.drive().destroy(listener, Time::NEVER)?;
//!     Ok(())
//! }
//!
//! let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
//! let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! let address = "10.0.0.2:7471".parse()?;
//!
//! let (side, listener) = listen(host.device(), address)?;
//! let serving = thread::spawn(move || server(side, listener));
//! client(Side::new(host.device())?, address)?;
//! serving.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`cmid_proto::handshake`] has the two values that make the connection, and [`cmid_proto::datapath`] the traits of the rest.
#![forbid(unsafe_code)]

mod driver;
mod poller;

pub use cmid_io_common::Waker;
pub use cmid_proto as proto;
#[cfg(feature = "sim")]
pub use cmid_sim as sim;
#[cfg(feature = "trace")]
pub use cmid_trace as trace;
#[cfg(feature = "verbs")]
pub use cmid_verbs as verbs;
pub use driver::{Config, Mio};
pub use mio;
pub use poller::Tokens;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
