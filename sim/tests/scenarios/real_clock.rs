//! The fabric under the system's clock. The tests wait with poll(2), as a driver does.

use std::time::{Duration, Instant};

use cmid_proto::datapath::{CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, SendWr};
use cmid_proto::{ChannelKey, CmEvent, Pollable};
use cmid_sim::{Access, Clock, Completion, Config, Fabric};
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
fn two_threads_connect_and_talk() {
    let fabric = real();
    let (one, two) = (fabric.host(&[ip("10.0.0.1")]), fabric.host(&[ip("10.0.0.2")]));
    let mut server = Side::new(&two);
    let cs = server.channel();
    let listener = server.listener(cs, "10.0.0.2:7");
    let serving = std::thread::spawn(move || {
        let request = wait(&mut server, cs);
        assert_eq!((request.kind, request.listener), (CmEvent::ConnectRequest, Some(listener)));
        let s = request.id;
        let mut qp = server.qp(s);
        let mr = qp.pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap();
        qp.qp.post_recv(1, mr.sge(0..8)).unwrap();
        qp.recv_cq.arm().unwrap();
        server.accept(s, cmid_proto::ConnParam::default(), &[]).unwrap();
        assert_eq!(wait(&mut server, cs).kind, CmEvent::Established);
        let fd = qp.recv_cq.fd();
        let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&PATIENCE)).unwrap();
        assert_eq!(ready, 1, "no completion in time");
        assert_eq!(qp.recv_cq.take_notifications(), Ok(1));
        let mut completions = [Completion::default(); 2];
        assert_eq!(qp.recv_cq.poll(&mut completions), Ok(1));
        assert_eq!(wait(&mut server, cs).kind, CmEvent::Disconnected);
        server.disconnect(s).unwrap();
        assert_eq!(wait(&mut server, cs).kind, CmEvent::TimewaitExit);
        mr.deregister().unwrap().buffer
    });
    let mut client = Side::new(&one);
    let cc = client.channel();
    let c = client.id(cc);
    client.resolve_addr(c, None, "10.0.0.2:7", 2000).unwrap();
    assert_eq!(wait(&mut client, cc).kind, CmEvent::AddrResolved);
    client.resolve_route(c).unwrap();
    assert_eq!(wait(&mut client, cc).kind, CmEvent::RouteResolved);
    let mut qp = client.qp(c);
    let mr = qp.pd.register(*b"good day", Access::empty()).unwrap();
    client.connect(c, cmid_proto::ConnParam::default(), &[]).unwrap();
    assert_eq!(wait(&mut client, cc).kind, CmEvent::Established);
    qp.qp.post_send(SendWr::send(1, mr.sge(0..8))).unwrap();
    let mut completions = [Completion::default(); 2];
    let start = Instant::now();
    while qp.send_cq.poll(&mut completions).unwrap() == 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
    client.disconnect(c).unwrap();
    assert_eq!(wait(&mut client, cc).kind, CmEvent::Disconnected);
    assert_eq!(serving.join().unwrap(), *b"good day");
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
