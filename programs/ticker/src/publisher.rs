//! The feed: sends ticks to the multicast group, and answers requests of receivers for missing ticks.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::{Drive, Errno, Poller, Time};

use crate::clients::Clients;
use crate::error::Error;
use crate::feed::Feed;
use crate::group::{Group, Membership};
use crate::port::BURST;
use crate::reactor::Role;
use crate::wire::{MarketMessage, Service, Tick};

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// The parameters of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublisherConfig {
    /// The address and port on which it listens for receivers. It sends to the group from this address.
    pub listen: SocketAddr,
    /// The multicast group.
    pub group: IpAddr,
    /// The number of the session, larger than that of each session before.
    pub session: u64,
    /// The number of ticks that are kept for replays.
    pub kept: usize,
}

/// The feed.
#[derive(Debug)]
pub struct Publisher<D: DataPath> {
    feed: Feed,
    group: Group<D>,
    clients: Clients<D>,
}

impl<D: DataPath> Publisher<D> {
    /// Starts to join the group, and listens.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start<P: Poller<D>>(drive: &mut Drive<D, P>, config: &PublisherConfig) -> Result<Self, Error> {
        let PublisherConfig { listen, group, session, kept } = *config;
        let clients = Clients::listen(drive, Service::Replay, listen)?;
        let group = Group::join(drive, listen.ip(), group, Membership::Sender)?;
        Ok(Publisher { feed: Feed::new(session, kept, HEARTBEAT), group, clients })
    }

    /// Whether it is a member of the group. Ticks that are published before that are not sent; receivers request them
    /// later.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.group.is_joined()
    }

    /// Returns the sequence number of the next tick.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.feed.next()
    }

    /// Returns the number of connected receivers.
    #[must_use]
    pub fn receivers(&self) -> usize {
        self.clients.count()
    }

    /// Sends a tick. Its sequence number is set.
    ///
    /// # Errors
    /// [`Error::Port`].
    #[inline]
    pub fn publish(&mut self, now: Time, tick: Tick) -> Result<(), Error> {
        Ok(self.group.send(&self.feed.publish(now, tick))?)
    }
}

impl<D: DataPath> Role<D> for Publisher<D> {
    fn poll(&mut self, now: Time) -> Result<(), Error> {
        // Takes the completions of the sends.
        for _ in 0..BURST {
            if self.group.port().next_message()?.is_none() {
                break;
            }
        }
        let Publisher { feed, clients, .. } = self;
        clients.poll(now, |client, bytes| {
            let request = MarketMessage::decode(bytes).map_err(|_| Errno::EINVAL)?;
            feed.answer(request, |bytes| client.send(&bytes))
        });
        Ok(())
    }

    fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        self.clients.take_events(drive)?;
        self.group.take_events(drive)
    }

    fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        if let Some(bytes) = self.feed.poll_heartbeat(drive.now()) {
            self.group.send(&bytes)?;
        }
        self.clients.handle_timeout(drive);
        self.group.handle_timeout(drive)
    }
}
