//! A feed, traders and an exchange as programs of a world of the simulator.

use std::cell::{Ref, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use cmid_epoll::proto::{Drive, Limits, Time};
use cmid_epoll::sim::{self, Config, Fabric, Host, SimDevice, Turn};
use ticker::Error;
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::reactor::{Role, run_slow_path};
use ticker::receiver::Update;
use ticker::trader::{Trader, TraderConfig};
use ticker::wire::{INSTRUMENTS, Order, Tick};

/// The time between two ticks.
const STEP: Duration = Duration::from_micros(50);

/// The time between two runs of the slow path, and between two looks of a test.
const SLOW: Duration = Duration::from_millis(1);

const GROUP: [u8; 4] = [239, 1, 1, 1];

pub(crate) type On<R> = (Drive<SimDevice>, R);

/// The programs of a host; the tests look into them.
pub(crate) type Roles<R> = Rc<RefCell<Vec<On<R>>>>;

/// The updates that are passed on to the trader.
pub(crate) type Updates = Rc<RefCell<Vec<Update>>>;

type ExchangeRole = Exchange<SimDevice, Box<dyn FnMut(&Order)>>;

pub(crate) type TraderRole = Trader<SimDevice, Box<dyn FnMut(&Update)>>;

pub(crate) struct World {
    world: sim::World,
    pub(crate) fabric: Fabric,
    pub(crate) feed_host: Host,
    pub(crate) trader_host: Host,
    pub(crate) exchange_host: Host,
    /// At most one.
    pub(crate) feed: Roles<Publisher<SimDevice>>,
    pub(crate) traders: Roles<TraderRole>,
    updates: Vec<Updates>,
    pub(crate) exchange: Roles<ExchangeRole>,
    pub(crate) orders: Rc<RefCell<Vec<Order>>>,
    pub(crate) window: usize,
    /// The address from which traders request replays.
    pub(crate) replays: SocketAddr,
}

fn address(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

/// Returns the tick with a sequence number, which determines its fields.
pub(crate) fn tick(sequence: u64) -> Tick {
    let instrument = (sequence % INSTRUMENTS as u64) as u16;
    Tick { sequence, instrument, quantity: sequence as u32, price: 10_000 + sequence % 100 }
}

/// Adds a host that runs these programs.
fn host<R: Role<SimDevice> + 'static>(world: &mut sim::World, name: &str) -> (Host, Roles<R>) {
    let roles = Roles::default();
    let of_host = Rc::clone(&roles);
    let host = world.host(name, move |_| {
        let (roles, mut slow): (Roles<R>, Time) = (Rc::clone(&of_host), Time::ZERO);
        move |now: Time| {
            let is_slow = slow <= now;
            for (drive, role) in roles.borrow_mut().iter_mut() {
                drive.set_now(now);
                role.poll(now).expect("the fast path");
                if is_slow {
                    run_slow_path(drive, role).expect("the slow path");
                }
            }
            if is_slow {
                slow = now.after(SLOW);
            }
            Turn::Wait(Some(slow))
        }
    });
    (host, roles)
}

impl World {
    pub(crate) fn new(seed: u64, loss: f64) -> Self {
        let mut world = sim::World::new(&Config { seed, loss, ..Config::default() });
        // In the order of their addresses.
        let (feed_host, feed) = host(&mut world, "feed");
        let (trader_host, traders) = host(&mut world, "trader");
        let (exchange_host, exchange) = host::<ExchangeRole>(&mut world, "exchange");
        let orders = Rc::new(RefCell::new(Vec::new()));
        let mut drive = Drive::new(exchange_host.device(), Limits::default());
        let log = Rc::clone(&orders);
        let on_order: Box<dyn FnMut(&Order)> = Box::new(move |order| log.borrow_mut().push(*order));
        let role = Exchange::start(&mut drive, SocketAddr::new(address(3), 7400), on_order).expect("an exchange");
        exchange.borrow_mut().push((drive, role));
        World {
            fabric: world.fabric().clone(),
            world,
            feed_host,
            trader_host,
            exchange_host,
            feed,
            traders,
            updates: Vec::new(),
            exchange,
            orders,
            window: 256,
            replays: SocketAddr::new(address(1), 7300),
        }
    }

    pub(crate) fn start_feed(&mut self, session: u64) {
        let feed = self.try_start_feed(session).expect("a feed");
        self.feed.borrow_mut().push(feed);
    }

    pub(crate) fn try_start_feed(&self, session: u64) -> Result<On<Publisher<SimDevice>>, Error> {
        let mut drive = Drive::new(self.feed_host.device(), Limits::default());
        let listen = SocketAddr::new(address(1), 7300);
        let config = PublisherConfig { listen, group: GROUP.into(), session, kept: 4096 };
        let feed = Publisher::start(&mut drive, &config)?;
        Ok((drive, feed))
    }

    pub(crate) fn start_trader(&mut self) {
        let mut drive = Drive::new(self.trader_host.device(), Limits::default());
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
        self.traders.borrow_mut().push((drive, trader));
        self.updates.push(updates);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.world.run_for(span);
    }

    /// Runs until a condition holds; fails after a minute of virtual time.
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let end = self.fabric.now().after(Duration::from_secs(60));
        while !holds(self) {
            assert!(self.fabric.now() < end, "not within a minute: {what}: {:?}", self.trader(0).counts());
            self.run_for(SLOW);
        }
    }

    pub(crate) fn publish(&mut self, count: u64) {
        for _ in 0..count {
            {
                let mut feeds = self.feed.borrow_mut();
                let (drive, feed) = feeds.first_mut().expect("a feed");
                drive.set_now(self.fabric.now());
                let next = feed.next();
                feed.publish(drive.now(), tick(next)).expect("published");
            }
            self.run_for(STEP);
        }
    }

    pub(crate) fn trader(&self, number: usize) -> Ref<'_, TraderRole> {
        Ref::map(self.traders.borrow(), |traders| &traders[number].1)
    }

    pub(crate) fn updates(&self, number: usize) -> Vec<Update> {
        self.updates[number].borrow().clone()
    }

    /// The sequence number of the feed's next tick.
    pub(crate) fn next(&self) -> u64 {
        self.feed.borrow().first().expect("a feed").1.next()
    }

    /// Runs until all traders are connected and receive.
    pub(crate) fn run_until_live(&mut self) {
        self.run_until("all are live", |world| world.traders.borrow().iter().all(|(_, trader)| trader.is_live()));
    }

    /// Runs until each trader has each tick, which the feed's heartbeats show.
    pub(crate) fn run_until_complete(&mut self) {
        self.run_until("all have all ticks", |world| {
            let next = world.next();
            world.traders.borrow().iter().all(|(_, trader)| trader.receiver().next() == next)
        });
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
