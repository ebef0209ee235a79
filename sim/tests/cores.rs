//! Two cores in one process, connected over the fabric, in virtual time: minutes pass in no time at all.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, EventKind, IdKey, Limits, PortSpace, Time, Verb};
use cmid_sim::{Config, Fabric, SimDevice};

/// Two cores, each on a host of its own, with a channel each.
struct Pair {
    fabric: Fabric,
    sides: [Drive<SimDevice>; 2],
    channels: [ChannelKey; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(Config::default());
        let mut sides = ["10.0.0.1", "10.0.0.2"]
            .map(|address| Drive::new(fabric.host(&[address.parse().unwrap()]).device(), Limits::SINGLE));
        let channels = sides.each_mut().map(|drive| drive.open_channel(Acks::OnDelivery).unwrap());
        Pair { fabric, sides, channels }
    }

    /// Lets the cores and the fabric run until a core has an event; time jumps to whatever is due next.
    fn next(&mut self) -> (usize, Event) {
        // A bound, so that a livelock is a failure and not a hang.
        for _ in 0..1000 {
            for (at, drive) in self.sides.iter_mut().enumerate() {
                drive.set_now(self.fabric.now());
                drive.readable(self.channels[at]);
                let _ = drive.turn(100);
                drive.core().check();
                if let Some(event) = drive.next_event(self.channels[at]) {
                    return (at, event);
                }
            }
            let due = self.sides.iter().filter_map(Drive::next_timeout).chain(self.fabric.next_due()).min();
            self.fabric.advance_to(due.expect("nothing will ever happen again"));
        }
        panic!("no event in 1000 steps");
    }

    fn expect(&mut self, at: usize, kind: CmEvent, status: i32) -> IdKey {
        let (seen, event) = self.next();
        assert_eq!((seen, event.kind, event.status), (at, EventKind::Cm(kind), status));
        event.id
    }

    /// A client id that is ready to connect.
    fn resolved(&mut self) -> IdKey {
        let there: SocketAddr = "10.0.0.2:7471".parse().unwrap();
        let id = self.sides[CLIENT].create_id(Some(self.channels[CLIENT]), PortSpace::Tcp).unwrap();
        self.sides[CLIENT].resolve_addr(id, None, there, Time::NEVER).unwrap();
        self.expect(CLIENT, CmEvent::AddrResolved, 0);
        self.sides[CLIENT].resolve_route(id, Time::NEVER).unwrap();
        self.expect(CLIENT, CmEvent::RouteResolved, 0);
        id
    }

    fn listen(&mut self) {
        let id = self.sides[SERVER].create_id(Some(self.channels[SERVER]), PortSpace::Tcp).unwrap();
        self.sides[SERVER].bind(id, "10.0.0.2:7471".parse().unwrap()).unwrap();
        self.sides[SERVER].listen(id, 4).unwrap();
    }
}

fn param(qp_num: u32) -> ConnParam {
    ConnParam { qp_num, ..ConnParam::default() }
}

#[test]
fn two_cores_connect_and_part() {
    let mut pair = Pair::new();
    pair.listen();
    let client = pair.resolved();
    pair.sides[CLIENT].connect(client, param(1), b"hello", Time::NEVER).unwrap();
    let server = pair.expect(SERVER, CmEvent::ConnectRequest, 0);
    pair.sides[SERVER].accept(server, param(2), &[], Time::NEVER).unwrap();
    pair.expect(CLIENT, CmEvent::ConnectResponse, 0);
    pair.sides[CLIENT].establish(client).unwrap();
    pair.expect(SERVER, CmEvent::Established, 0);
    pair.sides[CLIENT].disconnect(client, Time::NEVER).unwrap();
    pair.expect(SERVER, CmEvent::Disconnected, 0);
    pair.sides[SERVER].disconnect(server, Time::NEVER).unwrap();
    pair.expect(CLIENT, CmEvent::Disconnected, 0);
    let before = pair.fabric.now();
    let (_, event) = pair.next();
    assert_eq!(event.cm(), Some(CmEvent::TimewaitExit));
    let waited = pair.fabric.now().since(before);
    assert!(waited >= Duration::from_millis(500) && waited < Duration::from_millis(600), "{waited:?}");
}

#[test]
fn a_peer_that_does_not_answer_a_disconnect_is_given_up_after_a_minute_or_at_the_deadline() {
    for limit in [None, Some(Duration::from_secs(3))] {
        let mut pair = Pair::new();
        pair.listen();
        let client = pair.resolved();
        pair.sides[CLIENT].connect(client, param(1), &[], Time::NEVER).unwrap();
        let server = pair.expect(SERVER, CmEvent::ConnectRequest, 0);
        pair.sides[SERVER].accept(server, param(2), &[], Time::NEVER).unwrap();
        pair.expect(CLIENT, CmEvent::ConnectResponse, 0);
        pair.sides[CLIENT].establish(client).unwrap();
        pair.expect(SERVER, CmEvent::Established, 0);
        let before = pair.fabric.now();
        let deadline = limit.map_or(Time::NEVER, |limit| before.after(limit));
        pair.sides[CLIENT].disconnect(client, deadline).unwrap();
        pair.expect(SERVER, CmEvent::Disconnected, 0);
        let (at, event) = pair.next();
        let waited = pair.fabric.now().since(before);
        assert_eq!(at, CLIENT);
        match limit {
            // Row 32: 16 transmissions of 4.6 s.
            None => {
                assert_eq!((event.cm(), event.status), (Some(CmEvent::Disconnected), -110));
                assert!(waited > Duration::from_secs(70) && waited < Duration::from_secs(85), "{waited:?}");
            }
            Some(limit) => {
                assert_eq!((event.kind, waited), (EventKind::DeadlinePassed(Verb::Disconnect), limit));
            }
        }
    }
}
