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
//!     // It waits until the controller is live. `Initiator::buffer` returns memory whose data is not copied.
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
//!             let data = ended.into_data().map_err(std::io::Error::other)?;
//!             return Ok(data.map(|data| data.to_vec()).unwrap_or_default());
//!         }
//!     }
//! }
//! ```

mod away;
mod buffer;
mod lane;
mod link;
mod loss;
mod memory;
mod reactor;
mod recover;
mod request;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::memory::MemoryError;
use cmid_mio::proto::redial::{GivenUp, Redial};
use cmid_mio::proto::{Acks, ChannelKey, Limits, Time};
use cmid_mio::{Config, Mio};
use mio::Registry;

pub use buffer::Buffer;
pub use link::LinkError;
pub use loss::Loss;
pub use request::{Ended, Failure, On, Ticket};

use crate::controller::{Controller, Settings};
use crate::wire::{AsyncEvent, Command};
use lane::Lane;
use link::Over;
use memory::Memory;
use reactor::Reactor;
use request::Request;

/// The memory of data on a device.
pub type BufferOf<D> = Buffer<<D as DataPath>::Piece>;

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
    /// How many buffers of registered memory there are ([`Initiator::buffer`]), each of the most bytes of a command.
    pub buffers: usize,
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
    /// The memory of [`Options::buffers`] was not registered. Data is copied.
    NoBlocks(MemoryError),
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
    memory: Option<Memory<D>>,
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
    /// The memory for what a turn of a lane has ended; empty otherwise.
    over: Vec<Over<D::Piece>>,
    waiting_admin: VecDeque<Request<BufferOf<D>>>,
    waiting: VecDeque<Request<BufferOf<D>>>,
    ended: VecDeque<Ended<BufferOf<D>>>,
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
        Ok(Initiator {
            redial: recover::redial(&options, now),
            lanes: (0..lanes).map(|qid| Lane::new(qid as u16, mio::Token(first_token + qid))).collect(),
            reactors,
            options,
            registry,
            driver,
            channel,
            controller: None,
            memory: None,
            next_lane: 0,
            wake: None,
            alive: Time::NEVER,
            look: now,
            over: Vec::new(),
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
    /// Returns memory for the data of a command of so many bytes. It is registered if one of [`Options::buffers`] is left and is
    /// as long, which none is before the controller is live for the first time. Its bytes are any.
    #[must_use]
    pub fn buffer(&self, len: usize) -> BufferOf<D> {
        let pool = self.memory.as_ref().and_then(|memory| memory.pool.as_ref());
        let block = pool.filter(|pool| len <= pool.block_len()).and_then(|pool| pool.take());
        block.map_or_else(|| vec![0; len].into(), |block| Buffer::of(block, len))
    }

    /// Whether registered memory is not copied: the device has memory windows.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.lends && memory.pool.is_some())
    }

    /// Submits a command, with its data in a `Vec<u8>` or in memory of [`Initiator::buffer`]. Its end follows
    /// ([`Initiator::next_ended`]). It waits while there is no controller.
    ///
    /// # Errors
    /// Returns the command if there are [`WAITING_MAX`] others.
    pub fn submit<B: Into<BufferOf<D>>>(
        &mut self,
        on: On,
        command: Command<B>,
    ) -> Result<Ticket, Command<BufferOf<D>>> {
        let command = command.map(Into::into);
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
    pub fn next_ended(&mut self) -> Option<Ended<BufferOf<D>>> {
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

    /// Resets the controller, as `nvme reset` does: ends its connections, and brings it up again at once. Requests that are
    /// outstanding are sent again, as after a loss. Does nothing unless it is live.
    pub fn reset(&mut self) {
        if self.controller.as_ref().is_some_and(Controller::is_live) {
            self.end_lanes();
            let now = self.driver.drive().within(Duration::ZERO);
            self.redial = recover::redial(&self.options, now);
            self.tell(Happened::Lost(Loss::Reset));
        }
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
