//! The trader: receives ticks by multicast, fills gaps over a connection to the feed, and sends orders over a
//! connection to the exchange.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::{Drive, Poller, Time};

use crate::clients;
use crate::error::{ConnectError, Error};
use crate::group::{Group, Membership};
use crate::link::Link;
use crate::port::BURST;
use crate::reactor::Role;
use crate::receiver::{Counts, Receiver, Source, Update};
use crate::strategy::{OrderCounts, Strategy};
use crate::wire::{Bytes, Entry, Market, MarketMessage, Service};

/// If the feed sends no message for this time, its prices count as old and no orders are sent. The feed sends
/// heartbeats more often.
const SILENCE: Duration = Duration::from_secs(1);

/// If an answer to a request, or its next part, takes longer than this, the trader connects to the feed again.
const REPLY_LIMIT: Duration = Duration::from_secs(2);

/// The interval of [`Market::Alive`] and [`Entry::Alive`].
const ALIVE: Duration = Duration::from_nanos(clients::SILENCE.as_nanos() as u64 / 4);

/// The parameters of a trader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraderConfig {
    /// The local address from which it joins the group.
    pub local: IpAddr,
    /// The multicast group.
    pub group: IpAddr,
    /// The feed's address and port for replays.
    pub feed: SocketAddr,
    /// The exchange's address and port.
    pub exchange: SocketAddr,
    /// The length of the receiver's window, in ticks. If more ticks are missing, the trader requests a snapshot.
    pub window: usize,
    /// The edge of [`Strategy::new`].
    pub edge: u64,
}

/// The trader. It passes each update to `O`, after the order that the update has caused.
#[derive(Debug)]
pub struct Trader<D: DataPath, O> {
    receiver: Receiver,
    strategy: Strategy,
    group: Group<D>,
    feed: Link<D>,
    exchange: Link<D>,
    on_update: O,
    /// Whether the feed has sent a message within [`SILENCE`].
    is_live: bool,
    /// The time of the next `Alive` messages.
    alive_due: Time,
    /// The connections to the feed that have begun with [`Market::Alive`].
    asked: u64,
}

impl<D: DataPath, O: FnMut(&Update)> Trader<D, O> {
    /// Starts to join the group and to connect.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start<P: Poller<D>>(drive: &mut Drive<D, P>, config: &TraderConfig, on_update: O) -> Result<Self, Error> {
        let TraderConfig { local, group, feed, exchange, window, edge } = *config;
        Ok(Trader {
            receiver: Receiver::new(window),
            strategy: Strategy::new(edge),
            group: Group::join(drive, local, group, Membership::Receiver)?,
            feed: Link::new(drive, Service::Replay, feed)?,
            exchange: Link::new(drive, Service::Orders, exchange)?,
            on_update,
            is_live: false,
            alive_due: Time::ZERO,
            asked: 0,
        })
    }

    /// Returns the receiver.
    #[must_use]
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Returns the counters of the receiver.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.receiver.counts()
    }

    /// Returns the numbers of orders by result.
    #[must_use]
    pub fn orders(&self) -> OrderCounts {
        self.strategy.counts()
    }

    /// Returns the number of orders that are not answered.
    #[must_use]
    pub fn open_orders(&self) -> u64 {
        self.strategy.open()
    }

    /// Whether it is a member of the group and connected to the feed and the exchange, and the feed sends.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_live && self.group.is_joined() && self.feed.is_up() && self.exchange.is_up()
    }

    /// Returns the numbers of connections made to the feed and to the exchange.
    #[must_use]
    pub fn connections(&self) -> (u64, u64) {
        (self.feed.connections(), self.exchange.connections())
    }

    /// Returns the error of a first attempt to connect; `None` once there was a connection to the feed and to the
    /// exchange.
    #[must_use]
    pub fn first_failure(&self) -> Option<ConnectError> {
        let first = |link: &Link<D>| link.failure().filter(|_| link.connections() == 0);
        first(&self.feed).or(first(&self.exchange))
    }

    /// Returns the error of the last attempt to connect; `None` if neither the feed nor the exchange has failed.
    #[must_use]
    pub fn failure(&self) -> Option<ConnectError> {
        self.feed.failure().or(self.exchange.failure())
    }

    /// The fast path, from a tick to its order.
    #[inline]
    fn take(&mut self, now: Time, source: Source, bytes: &Bytes) {
        // Any host can send to the group, in any version.
        let Ok(message) = MarketMessage::decode(bytes) else { return };
        let Trader { receiver, strategy, exchange, on_update, is_live, .. } = self;
        receiver.handle(now, source, message, |update| {
            if let Some(order) = strategy.handle(update, *is_live && exchange.is_up()) {
                exchange.send(&Entry::New(order).encode());
            }
            on_update(&update);
        });
    }

    fn send_alive(&mut self) {
        let session = self.receiver.session();
        self.feed.send(&MarketMessage { session, market: Market::Alive }.encode());
        self.exchange.send(&Entry::Alive.encode());
    }
}

impl<D: DataPath, O: FnMut(&Update)> Role<D> for Trader<D, O> {
    #[inline]
    fn poll(&mut self, now: Time) -> Result<(), Error> {
        for _ in 0..BURST {
            let Some(bytes) = self.group.port().next_message()? else { break };
            self.take(now, Source::Group, &bytes);
        }
        for _ in 0..BURST {
            let Some(bytes) = self.feed.next_message() else { break };
            self.take(now, Source::Feed, &bytes);
        }
        for _ in 0..BURST {
            let Some(bytes) = self.exchange.next_message() else { break };
            match Entry::decode(&bytes) {
                Ok(Entry::Accepted(_)) => self.strategy.handle_answer(true),
                Ok(Entry::Refused(_)) => self.strategy.handle_answer(false),
                Ok(Entry::New(_) | Entry::Alive) | Err(_) => self.exchange.fail(),
            }
        }
        // Without a connection, the request is made once there is one.
        if self.receiver.has_gap() && self.feed.is_up() {
            if let Some(request) = self.receiver.poll_request(now) {
                self.feed.send(&request.encode());
            }
        }
        Ok(())
    }

    fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        self.feed.take_events(drive);
        self.exchange.take_events(drive);
        self.group.take_events(drive)
    }

    fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        let now = drive.now();
        self.is_live = self.receiver.session() != 0 && now < self.receiver.received_at().after(SILENCE);
        if self.receiver.waits_since().is_some_and(|since| now >= since.after(REPLY_LIMIT)) {
            self.feed.fail();
        }
        if !self.feed.is_up() {
            self.receiver.handle_disconnect();
        }
        if !self.exchange.is_up() {
            self.strategy.handle_disconnect();
        }
        // A feed that has started again tells its session at once.
        if now >= self.alive_due || self.asked != self.feed.connections() {
            (self.alive_due, self.asked) = (now.after(ALIVE), self.feed.connections());
            self.send_alive();
        }
        self.feed.handle_timeout(drive);
        self.exchange.handle_timeout(drive);
        self.group.handle_timeout(drive)
    }
}
