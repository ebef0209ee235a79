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
//! The client sends a word, and the server returns it in capital letters. [`Session`](proto::handshake::Session) is a
//! connection as one value, with its end. Each wait has a limit. With the feature `verbs` the device is
//! `cmid_mio::verbs::Verbs::open()?`, and all else stays.
//!
//! ```
//! use cmid_mio::proto::datapath::{
//!     Access, Attaching, Completion, CreateError, DataPath, QpParts, SendWr, prelude::*,
//! };
//! use cmid_mio::proto::handshake::{Incoming, Options, Session};
//! use cmid_mio::proto::{Acks, ChannelKey, ConnParam, Event, Limits, PortSpace};
//! use cmid_mio::{Config, Mio};
//! use mio::{Events, Interest, Poll, Token, unix::SourceFd};
//! use std::time::{Duration, Instant};
//! use std::{io, net::SocketAddr, os::fd::AsRawFd, thread};
//!
//! /// The limit of the handshake, of the words, and of the end: a peer may be silent for ever.
//! const LIMIT: Duration = Duration::from_secs(10);
//! /// The application's token for its CQ. The driver has those from 1000 on.
//! const CQ: Token = Token(0);
//! const RECEIVE: u64 = 1;
//! const SEND: u64 = 2;
//!
//! /// The default repeats 7 times, which soft-RoCE takes for "without end".
//! fn options() -> Options<'static> {
//!     let param = ConnParam { retry_count: 6, ..ConnParam::default() };
//!     Options { param, timeout: LIMIT, ..Options::default() }
//! }
//!
//! /// A QP with its PD and CQ, and memory: 5 bytes to receive into, 5 to send from.
//! type Attached<D> = (QpParts<D>, <D as DataPath>::Mr);
//!
//! fn attach<D: DataPath>(
//!     device: &mut D,
//!     to: Attaching<'_>,
//! ) -> Result<Attached<D>, CreateError> {
//!     let mut made = device.qp(to).attach()?;
//!     let mr = made.pd.register(vec![0; 10], Access::LOCAL_WRITE)?;
//!     made.qp.post_recv(RECEIVE, mr.sge(0..5))?;
//!     Ok((made, mr))
//! }
//!
//! fn send<D: DataPath>((made, mr): &mut Attached<D>, word: &[u8; 5]) -> io::Result<()> {
//!     mr.write(5, word)?;
//!     made.qp.post_send(SendWr::send(SEND, mr.sge(5..10)))?;
//!     Ok(())
//! }
//!
//! /// One side: its poll, its driver, the channel of its events, its connection, and the
//! /// word that it has received.
//! struct Side<D: DataPath> {
//!     poll: Poll,
//!     driver: Mio<D>,
//!     channel: ChannelKey,
//!     session: Option<Session<Attached<D>>>,
//!     is_client: bool,
//!     word: Option<[u8; 5]>,
//! }
//!
//! impl<D: DataPath> Side<D> {
//!     fn new(device: D, is_client: bool) -> io::Result<Self> {
//!         let poll = Poll::new()?;
//!         let config = Config { limits: Limits::default(), tokens: 1000..1064 };
//!         let mut driver = Mio::new(device, poll.registry(), config)?;
//!         let channel = driver.drive().open_channel(Acks::OnDelivery)?;
//!         Ok(Side { poll, driver, channel, session: None, is_client, word: None })
//!     }
//!
//!     fn client(device: D, server: SocketAddr) -> io::Result<Self> {
//!         let mut side = Side::new(device, true)?;
//!         side.session = Some(Session::connect(
//!             side.driver.drive(),
//!             Some(side.channel),
//!             server,
//!             &options(),
//!         )?);
//!         Ok(side)
//!     }
//!
//!     fn server(device: D, address: SocketAddr) -> io::Result<Self> {
//!         let mut side = Side::new(device, false)?;
//!         let listener =
//!             side.driver.drive().create_id(Some(side.channel), PortSpace::Tcp)?;
//!         side.driver.drive().bind(listener, address)?;
//!         side.driver.drive().listen(listener, 8)?;
//!         Ok(side)
//!     }
//!
//!     /// The loop: a turn, what has come, a poll. Returns the received word when the
//!     /// connection is over.
//!     fn run(mut self) -> io::Result<[u8; 5]> {
//!         let (end, mut events) = (Instant::now() + 3 * LIMIT, Events::with_capacity(64));
//!         loop {
//!             let _next = self.driver.turn();
//!             while let Some(event) = self.driver.drive().next_event(self.channel) {
//!                 self.handle(event)?;
//!             }
//!             while let Some(completion) = self.next_completion()? {
//!                 self.complete(completion)?;
//!             }
//!             if self.session.as_ref().is_some_and(Session::is_over) {
//!                 return self.word.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
//!             }
//!             let left = end
//!                 .checked_duration_since(Instant::now())
//!                 .ok_or(io::ErrorKind::TimedOut)?;
//!             match self.poll.poll(&mut events, self.driver.timeout(Some(left))) {
//!                 Err(error) if error.kind() != io::ErrorKind::Interrupted => {
//!                     return Err(error);
//!                 }
//!                 _ => {}
//!             }
//!             for event in &events {
//!                 // False: the CQ, which is polled in any case.
//!                 let _is_of_the_driver = self.driver.handle(event);
//!             }
//!         }
//!     }
//!
//!     /// An event of the listener, or of the connection, whose handshake may end with it.
//!     fn handle(&mut self, event: Event) -> io::Result<()> {
//!         let drive = self.driver.drive();
//!         let Some(session) = self.session.as_mut().filter(|it| it.id() == event.id)
//!         else {
//!             match Incoming::new(drive, event) {
//!                 // A second client is rejected, and the private data says why.
//!                 Ok(request) if self.session.is_some() => request.reject(drive, b"busy")?,
//!                 Ok(request) => {
//!                     let session = Session::accept(drive, request, &options(), attach)?;
//!                     self.session = Some(session);
//!                 }
//!                 Err(other) => return Err(io::Error::other(other.to_string())),
//!             }
//!             return Ok(());
//!         };
//!         if let Some(connected) = session.handle(drive, event, attach)? {
//!             let fd = connected.attached.0.cq.fd().as_raw_fd();
//!             let registry = self.poll.registry();
//!             registry.register(&mut SourceFd(&fd), CQ, Interest::READABLE)?;
//!             if self.is_client {
//!                 send(&mut connected.attached, b"hello")?;
//!             }
//!         }
//!         Ok(())
//!     }
//!
//!     fn next_completion(&mut self) -> io::Result<Option<Completion>> {
//!         let Some(session) = &mut self.session else { return Ok(None) };
//!         Ok(session.next_completion(self.driver.drive())?)
//!     }
//!
//!     /// The end of a receive or a send. The client has its answer and disconnects; the
//!     /// session of the server follows. A receive that the end has flushed brings no word.
//!     fn complete(&mut self, completion: Completion) -> io::Result<()> {
//!         let Some(session) = &mut self.session else { return Ok(()) };
//!         let is_word = completion.wr_id == RECEIVE && completion.is_success();
//!         let Some(attached) = session.attached().filter(|_| is_word) else {
//!             return Ok(());
//!         };
//!         let mut word = [0; 5];
//!         attached.1.read(0, &mut word)?;
//!         self.word = Some(word);
//!         if self.is_client {
//!             session.disconnect(self.driver.drive())?;
//!             return Ok(());
//!         }
//!         send(attached, &word.map(|letter| letter.to_ascii_uppercase()))
//!     }
//! }
//!
//! let fabric = cmid_sim::Fabric::new(cmid_sim::Config {
//!     clock: cmid_sim::Clock::Real,
//!     ..Default::default()
//! });
//! let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! let address = "10.0.0.2:7471".parse()?;
//!
//! let server = Side::server(host.device(), address)?;
//! let serving = thread::spawn(move || server.run());
//! let answer = Side::client(host.device(), address)?.run()?;
//! let word = serving.join().expect("the server does not panic")?;
//! assert_eq!((&word, &answer), (b"hello", b"HELLO"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`cmid_proto::handshake`] has the values that make the connection, and [`cmid_proto::datapath`] the traits of the rest. A
//! session can move to another thread and its poll: [`Session::release`](proto::handshake::Session::release).
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
pub use poller::Channels;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
