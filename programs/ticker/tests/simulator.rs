//! The three roles on the simulated fabric: loss, restarts, late joiners, links that go down.

mod world;

use std::net::IpAddr;
use std::time::Duration;

use cmid_epoll::proto::handshake::Incoming;
use cmid_epoll::proto::{Acks, Drive, Limits, PortSpace};
use ticker::Error;
use ticker::exchange::Exchange;
use ticker::link::Link;
use ticker::port::BURST;
use ticker::reactor::{Role as _, run_slow_path};
use ticker::receiver::Update;
use ticker::wire::{Entry, Order, Service};
use world::{World, check};

/// A feed, a trader and an exchange that are connected.
fn live(seed: u64, loss: f64) -> World {
    live_with_window(seed, loss, 256)
}

fn live_with_window(seed: u64, loss: f64, window: usize) -> World {
    let mut world = World::new(seed, loss);
    world.window = window;
    world.start_feed(1);
    world.start_trader();
    world.run_until_live();
    world
}

#[test]
fn each_tick_causes_an_order_that_is_accepted() {
    let mut world = live(1, 0.0);
    world.publish(500);
    world.run_until("all orders are answered", |world| world.trader(0).orders().accepted == 500);
    assert_eq!(check(&world.updates(0), 1, 501), (500, 0));
    let orders = world.orders.borrow();
    assert!(orders.iter().map(|order| order.tick).eq(1..=500));
    let counts = world.trader(0).counts();
    assert_eq!((counts.requests, counts.duplicates, world.trader(0).orders().unknown), (0, 0, 0));
    assert_eq!(world.exchange.borrow()[0].1.counts(), (500, 0));
}

/// The loss concerns datagrams and the connection manager's messages. The data of connections is not lost.
#[test]
fn no_gap_is_undetected() {
    for (loss, seeds) in [(0.0, 5), (0.01, 40), (0.2, 40)] {
        let mut replayed = 0;
        for seed in 0..seeds {
            // If the last message of a handshake is lost, the feed answers only after seconds, so the window must hold
            // all ticks.
            let mut world = live_with_window(seed, loss, 512);
            world.publish(300);
            world.run_until_complete();
            assert_eq!(check(&world.updates(0), 1, 301), (300, 0), "seed {seed}, loss {loss}");
            replayed += world.trader(0).counts().replayed;
        }
        let lost = f64::from(300 * seeds as u32) * loss;
        let (least, most) = ((lost * 0.7) as u64, (lost * 1.3) as u64);
        assert!((least..=most).contains(&replayed), "{replayed} of {lost} lost ticks replayed");
    }
}

#[test]
fn the_loss_of_the_last_tick_is_detected() {
    let mut world = live(3, 0.0);
    world.publish(10);
    world.fabric.set_loss(1.0);
    world.publish(1);
    world.fabric.set_loss(0.0);
    assert_eq!(world.trader(0).receiver().next(), 11);
    world.run_until_complete();
    assert_eq!(check(&world.updates(0), 1, 12), (11, 0));
}

#[test]
fn a_late_joiner_gets_what_it_has_missed() {
    for (missed, skipped) in [(100, 0), (5000, 5000)] {
        let mut world = live(4, 0.05);
        world.publish(missed);
        world.start_trader();
        world.run_until("it has joined", |world| world.trader(1).is_live() && !world.trader(1).receiver().has_gap());
        world.publish(200);
        world.run_until_complete();
        assert_eq!(check(&world.updates(0), 1, world.next()), (missed + 200, 0));
        assert_eq!(check(&world.updates(1), 1, world.next()), (missed + 200 - skipped, skipped));
        let images = world.updates(1).iter().filter(|it| matches!(it, Update::Image(_))).count();
        assert_eq!(images, if skipped == 0 { 0 } else { 16 });
    }
}

#[test]
fn a_restarted_feed_begins_a_session() {
    for seed in 0..20 {
        let mut world = live(seed, 0.1);
        world.publish(50);
        world.feed.borrow_mut().clear();
        world.run_for(Duration::from_secs(2));
        assert!(!world.trader(0).is_live());
        world.start_feed(2);
        // Before the trader has connected again.
        world.publish(30);
        world.run_until_live();
        world.publish(50);
        world.run_until_complete();
        assert_eq!(check(&world.updates(0), 2, 81), (80, 0), "seed {seed}");
        assert_eq!(world.trader(0).counts().sessions, 2, "seed {seed}");
        assert!(world.trader(0).connections().0 >= 2, "seed {seed}");
    }
}

#[test]
fn a_lost_link_stops_orders_and_its_ticks_are_made_up_for() {
    for seed in 0..10 {
        let mut world = live(seed, 0.05);
        world.publish(50);
        world.trader_host.set_link(false);
        world.run_for(Duration::from_secs(2));
        assert!(!world.trader(0).is_live());
        let sent = world.trader(0).orders().sent;
        world.publish(50);
        world.trader_host.set_link(true);
        world.run_until_live();
        assert_eq!(world.trader(0).orders().sent, sent, "seed {seed}: an order while the prices were old");
        world.publish(50);
        world.run_until_complete();
        // If a connection was half open, all of them were made up for, and none was new.
        world.publish(20);
        world.run_until_complete();
        assert_eq!(check(&world.updates(0), 1, 171), (170, 0), "seed {seed}");
        assert!(world.trader(0).orders().sent > sent, "seed {seed}");
    }
}

#[test]
fn a_link_that_is_lost_for_long_is_replaced_by_new_connections() {
    let mut world = live(7, 0.0);
    world.publish(50);
    world.trader_host.set_link(false);
    world.run_for(Duration::from_secs(8));
    // The feed and the exchange have dropped the silent client.
    assert_eq!(world.feed.borrow()[0].1.receivers(), 0);
    world.publish(50);
    world.trader_host.set_link(true);
    world.run_until_live();
    world.publish(50);
    world.run_until_complete();
    assert_eq!(check(&world.updates(0), 1, 151), (150, 0));
    assert_eq!(world.trader(0).connections(), (2, 2));
}

#[test]
fn a_trader_that_starts_first_waits_for_the_feed() {
    let mut world = World::new(8, 0.0);
    world.start_trader();
    world.run_for(Duration::from_secs(3));
    let failure = world.trader(0).first_failure().map(|it| it.to_string());
    let expected =
        "no connection to 10.0.0.1:7300: nothing listens there: start `ticker feed` first, or check the port";
    assert_eq!(failure.as_deref(), Some(expected));
    world.start_feed(1);
    world.run_until_live();
    assert_eq!(world.trader(0).first_failure(), None);
    world.publish(10);
    world.run_until_complete();
}

#[test]
fn several_traders_receive_the_same() {
    let mut world = live(9, 0.1);
    (0..3).for_each(|_| world.start_trader());
    world.run_until_live();
    world.publish(200);
    world.run_until_complete();
    for trader in 0..4 {
        assert_eq!(check(&world.updates(trader), 1, 201), (200, 0));
    }
}

#[test]
fn a_client_that_sends_much_does_not_hold_a_round() {
    let world = World::new(15, 0.0);
    let at = ([10, 0, 0, 1], 7500).into();
    let [mut of_exchange, mut of_link] =
        [&world.feed_host, &world.exchange_host].map(|host| Drive::new(host.device(), Limits::default()));
    let mut exchange = Exchange::start(&mut of_exchange, at, |_| ()).expect("an exchange");
    let mut link = Link::new(&mut of_link, Service::Orders, at).expect("a link");
    while exchange.traders() == 0 || !link.is_up() {
        world.fabric.advance_by(Duration::from_millis(1));
        [&mut of_exchange, &mut of_link].into_iter().for_each(|drive| drive.set_now(world.fabric.now()));
        run_slow_path(&mut of_exchange, &mut exchange).expect("the slow path");
        of_link.readable_all();
        let _rest = of_link.run(8);
        link.take_events(&mut of_link);
        link.handle_timeout(&mut of_link);
    }
    for number in 1..=BURST as u64 + 1 {
        let order = Order { number, instrument: 0, quantity: 1, price: 1, tick: 0 };
        assert!(link.send(&Entry::New(order).encode()));
    }
    world.fabric.advance_by(Duration::from_millis(1));
    for accepted in [BURST as u64, BURST as u64 + 1] {
        exchange.poll(of_exchange.now()).expect("a round");
        assert_eq!(exchange.counts().0, accepted);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let mut world = World::new(10, 0.0);
    world.start_feed(1);
    let error = world.try_start_feed(2).map(|_| ()).map_err(|error| error.to_string());
    let expected = "10.0.0.1:7300 is in use: end the program that listens there, or choose another port";
    assert_eq!(error.map_err(|error| error == expected), Err(true));
}

#[test]
fn the_port_of_another_program_is_named() {
    let mut world = World::new(11, 0.0);
    world.start_feed(1);
    world.replays = ([10, 0, 0, 3], 7400).into();
    world.start_trader();
    world.run_for(Duration::from_secs(1));
    let failure = world.trader(0).first_failure().map(|it| it.to_string());
    let expected = "no connection to 10.0.0.3:7400: another program listens there: use the port of `ticker feed`";
    assert_eq!(failure.as_deref(), Some(expected));
    assert!(!world.trader(0).is_live());
}

#[test]
fn a_feed_of_another_version_is_named() {
    let mut world = World::new(12, 0.0);
    let mut feed = Drive::new(world.feed_host.device(), Limits::default());
    let channel = feed.open_channel(Acks::OnDelivery).expect("a channel");
    let listener = feed.create_id(Some(channel), PortSpace::Tcp).expect("an id");
    feed.bind(listener, world.replays).expect("bind");
    feed.listen(listener, 1).expect("listen");
    world.start_trader();
    let mut hello = Service::Replay.hello();
    hello[6] = 9;
    world.run_until("it is rejected", |world| {
        feed.set_now(world.fabric.now());
        feed.readable_all();
        let _rest = feed.run(8);
        while let Some(event) = feed.next_event(channel) {
            if let Ok(incoming) = Incoming::new(&mut feed, event) {
                incoming.reject(&mut feed, &hello).expect("reject");
            }
        }
        world.trader(0).first_failure().is_some()
    });
    let failure = world.trader(0).first_failure().map(|it| it.to_string());
    let expected = "no connection to 10.0.0.1:7300: the peer has protocol version 9, this program 1: run the same version \
                    of ticker everywhere";
    assert_eq!(failure.as_deref(), Some(expected));
}

#[test]
fn an_address_without_an_rdma_device_is_named() {
    let world = World::new(13, 0.0);
    let mut drive = Drive::new(world.feed_host.device(), Limits::default());
    // An address of another host, and one of this host that no RDMA device has.
    let plain = IpAddr::from([10, 0, 9, 1]);
    world.feed_host.add_plain_addr(plain);
    for (address, errno) in [(IpAddr::from([10, 0, 0, 2]), "EADDRNOTAVAIL"), (plain, "ENODEV")] {
        let error = Exchange::start(&mut drive, (address, 7400).into(), |_| ()).map(|_| ()).expect_err("an error");
        let expected = format!(
            "{address} is not an address of an RDMA device here ({errno}): choose one that `rdma link` and `ip address` show"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_removed_device_is_named() {
    let world = live(14, 0.0);
    world.feed_host.remove_device();
    world.exchange_host.remove_device();
    let now = world.fabric.now();
    let mut feeds = world.feed.borrow_mut();
    let (drive, feed) = feeds.first_mut().expect("a feed");
    drive.set_now(now);
    let error = run_slow_path(drive, feed).expect_err("the feed ends");
    assert_eq!(error.to_string(), "the RDMA device was removed: start again when it is back");
    let mut exchanges = world.exchange.borrow_mut();
    let (drive, exchange) = exchanges.first_mut().expect("an exchange");
    drive.set_now(now);
    assert_eq!(run_slow_path(drive, exchange).expect_err("the exchange ends"), Error::DeviceRemoved);
}
