//! A replica whose process has no descriptor left serves those that wait, once it has.
//!
//! The only test of its process, because the limit is that of the process.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use mio::{Events, Poll};
use replog::clients::Clients;
use replog::links::{Links as _, Polled as _};
use replog::protocol::{Config, Machine};
use replog::tcp::Tcp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn who_waits_for_a_descriptor_is_accepted_without_another_one_that_connects() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut poll = Poll::new().expect("a poll");
    let listener = mio::net::TcpListener::bind(any).expect("a listener");
    let of_clients = listener.local_addr().expect("its address");
    let mut clients = Clients::new(listener, poll.registry()).expect("clients");
    let free = std::net::TcpListener::bind(any).and_then(|listener| listener.local_addr());
    let of_replicas = free.expect("an address");
    let mut tcp = Tcp::new(poll.registry(), 1, &[of_replicas; 2]).expect("a replica");
    let config = Config {
        id: 1,
        members: 2,
        election_timeout: LIMIT,
        heartbeat: LIMIT,
        region: 1 << 18,
        frames: 32,
        frame: 1 << 16,
        uncommitted: 1024,
        seed: 1,
    };
    let mut machine = Machine::new(config, Default::default(), Vec::new(), Duration::ZERO);

    let mut waiting = [of_clients, of_replicas].map(|addr| TcpStream::connect(addr).expect("a connection"));
    let before = getrlimit(Resource::Nofile);
    let highest = waiting[1].as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 1), ..before }).expect("a limit");
    let others: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let mut events = Events::with_capacity(8);
    for _ in &waiting {
        poll.poll(&mut events, Some(Duration::from_millis(100))).expect("events");
        for event in events.iter().filter(|event| !tcp.handle(event)) {
            clients.handle(event);
        }
    }
    for stream in &mut waiting {
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        stream.read_exact(&mut [0]).expect_err("there is no descriptor for it");
    }
    drop(others);
    setrlimit(Resource::Nofile, before).expect("the limit of before");

    tcp.turn().expect("a turn");
    clients.turn(&mut machine);
    // The greetings of both.
    for _ in 0..2 {
        tcp.turn().expect("a turn");
        clients.flush();
    }
    for stream in &mut waiting {
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        stream.read_exact(&mut [0; 8]).expect("a greeting");
    }
}
