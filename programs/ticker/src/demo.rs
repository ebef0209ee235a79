//! The demo: a feed, an exchange and traders on one thread, which runs a round of each in turn.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cmid_epoll::proto::datapath::DataPath;
use ticker::driver::now;
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::quotes::Quotes;
use ticker::reactor::Reactor;
use ticker::receiver::Update;
use ticker::trader::{Trader, TraderConfig};
use ticker::wire::Order;

use crate::args::DemoArgs;

/// The time limit of each wait. Emulated machines are slow. If a fifth of the packets is lost in each direction, one in
/// twenty attempts to connect exceeds its limit of 10 s, and a scene has taken up to 17 s.
const LIMIT: Duration = Duration::from_secs(60);

/// The number of early ticks that a trader holds.
const WINDOW: usize = 1024;

/// The number of ticks that the feed keeps for replays.
const KEPT: usize = 1 << 16;

/// Rounds between two ticks.
const ROUNDS: u32 = 4;

/// The distance from the mean price at which the traders order, in hundredths.
const EDGE: u64 = 150;

type TraderRole<D> = Trader<D, fn(&Update)>;
type ExchangeRole<D> = Exchange<D, fn(&Order)>;

struct Demo<D: DataPath> {
    feed: (Reactor<D>, Publisher<D>),
    exchange: (Reactor<D>, ExchangeRole<D>),
    traders: Vec<(Reactor<D>, TraderRole<D>)>,
    quotes: Quotes,
    /// The ticks of all sessions.
    published: u64,
}

/// Runs the scenes. The feed and the exchange run on devices of `venue`, the traders on those of `local`. `set_loss`
/// sets the loss of datagrams, if the device supports that.
pub(crate) fn run<D: DataPath>(
    args: &DemoArgs,
    venue: impl Fn() -> Result<D>,
    local: impl Fn() -> Result<D>,
    set_loss: impl Fn(f64),
) -> Result<()> {
    let mut reactor = Reactor::new(venue()?);
    let exchange = Exchange::start(reactor.drive(), exchange_address(args), (|_| ()) as fn(&Order))?;
    let exchange = (reactor, exchange);
    let feed = start_feed(args, venue()?, 1)?;
    let mut demo = Demo { feed, exchange, traders: Vec::new(), quotes: Quotes::new(1), published: 0 };

    demo.traders.push(start_trader(args, local()?)?);
    demo.wait("a trader is connected", |demo| demo.are_live())?;
    set_loss(0.05);
    demo.publish(args.ticks)?;
    set_loss(0.0);
    demo.report("gaps", 0)?;

    demo.traders.push(start_trader(args, local()?)?);
    demo.wait("a late joiner is connected", |demo| demo.are_live())?;
    demo.publish(args.ticks)?;
    demo.report("late joiner", 1)?;

    // Dropping the device ends its connections, as at the end of a process.
    drop(demo.feed);
    let feed = start_feed(args, venue()?, 2)?;
    let Demo { exchange, traders, quotes, published, .. } = demo;
    let mut demo = Demo { feed, exchange, traders, quotes, published };
    demo.wait("the traders are connected again", |demo| demo.are_live())?;
    demo.publish(args.ticks)?;
    demo.report("restarted feed", 0)?;
    let (accepted, refused) = demo.exchange.1.counts();
    say!("exchange: {accepted} orders accepted, {refused} refused")?;
    ensure!(accepted > 0 && refused == 0, "not all orders are accepted");
    Ok(())
}

fn feed_address(args: &DemoArgs) -> SocketAddr {
    SocketAddr::new(args.venue, 7300)
}

fn exchange_address(args: &DemoArgs) -> SocketAddr {
    SocketAddr::new(args.venue, 7400)
}

fn start_feed<D: DataPath>(args: &DemoArgs, device: D, session: u64) -> Result<(Reactor<D>, Publisher<D>)> {
    let mut reactor = Reactor::new(device);
    let config = PublisherConfig { listen: feed_address(args), group: args.group, session, kept: KEPT };
    let feed = Publisher::start(reactor.drive(), &config)?;
    Ok((reactor, feed))
}

fn start_trader<D: DataPath>(args: &DemoArgs, device: D) -> Result<(Reactor<D>, TraderRole<D>)> {
    let mut reactor = Reactor::new(device);
    let config = TraderConfig {
        local: args.local,
        group: args.group,
        feed: feed_address(args),
        exchange: exchange_address(args),
        window: WINDOW,
        edge: EDGE,
    };
    let trader = Trader::start(reactor.drive(), &config, (|_| ()) as fn(&Update))?;
    Ok((reactor, trader))
}

impl<D: DataPath> Demo<D> {
    /// Makes a round of each program.
    fn round(&mut self) -> Result<()> {
        let (reactor, feed) = &mut self.feed;
        reactor.round(feed)?;
        for (reactor, trader) in &mut self.traders {
            reactor.round(trader)?;
        }
        let (reactor, exchange) = &mut self.exchange;
        reactor.round(exchange)?;
        Ok(())
    }

    fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let end = now().after(LIMIT);
        while !holds(self) {
            if now() >= end {
                match self.traders.iter().find_map(|(_, trader)| trader.first_failure()) {
                    Some(failure) => bail!(failure),
                    None => bail!("not within {LIMIT:?}: {what}"),
                }
            }
            self.round()?;
        }
        Ok(())
    }

    /// Whether all traders and the feed are connected, and the traders have all ticks.
    fn are_live(&self) -> bool {
        let (_, feed) = &self.feed;
        let has_all = |trader: &TraderRole<D>| trader.is_live() && trader.receiver().next() == feed.next();
        feed.is_joined() && self.traders.iter().all(|(_, trader)| has_all(trader))
    }

    /// Sends ticks, and waits until each trader has all ticks and an answer to each order.
    fn publish(&mut self, ticks: u64) -> Result<()> {
        self.published += ticks;
        for _ in 0..ticks {
            let tick = self.quotes.next_tick();
            let (reactor, feed) = &mut self.feed;
            let now = reactor.drive().now();
            feed.publish(now, tick)?;
            for _ in 0..ROUNDS {
                self.round()?;
            }
        }
        self.wait("the traders have all ticks and answers", |demo| {
            demo.are_live() && demo.traders.iter().all(|(_, trader)| trader.open_orders() == 0)
        })
    }

    fn report(&self, scene: &str, trader: usize) -> Result<()> {
        let Some((_, trader)) = self.traders.get(trader) else { bail!("no trader {trader}") };
        let (counts, orders, next) = (trader.counts(), trader.orders(), trader.receiver().next());
        say!(
            "{scene}: session {}, has all {} ticks; so far {} in order, {} of them replayed, {} by snapshot; {} orders",
            trader.receiver().session(),
            next - 1,
            counts.ticks,
            counts.replayed,
            counts.skipped,
            orders.sent,
        )?;
        ensure!(counts.ticks + counts.skipped == self.published, "of {} ticks: {counts:?}", self.published);
        ensure!(orders.sent == orders.accepted + orders.unknown, "orders without an answer: {orders:?}");
        Ok(())
    }
}
