//! Feed, trader and exchange do not allocate after their start, even while gaps are filled.
//!
//! The only test of its process, because the allocator counts for all threads.

mod quiet;

use std::time::Duration;

use cmid_epoll::proto::{Drive, Limits};
use cmid_epoll::sim::{Config, Fabric};
use quiet::{Quiet, advance, allocations};
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::quotes::Quotes;
use ticker::reactor::{Role, run_slow_path};
use ticker::trader::{Trader, TraderConfig};

/// Ticks before the count, and in it.
const WARM_UP: u64 = 1000;
const COUNTED: u64 = 5000;

/// A round of a program, on both paths.
fn round(fabric: &Fabric, drive: &mut Drive<Quiet>, role: &mut impl Role<Quiet>) {
    drive.set_now(fabric.now());
    role.poll(drive.now()).expect("the fast path");
    run_slow_path(drive, role).expect("the slow path");
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let fabric = Fabric::new(Config { seed: 3, ..Config::default() });
    let (venue, group) = (fabric.host(&[[10, 0, 0, 1].into()]), [239, 1, 1, 1].into());
    let local = fabric.host(&[[10, 0, 0, 2].into()]);
    let (listen, orders) = (([10, 0, 0, 1], 7300).into(), ([10, 0, 0, 1], 7400).into());
    let [mut of_feed, mut of_exchange] = [0, 1].map(|_| Drive::new(Quiet(venue.device()), Limits::default()));
    let mut of_trader = Drive::new(Quiet(local.device()), Limits::default());

    let config = PublisherConfig { listen, group, session: 1, kept: 4096 };
    let mut feed = Publisher::start(&mut of_feed, &config).expect("a feed");
    let mut exchange = Exchange::start(&mut of_exchange, orders, |_| ()).expect("an exchange");
    let config =
        TraderConfig { local: [10, 0, 0, 2].into(), group, feed: listen, exchange: orders, window: 256, edge: 0 };
    let mut trader = Trader::start(&mut of_trader, &config, |_| ()).expect("a trader");

    let mut quotes = Quotes::new(1);
    let (mut before, mut published) = (allocations(), 0);
    // Checks the measurement itself: an allocation is counted.
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(allocations(), before + 1);
    while published < WARM_UP + COUNTED || trader.receiver().next() <= published {
        if published == WARM_UP {
            before = allocations();
        }
        advance(&fabric, Duration::from_micros(50));
        if trader.is_live() && published < WARM_UP + COUNTED {
            if published == 0 {
                fabric.set_loss(0.05);
            }
            feed.publish(of_feed.now(), quotes.next_tick()).expect("published");
            published += 1;
        }
        round(&fabric, &mut of_feed, &mut feed);
        round(&fabric, &mut of_trader, &mut trader);
        round(&fabric, &mut of_exchange, &mut exchange);
    }
    let allocated = allocations() - before;
    let counts = trader.counts();
    assert!(counts.ticks == WARM_UP + COUNTED && counts.replayed > COUNTED / 40, "{counts:?}");
    assert!(trader.orders().accepted > COUNTED / 2, "{:?}", trader.orders());
    assert_eq!(allocated, 0, "allocations in {COUNTED} ticks");
}
