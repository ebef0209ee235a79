//! Two programs that call each other by [`Redial`](cmid_proto::redial::Redial), under the faults of the fabric and in
//! virtual time: after each fault there is one connection again, within the limits, and nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a test")]

mod node;
mod worlds;

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::redial::{GivenUp, RedialLimits, Stage};
use cmid_sim::{Config, Fabric, Host};

use node::Node;

const SECOND: Duration = Duration::from_secs(1);

const LIMITS: RedialLimits = RedialLimits {
    handshake: Duration::from_secs(3),
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(2),
    attempts: u32::MAX,
    within: Duration::from_secs(120),
};

/// Two hosts, with a program on each, if it runs.
struct World {
    fabric: Fabric,
    hosts: [Host; 2],
    nodes: [Option<Node>; 2],
    limits: RedialLimits,
}

fn addr(at: usize) -> SocketAddr {
    ["10.0.0.1:7471", "10.0.0.2:7471"][at].parse().unwrap()
}

impl World {
    /// Both programs start at once, and their calls cross.
    fn new(config: Config, limits: RedialLimits) -> Self {
        let fabric = Fabric::new(config);
        let hosts = [0, 1].map(|at| fabric.host(&[addr(at).ip()]));
        let mut world = World { fabric, hosts, nodes: [None, None], limits };
        [0, 1].into_iter().for_each(|at| world.start(at));
        world
    }

    fn start(&mut self, at: usize) {
        let node = Node::start(&self.hosts[at], self.fabric.now(), at, self.limits);
        self.nodes[at] = Some(node);
    }

    /// The program ends as by SIGKILL: the kernel ends its ids.
    fn kill(&mut self, at: usize) {
        self.nodes[at] = None;
    }

    fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().unwrap()
    }

    /// Runs until this time.
    fn run_to(&mut self, end: Time) {
        for turn in 0.. {
            assert!(turn < 200_000, "no progress at {}", self.fabric.now());
            let now = self.fabric.now();
            let is_busy = self.nodes.iter_mut().flatten().fold(false, |busy, node| node.turn(now) | busy);
            if is_busy {
                continue;
            }
            let due = self.nodes.iter().flatten().filter_map(|node| node.next(now)).chain(self.fabric.next_due()).min();
            match due.filter(|&due| due < end) {
                Some(due) => self.fabric.advance_to(due),
                None if now >= end => return,
                None => self.fabric.advance_to(end),
            }
        }
    }

    fn run(&mut self, span: Duration) {
        self.run_to(self.fabric.now().after(span));
    }

    /// Runs until both have received from the other one for a second. Returns the time that it took.
    #[track_caller]
    fn heals(&mut self, within: Duration) -> Duration {
        let begun = self.fabric.now();
        loop {
            let before = [0, 1].map(|at| (self.node(at).received, self.node(at).connections));
            self.run(SECOND);
            let is_connected = [0, 1].into_iter().all(|at| {
                let node = self.node(at);
                // At least two pings, over the same connection as a second ago.
                node.stage() == Stage::Connected
                    && node.received >= before[at].0 + 2
                    && node.connections == before[at].1
            });
            let took = self.fabric.now().since(begun);
            if is_connected {
                return took;
            }
            assert!(took < within, "not connected after {took:?}: {:?}", self.nodes);
        }
    }

    /// Both programs stop: nothing is left, in the programs and in the fabric.
    #[track_caller]
    fn end(mut self) {
        self.nodes.iter_mut().flatten().for_each(Node::stop);
        self.run(SECOND * 200);
        for node in self.nodes.iter_mut().flatten() {
            node.is_empty();
        }
        self.nodes = [None, None];
        for _ in 0..1000 {
            let Some(due) = self.fabric.next_due() else {
                let counters = self.fabric.counters();
                assert_eq!((counters.freed_in_use, counters.copied_to_freed, counters.overruns), (0, 0, 0));
                return;
            };
            self.fabric.advance_to(due);
        }
        panic!("the fabric does not come to rest");
    }
}

#[test]
fn calls_that_cross_end_with_one_connection() {
    let mut world = World::new(Config::default(), LIMITS);
    assert!(world.heals(SECOND * 3) < SECOND * 3);
    let connections = [0, 1].map(|at| world.node(at).connections);
    assert_eq!(connections, [1, 1]);
    world.end();
}

#[test]
fn a_program_that_is_killed_and_started_again_is_connected_again() {
    for at in [0, 1] {
        for away in [Duration::ZERO, SECOND, SECOND * 20] {
            let mut world = World::new(Config::default(), LIMITS);
            world.heals(SECOND * 3);
            world.kill(at);
            world.run(away);
            world.start(at);
            world.heals(SECOND * 10);
            world.end();
        }
    }
}

/// The peer learns nothing of it until it sends: its connection is replaced by the call of the new program.
#[test]
fn a_host_that_loses_its_power_is_connected_again() {
    for at in [0, 1] {
        for away in [Duration::ZERO, SECOND, SECOND * 20] {
            let mut world = World::new(Config::default(), LIMITS);
            world.heals(SECOND * 3);
            world.hosts[at].set_link(false);
            world.kill(at);
            world.run(away);
            world.hosts[at].set_link(true);
            world.start(at);
            world.heals(SECOND * 20);
            world.end();
        }
    }
}

#[test]
fn a_partition_is_healed_whatever_it_takes() {
    for away in [1, 5, 20, 60] {
        let mut world = World::new(Config::default(), LIMITS);
        world.heals(SECOND * 3);
        world.hosts[1].set_link(false);
        world.run(SECOND * away);
        world.hosts[1].set_link(true);
        world.heals(SECOND * 20);
        world.end();
    }
}

#[test]
fn a_partition_that_lasts_too_long_is_given_up_on_both_sides() {
    let mut world = World::new(Config::default(), RedialLimits { within: SECOND * 30, ..LIMITS });
    world.heals(SECOND * 3);
    world.hosts[1].set_link(false);
    world.run(SECOND * 60);
    for at in [0, 1] {
        assert_eq!(world.node(at).given_up(), Some(GivenUp::Deadline));
    }
    world.hosts[1].set_link(true);
    world.end();
}

#[test]
fn a_device_that_comes_back_is_connected_again() {
    for at in [0, 1] {
        let mut world = World::new(Config::default(), LIMITS);
        world.heals(SECOND * 3);
        world.hosts[at].remove_device();
        world.run(SECOND * 4);
        world.hosts[at].add_device();
        world.heals(SECOND * 20);
        world.end();
    }
}

#[test]
fn a_refusal_of_the_application_is_the_end() {
    let mut world = World::new(Config::default(), LIMITS);
    world.heals(SECOND * 3);
    // The next program on host 1 does not want to be called, and does not call.
    world.kill(1);
    world.start(1);
    world.nodes[1].as_mut().unwrap().refuses();
    world.run(SECOND * 20);
    assert_eq!(world.node(0).given_up(), Some(GivenUp::Refused));
    world.end();
}
