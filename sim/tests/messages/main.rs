//! Messages over a QP on the simulator. The QPs never retry a send that meets no receive (`rnr_retry_count` 0), so a
//! packet without a receive would end the connection.
#![allow(clippy::unwrap_used, reason = "a test")]

mod side;

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::datapath::WcStatus;
use cmid_proto::messages::{HEADER, MessagesConfig, MessagesError};
use cmid_sim::{Config, Fabric, Host};

use side::{End, Side};

const SECOND: Duration = Duration::from_secs(1);

/// The limit of each handshake and each close.
const PATIENCE: Duration = Duration::from_secs(10);

const CONFIG: MessagesConfig =
    MessagesConfig { window: 8, packet: 256, keep_alive: Duration::from_millis(300), silence: Duration::from_secs(1) };

fn addr(at: usize) -> SocketAddr {
    ["10.0.0.1:7471", "10.0.0.2:7471"][at].parse().unwrap()
}

/// A client and a server that echoes, each on a host.
struct World {
    fabric: Fabric,
    hosts: [Host; 2],
    sides: [Option<Side>; 2],
}

impl World {
    /// Both are connected.
    fn new(configs: [MessagesConfig; 2]) -> Self {
        let fabric = Fabric::new(Config::default());
        let hosts = [0, 1].map(|at| fabric.host(&[addr(at).ip()]));
        let now = fabric.now();
        let server = Side::server(&hosts[1], now, configs[1]);
        let client = Side::client(&hosts[0], now, configs[0]);
        let mut world = World { fabric, hosts, sides: [Some(client), Some(server)] };
        world.until(|world| [0, 1].iter().all(|&at| world.side(at).connection.is_some()));
        world
    }

    fn side(&mut self, at: usize) -> &mut Side {
        self.sides[at].as_mut().unwrap()
    }

    /// Runs until the condition holds.
    #[track_caller]
    fn until(&mut self, mut reached: impl FnMut(&mut Self) -> bool) {
        for _ in 0..200_000 {
            if reached(self) {
                return;
            }
            let now = self.fabric.now();
            let is_busy = self.sides.iter_mut().flatten().fold(false, |busy, side| side.turn(now) | busy);
            if !is_busy {
                let due = self.sides.iter().flatten().filter_map(Side::next).chain(self.fabric.next_due()).min();
                self.fabric.advance_to(due.expect("nothing will ever happen again"));
            }
        }
        panic!("not reached at {}", self.fabric.now());
    }

    fn run(&mut self, span: Duration) {
        let end = self.fabric.now().after(span);
        self.until(|world| world.fabric.now() >= end);
    }

    /// Nothing is left of the sides.
    fn end(mut self) {
        self.until(|world| world.sides.iter().flatten().all(|side| side.drive.core().ids().count() == 0));
        let counters = self.fabric.counters();
        assert_eq!((counters.freed_in_use, counters.copied_to_freed, counters.overruns), (0, 0, 0));
    }
}

/// The message with this number, of any length up to the longest.
fn message(number: usize) -> Vec<u8> {
    vec![number as u8; number * 37 % (CONFIG.packet as usize - HEADER + 1)]
}

#[test]
fn all_messages_arrive_in_order_and_both_sides_say_goodbye() {
    let least = MessagesConfig { window: 4, ..CONFIG };
    let many = MessagesConfig { window: 200, ..CONFIG };
    for configs in [[CONFIG; 2], [least; 2], [least, many], [many, least]] {
        // The server posts its receives in groups: of each message, and of all that messages may take.
        for holds in [1, 2, usize::from(configs[1].window) - 2] {
            let mut world = World::new(configs);
            world.side(1).holds = holds;
            let sent: Vec<_> = (0..300).map(message).collect();
            world.side(0).outbox.extend(sent.iter().cloned());
            world.until(|world| world.side(0).outbox.is_empty());
            world.side(1).holds = 1;
            world.until(|world| world.side(0).received.len() == sent.len());
            world.side(0).closes = true;
            world.until(|world| world.side(0).end.is_some() && world.side(1).end.is_some());
            // The first one to disconnect may be seen before the last completion is polled.
            let ends = [0, 1].map(|at| world.side(at).end.unwrap());
            assert!(ends.contains(&End::Goodbye), "{ends:?}");
            assert_eq!(world.side(1).received, sent);
            assert_eq!(world.side(0).received, sent);
            world.end();
        }
    }
}

#[test]
fn messages_that_no_receive_has_room_for_are_read_in_order_with_the_others_and_their_memory_is_free_again() {
    let mut world = World::new([CONFIG; 2]);
    let sent: Vec<_> = (0..60).map(|number: usize| vec![number as u8; [20, 100_000, 300, 0][number % 4]]).collect();
    // Those that are read arrive later than short ones: the order is that of each kind.
    let of_kind = |messages: &[Vec<u8>], is_large: bool| -> Vec<_> {
        messages.iter().filter(|it| (it.len() > CONFIG.packet as usize) == is_large).cloned().collect()
    };
    world.side(0).outbox.extend(sent.iter().cloned());
    world.until(|world| world.side(0).received.len() == sent.len());
    for is_large in [false, true] {
        assert_eq!(of_kind(&world.side(1).received, is_large), of_kind(&sent, is_large));
        assert_eq!(of_kind(&world.side(0).received, is_large), of_kind(&sent, is_large));
    }
    world.side(0).closes = true;
    world.until(|world| world.side(0).end.is_some() && world.side(1).end.is_some());
    world.end();
}

#[test]
fn a_peer_that_is_killed_while_it_reads_is_noticed() {
    let mut world = World::new([CONFIG; 2]);
    world.side(0).outbox.push_back(vec![7; 1 << 20]);
    world.until(|world| world.side(0).outbox.is_empty());
    world.sides[1] = None;
    world.until(|world| world.side(0).end.is_some());
    assert!(matches!(world.side(0).end, Some(End::Event(_) | End::Completion(_))), "{:?}", world.side(0).end);
}

/// What the credits prevent.
#[test]
fn a_packet_that_meets_no_receive_ends_the_connection() {
    let mut world = World::new([CONFIG; 2]);
    let (_, link, messages) = world.side(0).connection.as_mut().unwrap();
    let header = messages.send(0, Time::ZERO).unwrap();
    // The server polls nothing while these arrive: it has 8 receives.
    (0..9).for_each(|_| link.send(&header, &[]));
    world.fabric.advance_by(SECOND);
    world.until(|world| world.side(0).end.is_some());
    assert_eq!(world.side(0).end, Some(End::Completion(WcStatus::RNR_RETRY_EXC_ERR)));
}

#[test]
fn an_idle_connection_stays() {
    let mut world = World::new([CONFIG; 2]);
    world.run(SECOND * 600);
    world.side(0).outbox.push_back(b"still there".to_vec());
    world.until(|world| world.side(0).received.len() == 1);
    world.side(0).closes = true;
    world.until(|world| world.side(0).end.is_some() && world.side(1).end.is_some());
    world.end();
}

#[test]
fn a_program_that_takes_no_messages_keeps_the_connection() {
    let mut world = World::new([CONFIG; 2]);
    world.side(1).holds = usize::MAX;
    world.side(0).outbox.extend((0..20).map(message));
    world.run(SECOND * 60);
    assert_eq!((world.side(1).received.len(), world.side(0).outbox.len()), (6, 14));
    world.side(1).holds = 1;
    world.until(|world| world.side(0).received.len() == 20);
}

#[test]
fn a_host_that_loses_its_power_is_noticed_by_its_silence() {
    for idle in [true, false] {
        let mut world = World::new([CONFIG; 2]);
        world.run(SECOND * 5);
        world.hosts[1].set_link(false);
        world.sides[1] = None;
        let begun = world.fabric.now();
        if !idle {
            world.side(0).outbox.extend((0..20).map(message));
        }
        world.until(|world| world.side(0).end.is_some());
        assert_eq!(world.side(0).end, Some(End::Messages(MessagesError::Silent(SECOND))));
        let took = world.fabric.now().since(begun);
        assert!(took <= SECOND, "{took:?}");
    }
}

#[test]
fn a_program_that_hangs_is_noticed_by_its_silence() {
    let mut world = World::new([CONFIG; 2]);
    world.run(SECOND * 5);
    // Its device still acknowledges what arrives.
    let hangs = world.sides[1].take();
    world.until(|world| world.side(0).end.is_some());
    assert_eq!(world.side(0).end, Some(End::Messages(MessagesError::Silent(SECOND))));
    drop(hangs);
}

#[test]
fn a_program_that_is_killed_is_noticed_by_an_event() {
    let mut world = World::new([CONFIG; 2]);
    world.run(SECOND * 5);
    world.sides[1] = None;
    let begun = world.fabric.now();
    world.until(|world| world.side(0).end.is_some());
    assert!(matches!(world.side(0).end, Some(End::Event(_))), "{:?}", world.side(0).end);
    assert!(world.fabric.now().since(begun) < SECOND / 10);
}
