//! Venue and traders on RDMA devices.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use cmid_epoll::proto::datapath::DataPath;
use rustix::event::epoll;
use rustix::time::Timespec;
use ticker::driver::now;
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::quotes::Quotes;
use ticker::reactor::{Reactor, Role, run_slow_path};
use ticker::receiver::Update;
use ticker::trader::{Trader, TraderConfig};
use ticker::wire::Order;

use crate::devices::On;
use crate::venue::{Venue, WINDOW};

/// How long the sleeping trader sleeps at most, and how often it runs its slow path.
const SLEEP: Duration = Duration::from_millis(20);

type RdmaExchange<D> = Exchange<D, Box<dyn FnMut(&Order)>>;
pub(crate) type RdmaTrader<D> = Trader<D, fn(&Update)>;

/// A feed and an exchange.
pub(crate) struct RdmaVenue<D: DataPath> {
    feed: (Reactor<D>, Publisher<D>),
    exchange: (Reactor<D>, RdmaExchange<D>),
    quotes: Quotes,
    /// The tick of the last order.
    last: Rc<Cell<u64>>,
}

fn group() -> IpAddr {
    [239, 1, 1, 2].into()
}

impl<D: DataPath> RdmaVenue<D> {
    /// Starts on two ports from `first` on.
    pub(crate) fn start(on: &On, first: u16, open: &(dyn Fn() -> Result<D> + Sync)) -> Result<Self> {
        let (mut of_feed, mut of_exchange) = (Reactor::new(open()?), Reactor::new(open()?));
        let listen = SocketAddr::new(on.venue, first);
        let config = PublisherConfig { listen, group: group(), session: u64::from(first), kept: WINDOW };
        let feed = Publisher::start(of_feed.drive(), &config)?;
        let last = Rc::new(Cell::new(0));
        let of_last = Rc::clone(&last);
        let on_order: Box<dyn FnMut(&Order)> = Box::new(move |order| of_last.set(order.tick));
        let exchange = Exchange::start(of_exchange.drive(), SocketAddr::new(on.venue, first + 1), on_order)?;
        Ok(RdmaVenue { feed: (of_feed, feed), exchange: (of_exchange, exchange), quotes: Quotes::new(1), last })
    }

    /// Polls the exchange only: the feed sends no heartbeats meanwhile.
    pub(crate) fn take_orders(&mut self) -> Result<()> {
        let (reactor, exchange) = &mut self.exchange;
        Ok(reactor.round(exchange).map(drop)?)
    }
}

impl<D: DataPath> Venue for RdmaVenue<D> {
    fn is_ready(&self) -> bool {
        self.feed.1.is_joined() && self.feed.1.receivers() > 0 && self.exchange.1.traders() > 0
    }

    fn publish(&mut self) -> Result<u64> {
        let (reactor, feed) = &mut self.feed;
        let sequence = feed.next();
        feed.publish(reactor.drive().now(), self.quotes.next_tick())?;
        Ok(sequence)
    }

    fn poll(&mut self) -> Result<u64> {
        let (reactor, feed) = &mut self.feed;
        reactor.round(feed)?;
        let (reactor, exchange) = &mut self.exchange;
        reactor.round(exchange)?;
        Ok(self.last.get())
    }
}

/// Starts a trader that orders at each new tick.
pub(crate) fn start_trader<D: DataPath>(on: &On, first: u16, reactor: &mut Reactor<D>) -> Result<RdmaTrader<D>> {
    let [feed, exchange] = [first, first + 1].map(|port| SocketAddr::new(on.venue, port));
    let config = TraderConfig { local: on.local, group: group(), feed, exchange, window: WINDOW, edge: 0 };
    Ok(Trader::start(reactor.drive(), &config, (|_| ()) as fn(&Update))?)
}

/// Trades until it is stopped: polls, or sleeps in epoll.
pub(crate) fn trade<D: DataPath>(on: &On, first: u16, device: D, sleeps: bool, stop: &AtomicBool) -> Result<()> {
    let mut reactor = Reactor::new(device);
    let mut trader = start_trader(on, first, &mut reactor)?;
    while !stop.load(Ordering::Relaxed) && (!sleeps || !trader.is_live()) {
        reactor.round(&mut trader)?;
        on.after_poll();
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in trader.fds() {
        epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP.subsec_nanos()) };
    let mut slow_due = now().after(SLEEP);
    while !stop.load(Ordering::Relaxed) {
        trader.arm()?;
        trader.poll(reactor.drive().now())?;
        epoll::wait(&epoll, &mut [MaybeUninit::uninit(); 4], Some(&timeout))?;
        trader.poll(reactor.drive().now())?;
        if now() >= slow_due {
            run_slow_path(reactor.drive(), &mut trader)?;
            slow_due = now().after(SLEEP);
        }
    }
    Ok(())
}
