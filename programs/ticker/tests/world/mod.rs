//! A feed, traders and an exchange on simulated hosts, in virtual time and on one thread.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use cmid_epoll::sim::{Config, Fabric, Host, SimDevice};
use ticker::Error;
use ticker::driver::{Driver, NeverWaits, driver};
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::reactor::{Role, run_slow_path};
use ticker::receiver::Update;
use ticker::trader::{Trader, TraderConfig};
use ticker::wire::{INSTRUMENTS, Order, Tick};

/// The time between two rounds while ticks are published.
const STEP: Duration = Duration::from_micros(50);

/// The time between two rounds while a test waits.
const LONG_STEP: Duration = Duration::from_millis(1);

/// The slow path runs once in this number of short rounds, and in each long round.
const SLOW: u32 = 20;

const GROUP: [u8; 4] = [239, 1, 1, 1];

pub(crate) type On<R> = (Driver<SimDevice, NeverWaits>, R);

/// The updates that are passed on to the trader.
pub(crate) type Updates = Rc<RefCell<Vec<Update>>>;

type ExchangeRole = Exchange<SimDevice, Box<dyn FnMut(&Order)>>;

pub(crate) type TraderRole = Trader<SimDevice, Box<dyn FnMut(&Update)>>;

pub(crate) struct World {
    pub(crate) fabric: Fabric,
    pub(crate) feed_host: Host,
    pub(crate) trader_host: Host,
    pub(crate) exchange_host: Host,
    pub(crate) feed: Option<On<Publisher<SimDevice>>>,
    pub(crate) traders: Vec<(On<TraderRole>, Updates)>,
    pub(crate) exchange: On<ExchangeRole>,
    pub(crate) orders: Rc<RefCell<Vec<Order>>>,
    pub(crate) window: usize,
    /// The address from which traders request replays.
    pub(crate) replays: SocketAddr,
    rounds: u32,
}

fn address(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

/// Returns the tick with a sequence number, which determines its fields.
pub(crate) fn tick(sequence: u64) -> Tick {
    let instrument = (sequence % INSTRUMENTS as u64) as u16;
    Tick { sequence, instrument, quantity: sequence as u32, price: 10_000 + sequence % 100 }
}

impl World {
    pub(crate) fn new(seed: u64, loss: f64) -> Self {
        let fabric = Fabric::new(Config { seed, loss, ..Config::default() });
        let [feed_host, trader_host, exchange_host] = [1, 2, 3].map(|it| fabric.host(&[address(it)]));
        let orders = Rc::new(RefCell::new(Vec::new()));
        let mut drive = driver(exchange_host.device(), NeverWaits::Virtual);
        let log = Rc::clone(&orders);
        let on_order: Box<dyn FnMut(&Order)> = Box::new(move |order| log.borrow_mut().push(*order));
        let exchange = Exchange::start(&mut drive, SocketAddr::new(address(3), 7400), on_order).expect("an exchange");
        let exchange = (drive, exchange);
        World {
            fabric,
            feed_host,
            trader_host,
            exchange_host,
            feed: None,
            traders: Vec::new(),
            exchange,
            orders,
            window: 256,
            replays: SocketAddr::new(address(1), 7300),
            rounds: 0,
        }
    }

    pub(crate) fn start_feed(&mut self, session: u64) {
        self.feed = Some(self.try_start_feed(session).expect("a feed"));
    }

    pub(crate) fn try_start_feed(&self, session: u64) -> Result<On<Publisher<SimDevice>>, Error> {
        let mut drive = driver(self.feed_host.device(), NeverWaits::Virtual);
        let listen = SocketAddr::new(address(1), 7300);
        let config = PublisherConfig { listen, group: GROUP.into(), session, kept: 4096 };
        let feed = Publisher::start(&mut drive, &config)?;
        Ok((drive, feed))
    }

    pub(crate) fn start_trader(&mut self) {
        let mut drive = driver(self.trader_host.device(), NeverWaits::Virtual);
        let config = TraderConfig {
            local: address(2),
            group: GROUP.into(),
            feed: self.replays,
            exchange: SocketAddr::new(address(3), 7400),
            window: self.window,
            edge: 0,
        };
        let updates = Updates::default();
        let log = Rc::clone(&updates);
        let on_update: Box<dyn FnMut(&Update)> = Box::new(move |update| log.borrow_mut().push(*update));
        let trader = Trader::start(&mut drive, &config, on_update).expect("a trader");
        self.traders.push(((drive, trader), updates));
    }

    /// Makes a round of each role.
    fn round(&mut self, step: Duration) {
        self.fabric.advance_by(step);
        self.rounds += 1;
        let (slow, now) = (self.rounds % SLOW == 0 || step == LONG_STEP, self.fabric.now());
        let run = |drive: &mut Driver<SimDevice, NeverWaits>, role: &mut dyn FnMut(&mut Driver<_, _>, bool)| {
            drive.set_now(now);
            role(drive, slow);
        };
        if let Some((drive, feed)) = &mut self.feed {
            run(drive, &mut |drive, slow| play(drive, feed, slow));
        }
        for ((drive, trader), _) in &mut self.traders {
            run(drive, &mut |drive, slow| play(drive, trader, slow));
        }
        let (drive, exchange) = &mut self.exchange;
        run(drive, &mut |drive, slow| play(drive, exchange, slow));
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.fabric.now().after(span);
        while self.fabric.now() < end {
            self.round(LONG_STEP);
        }
    }

    /// Makes rounds until a condition holds; fails after a minute of virtual time.
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let end = self.fabric.now().after(Duration::from_secs(60));
        while !holds(self) {
            assert!(self.fabric.now() < end, "not within a minute: {what}: {:?}", self.trader(0).counts());
            self.round(LONG_STEP);
        }
    }

    pub(crate) fn publish(&mut self, count: u64) {
        for _ in 0..count {
            let (drive, feed) = self.feed.as_mut().expect("a feed");
            let next = feed.next();
            feed.publish(drive.now(), tick(next)).expect("published");
            self.round(STEP);
        }
    }

    pub(crate) fn trader(&self, number: usize) -> &TraderRole {
        &self.traders[number].0.1
    }

    pub(crate) fn updates(&self, number: usize) -> Vec<Update> {
        self.traders[number].1.borrow().clone()
    }

    /// The sequence number of the feed's next tick.
    pub(crate) fn next(&self) -> u64 {
        self.feed.as_ref().expect("a feed").1.next()
    }

    /// Runs until all traders are connected and receive.
    pub(crate) fn run_until_live(&mut self) {
        self.run_until("all are live", |world| world.traders.iter().all(|((_, trader), _)| trader.is_live()));
    }

    /// Runs until each trader has each tick, which the feed's heartbeats show.
    pub(crate) fn run_until_complete(&mut self) {
        self.run_until("all have all ticks", |world| {
            let next = world.next();
            world.traders.iter().all(|((_, trader), _)| trader.receiver().next() == next)
        });
    }
}

fn play<R: Role<SimDevice>>(drive: &mut Driver<SimDevice, NeverWaits>, role: &mut R, slow: bool) {
    role.poll(drive.now()).expect("the fast path");
    if slow {
        run_slow_path(drive, role).expect("the slow path");
    }
}

/// Checks that the updates of the last session contain each published tick once and in order, or a snapshot that
/// replaces it. Returns the number of ticks and of skipped ones.
pub(crate) fn check(updates: &[Update], session: u64, end: u64) -> (u64, u64) {
    let begin = updates.iter().rposition(|it| matches!(it, Update::Started { .. })).expect("a session");
    assert_eq!(updates[begin], Update::Started { session });
    let (mut next, mut ticks, mut skipped) = (1, 0, 0);
    for update in &updates[begin + 1..] {
        match *update {
            Update::Tick { tick: it, .. } => {
                assert_eq!(it, tick(next));
                (next, ticks) = (next + 1, ticks + 1);
            }
            Update::Skipped { from, to } => {
                assert!(from == next && to > from, "{from}..{to} where {next} is next");
                (next, skipped) = (to, skipped + to - from);
            }
            Update::Image(it) => assert!(it == tick(it.sequence) && it.sequence < next, "{it:?}"),
            Update::Started { .. } => unreachable!("it is the last"),
        }
    }
    assert_eq!(next, end);
    (ticks, skipped)
}
