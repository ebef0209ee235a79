//! The fabric under the system's clock. The tests wait with poll(2), as a driver does.

use std::time::{Duration, Instant};

use cmid_proto::{ChannelKey, CmEvent, Pollable};
use cmid_sim::{Clock, Config, Fabric};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::common::{Seen, Side, ip};

/// The limit of a wait, more than a hundred times the duration of a test.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

fn wait(side: &mut Side, on: ChannelKey) -> Seen {
    loop {
        if let Some(seen) = side.fetch(on) {
            return seen;
        }
        let fd = side.device.fd(on).unwrap();
        let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&PATIENCE)).unwrap();
        assert_eq!(ready, 1, "nothing came in time");
    }
}

fn real() -> Fabric {
    Fabric::new(Config { clock: Clock::Real, latency: Duration::from_micros(200), ..Config::default() })
}

#[test]
fn an_earlier_timer_wakes_the_clock() {
    let fabric = real();
    let host = fabric.host(&[ip("10.0.0.1")]);
    let mut side = Side::new(&host);
    let on = side.channel();
    let (slow, fast) = (side.id(on), side.id(on));
    side.resolve_addr(slow, None, "10.0.0.77:7", 60_000).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    side.resolve_addr(fast, None, "10.0.0.77:7", 50).unwrap();
    wait(&mut side, on).is(fast, CmEvent::AddrError, -110);
    let waited = start.elapsed();
    assert!((Duration::from_millis(50)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
    assert!(fabric.now().0 >= 70_000_000);
}
