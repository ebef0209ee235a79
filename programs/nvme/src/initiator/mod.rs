//! The driver: a controller over cmid in the application's `mio::Poll`, with all its connections.
//!
//! The application submits commands and takes their ends. If a connection is lost, all of them are ended, and the controller is
//! brought up again (`nvme_rdma_error_recovery` of the kernel does so too); [`Redial`] decides when. Commands that were outstanding
//! are then sent again, before those that waited.
//!
//! ```
//! use std::time::Duration;
//!
//! use cmid_mio::proto::datapath::DataPath;
//! use cmid_nvme::initiator::{Happened, Initiator, On, Options};
//! use cmid_nvme::wire;
//!
//! /// Reads the first block of namespace 1, which has 512 bytes.
//! fn first_block<D: DataPath + 'static>(device: D, options: Options) -> std::io::Result<Vec<u8>> {
//!     let (mut poll, mut events) = (mio::Poll::new()?, mio::Events::with_capacity(64));
//!     let mut initiator = Initiator::new(device, poll.registry(), 0, options)?;
//!     // It waits until the controller is live.
//!     let submitted = initiator.submit(On::Io, wire::read(1, 0, 1, vec![0; 512]));
//!     let ticket = submitted.map_err(|_| std::io::ErrorKind::OutOfMemory)?;
//!     loop {
//!         let timeout = initiator.before_poll(Duration::from_secs(1));
//!         poll.poll(&mut events, Some(timeout))?;
//!         for event in &events {
//!             if !initiator.handle(event) {
//!                 // one of the application's own sources
//!             }
//!         }
//!         initiator.turn();
//!         while let Some(happened) = initiator.next_happened() {
//!             if let Happened::Lost(loss) = happened {
//!                 eprintln!("lost: {loss}");
//!             }
//!         }
//!         if let Some(ended) = initiator.next_ended().filter(|ended| ended.ticket == ticket) {
//!             return ended.result.map(|answer| answer.data).map_err(std::io::Error::other);
//!         }
//!     }
//! }
//! ```

mod away;
mod lane;
mod link;
mod loss;
mod reactor;
mod recover;
mod request;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::redial::{GivenUp, Redial, RedialLimits};
use cmid_mio::proto::{Acks, ChannelKey, Limits, Time};
use cmid_mio::{Config, Mio};
use mio::Registry;

pub use link::LinkError;
pub use loss::Loss;
pub use request::{Answer, Ended, Failure, On, Ticket};

use crate::controller::{Controller, Settings};
use crate::wire::{AsyncEvent, Command};
use lane::Lane;
use reactor::Reactor;
use request::Request;

/// The most requests that wait for a queue, or whose end was not taken; of the administrator as many again.
pub const WAITING_MAX: usize = 4096;

/// The most news about the controller that were not taken. The oldest ones go.
const HAPPENED_MAX: usize = 64;

/// How often a command is sent again, after a loss or after a status that is not final (`nvme_max_retries` of the kernel).
pub const RETRIES: u8 = 5;

/// The time limit of bringing a controller up, besides that of its own.
const BRING_UP: Duration = Duration::from_secs(20);

/// The tokens of the driver's channels, after those of the completion queues.
const CHANNELS: usize = 8;

/// What to connect to, and when to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The target.
    pub addr: SocketAddr,
    /// The subsystem, this host, the queues.
    pub settings: Settings,
    /// The most bytes of a command, a multiple of the page. Each slot of each I/O queue has so much memory.
    pub transfer: usize,
    /// The time limit of a command, also of one of the administrator.
    pub timeout: Duration,
    /// The time between two attempts (`reconnect_delay`).
    pub reconnect_delay: Duration,
    /// How long to connect again (`ctrl_loss_tmo`); `None` without limit, zero for never. It limits the first attempt too.
    pub ctrl_loss: Option<Duration>,
    /// How many threads serve the I/O queues, in turn, each with a poll of its own. With 0 the application's poll has them.
    /// Connections are made in the application's poll, where the admin queue stays.
    pub reactors: u16,
}

/// What has happened to the controller.
#[derive(Debug)]
pub enum Happened {
    /// It is live, for the first time or again.
    Live,
    /// It was lost, or was not brought up. Another attempt follows.
    Lost(Loss),
    /// It reports an event.
    Event(AsyncEvent),
    /// No other attempt follows. All requests have ended.
    GivenUp {
        /// The last loss.
        loss: Loss,
        /// The rule that ends the attempts; `None` for a first attempt that fails.
        rule: Option<GivenUp>,
    },
}

/// An initiator with one controller.
pub struct Initiator<D: DataPath> {
    options: Options,
    registry: Registry,
    driver: Mio<D>,
    channel: ChannelKey,
    redial: Redial,
    controller: Option<Controller>,
    lanes: Vec<Lane<D>>,
    reactors: Vec<Reactor<D>>,
    /// The lane of the next I/O command.
    next_lane: usize,
    /// When the controller is asked again whether it is ready.
    wake: Option<Time>,
    /// When the next keep-alive is due.
    alive: Time,
    /// When the deadlines of commands are looked at.
    look: Time,
    waiting_admin: VecDeque<Request>,
    waiting: VecDeque<Request>,
    ended: VecDeque<Ended>,
    happened: VecDeque<Happened>,
    tickets: u64,
    has_been_live: bool,
    given_up: Option<String>,
}

impl<D: DataPath> std::fmt::Debug for Initiator<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Initiator").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl<D: DataPath + 'static> Initiator<D> {
    /// Returns how many tokens [`Initiator::new`] uses with so many I/O queues.
    #[must_use]
    pub fn tokens(queues: u16) -> usize {
        usize::from(queues) + 1 + CHANNELS
    }

    /// Creates an initiator, with its tokens from `first_token` on. The first attempt begins at the first
    /// [`turn`](Initiator::turn).
    ///
    /// # Errors
    /// As [`Mio::new`] and [`Drive::open_channel`](cmid_mio::proto::Drive::open_channel): there is no RDMA device. Those of starting the
    /// reactors.
    pub fn new(device: D, registry: &Registry, first_token: usize, options: Options) -> io::Result<Self> {
        let siblings: Vec<D> = (0..options.reactors).map(|_| device.sibling()).collect();
        let lanes = usize::from(options.settings.queues) + 1;
        let channels = first_token + lanes;
        let config = Config { limits: Limits::default(), tokens: channels..channels + CHANNELS };
        let mut driver = Mio::new(device, registry, config)?;
        let registry = registry.try_clone()?;
        let channel = driver.drive().open_channel(Acks::OnDelivery)?;
        let waker = driver.waker()?;
        let start = |device| Reactor::start(device, options.settings.queues, options.timeout, waker.clone());
        let reactors = siblings.into_iter().map(start).collect::<io::Result<_>>()?;
        let now = driver.drive().within(Duration::ZERO);
        let limits = RedialLimits {
            handshake: BRING_UP + options.timeout,
            backoff: options.reconnect_delay,
            backoff_max: options.reconnect_delay,
            attempts: u32::MAX,
            // With zero no second attempt follows, whatever this is.
            within: options.ctrl_loss.map_or(Duration::MAX, |limit| if limit.is_zero() { BRING_UP } else { limit }),
        };
        Ok(Initiator {
            redial: Redial::new(0, limits, now),
            lanes: (0..lanes).map(|qid| Lane::new(qid as u16, mio::Token(first_token + qid))).collect(),
            reactors,
            options,
            registry,
            driver,
            channel,
            controller: None,
            next_lane: 0,
            wake: None,
            alive: Time::NEVER,
            look: now,
            waiting_admin: VecDeque::new(),
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            happened: VecDeque::new(),
            tickets: 0,
            has_been_live: false,
            given_up: None,
        })
    }
}

impl<D: DataPath> Initiator<D> {
    /// Submits a command. Its end follows ([`Initiator::next_ended`]). It waits while there is no controller.
    ///
    /// # Errors
    /// Returns the command if there are [`WAITING_MAX`] others.
    pub fn submit(&mut self, on: On, command: Command) -> Result<Ticket, Command> {
        let waiting = match on {
            On::Admin => &mut self.waiting_admin,
            On::Io => &mut self.waiting,
        };
        if waiting.len() + self.ended.len() >= WAITING_MAX {
            return Err(command);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        match &self.given_up {
            Some(why) => {
                let result = Err(Failure::GivenUp(why.clone()));
                self.ended.push_back(Ended { ticket, command, result });
            }
            None => waiting.push_back(Request { ticket, on, command, failures: 0 }),
        }
        Ok(ticket)
    }

    fn tell(&mut self, happened: Happened) {
        if self.happened.len() >= HAPPENED_MAX {
            self.happened.pop_front();
        }
        self.happened.push_back(happened);
    }

    /// Takes the end of a request.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Takes what has happened to the controller.
    pub fn next_happened(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    /// Returns the controller, while it is live.
    #[must_use]
    pub fn controller(&self) -> Option<&Controller> {
        self.controller.as_ref().filter(|controller| controller.is_live())
    }

    /// Returns how many I/O queues are served by [reactors](Options::reactors) now.
    #[must_use]
    pub fn queues_on_reactors(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.away.is_some()).count()
    }

    /// Returns the most bytes of an I/O command; of one of the administrator it is 4096.
    #[must_use]
    pub fn transfer_max(&self) -> usize {
        self.controller().map_or(0, |controller| controller.transfer_max(self.options.transfer))
    }

    /// Ends the connections. Requests that are outstanding end with [`Failure::GivenUp`].
    pub fn close(&mut self) {
        // The answer is that no attempt follows.
        let _ = self.redial.stop();
        self.end_lanes();
        self.end_all("closed");
    }
}

impl<D: DataPath> Drop for Initiator<D> {
    fn drop(&mut self) {
        self.end_lanes();
        self.reactors.drain(..).for_each(Reactor::stop);
    }
}
