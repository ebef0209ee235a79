//! cmid on tokio: connects, accepts and completions as futures. Copy this crate, and change it.
//!
//! A [`Reactor`] has one driver and one task that waits for its descriptor. A future locks the driver for its requests,
//! and holds no lock while it waits. Each future is cancel-safe: dropping it destroys its id, or leaves the events to
//! the next future. Dropping a [`Connection`], an [`Inbound`] or a [`Listener`] destroys its id too.
//!
//! ```
//! use cmid_epoll::proto::{ConnParam, handshake::DialTo};
//! use on_tokio::Reactor;
//! use std::time::Duration;
//! # let fabric = cmid_epoll::sim::Fabric::new(cmid_epoll::sim::Config {
//! #     clock: cmid_epoll::sim::Clock::Real, ..Default::default()
//! # });
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! const LIMIT: Duration = Duration::from_secs(5);
//! let reactor = Reactor::new(host.device(), Default::default())?;
//! let mut listener = reactor.listen("10.0.0.2:7471".parse()?, 16)?;
//! let mut to = DialTo::new("10.0.0.2:7471".parse()?);
//! to.param.qp_num = 1; // no QP in this example: its number
//! let server = async {
//!     let param = ConnParam { qp_num: 2, ..ConnParam::default() };
//!     listener.accept().await?.accept(param, b"welcome", LIMIT, |_, _| Ok(())).await
//! };
//! let (client, server) = tokio::try_join!(reactor.connect(&to, LIMIT, |_, _| Ok(())), server)?;
//! assert_eq!(&client.connected().private_data[..7], b"welcome");
//! drop(client);
//! server.closed().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod completions;
mod connection;
mod listener;
mod state;

pub use completions::Completions;
pub use connection::Connection;
pub use listener::{Inbound, Listener};
pub use state::DriveOf;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use cmid_epoll::proto::handshake::{Dial, DialTo};
use cmid_epoll::proto::{Error, IdKey, Pollable, PortSpace};
use cmid_epoll::{Config, Epoll};
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use crate::state::{Owned, Shared};

/// A driver and its task. Futures and connections make progress while the reactor exists.
#[derive(Debug)]
pub struct Reactor<D: Pollable> {
    shared: Arc<Shared<D>>,
    task: AbortHandle,
}

impl<D: Pollable> Drop for Reactor<D> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<D: Pollable + Send + 'static> Reactor<D>
where
    Epoll<D>: Send,
{
    /// Creates a driver on a device, and its task in the current runtime.
    ///
    /// # Errors
    /// The errors of [`Epoll::new`] and of the registration of its descriptor.
    pub fn new(device: D, config: Config) -> io::Result<Self> {
        let driver = Epoll::new(device, config)?;
        #[allow(deprecated, reason = "an `OwnedFd` keeps its descriptor; the replacement is unsafe")]
        let readable = AsyncFd::new(driver.as_fd().try_clone_to_owned()?)?;
        let shared = Arc::new(Shared::new(driver)?);
        let runs = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok(mut guard) = readable.readable().await {
                // tokio reports edges, so `run` repeats the turns until one has no work.
                guard.clear_ready();
                drop(runs.lock());
            }
        });
        Ok(Reactor { shared, task: task.abort_handle() })
    }

    /// Connects within `limit`. `attach` is called once the id has a device and a route; it attaches a QP with
    /// `Drive::attach_qp` and returns a value to keep with the connection.
    ///
    /// # Errors
    /// The errors of a handshake ([`HandshakeError`](cmid_epoll::proto::handshake::HandshakeError)), as inner errors.
    pub async fn connect<Q>(
        &self,
        to: &DialTo,
        limit: Duration,
        mut attach: impl FnMut(&mut DriveOf<D>, IdKey) -> Result<Q, Error>,
    ) -> io::Result<Connection<D, Q>> {
        // `owned` destroys the id if the future is dropped.
        let (mut dial, owned) = {
            let mut state = self.shared.lock();
            let (channel, deadline) = (state.channel, state.driver.drive().within(limit));
            let dial = Dial::start(state.driver.drive(), Some(channel), to, deadline)?;
            let owned = Owned::new(&self.shared, &mut state, dial.id());
            (dial, owned)
        };
        loop {
            let event = owned.next_event().await?;
            let connected = dial.handle(self.shared.lock().driver.drive(), event, &mut attach)?;
            if let Some(connected) = connected {
                return Ok(Connection::new(owned, connected));
            }
        }
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// The errno of the device, such as `EADDRINUSE`, `EADDRNOTAVAIL` or `ENODEV`.
    pub fn listen(&self, address: SocketAddr, backlog: i32) -> io::Result<Listener<D>> {
        let mut state = self.shared.lock();
        let channel = state.channel;
        let id = state.driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let bound = state.driver.drive().bind(id, address);
        let listening = bound.and_then(|()| state.driver.drive().listen(id, backlog));
        let owned = Owned::new(&self.shared, &mut state, id);
        // Unlocks the driver, because the drop of `owned` locks it to destroy the id.
        drop(state);
        listening?;
        Ok(Listener::new(owned))
    }

    /// Returns the number of ids.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.shared.lock().driver.drive().core().ids().count()
    }
}
