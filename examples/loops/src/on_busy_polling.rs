//! A thread that never sleeps: it polls a market data socket and the CQ in each round, and the event channels in some.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};

use crate::Program;

/// The event channels are read once in this number of rounds, because a read is a system call per channel.
const ROUNDS: u32 = 64;

/// # Errors
/// The errors of the program and of the socket.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let market = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    market.set_nonblocking(true)?;
    let (to, stop) = (market.local_addr()?, AtomicBool::new(false));
    thread::scope(|scope| {
        let feed = scope.spawn(|| feed(to, &stop));
        let polled = poll(device, address, &market);
        stop.store(true, Ordering::Relaxed);
        polled.and(feed.join().map_err(|_| io::Error::other("the feed panicked"))?)
    })
}

fn poll<D: DataPath>(device: D, address: SocketAddr, market: &UdpSocket) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let (mut rounds, mut ticks, mut tick) = ((0..ROUNDS).cycle(), 0_u32, [0; 64]);
    while !program.turn(driver.drive(), &mut |_cq| Ok(()))? || ticks == 0 {
        while market.recv(&mut tick).is_ok() {
            ticks += 1;
        }
        if rounds.next() == Some(0) {
            let _clock = driver.drive().within(Duration::ZERO);
            driver.drive().readable_all();
            let _next_round = driver.drive().run(64);
        }
    }
    Ok(())
}

/// Sends ticks until it is stopped.
fn feed(to: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    while !stop.load(Ordering::Relaxed) {
        socket.send_to(b"tick", to)?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
