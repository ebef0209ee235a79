//! A deposed leader writes nothing: the check passes on a device that enforces access rights, and fails on one that
//! does not.

use std::time::Instant;

use cmid_mio::proto::datapath::{Access, prelude::*};
use cmid_mio::sim::{Clock, Config, Fabric, Host, SimDevice};
use mio::{Events, Poll};

use super::*;
use crate::protocol::Frame;

/// The limit of each wait. Test machines may be slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A leader and a replica, each on its own loop.
struct Pair<L> {
    hosts: [Host; 2],
    polls: [Poll; 2],
    links: [L; 2],
}

const LEADER: ReplicaId = 0;
const REPLICA: ReplicaId = 1;

impl<L: Polled> Pair<L> {
    fn new(start: impl Fn(SimDevice, &Registry, ReplicaId, &[SocketAddr]) -> Result<L>) -> Self {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let addrs = ["10.0.0.1:7500", "10.0.0.2:7500"].map(|addr| addr.parse::<SocketAddr>().expect("an address"));
        let polls = [(); 2].map(|()| Poll::new().expect("a poll"));
        let hosts = addrs.map(|addr| fabric.host(&[addr.ip()]));
        let start = |id: ReplicaId| start(hosts[id].device(), polls[id].registry(), id, &addrs).expect("a replica");
        let links = [start(LEADER), start(REPLICA)];
        let mut pair = Pair { hosts, polls, links };
        let mut connected = [false; 2];
        pair.turn_until(|at, event| {
            connected[at] |= matches!(event, LinkEvent::Connected(_));
            connected == [true; 2]
        })
        .expect("a connection");
        pair
    }

    /// Makes a turn of a loop.
    fn turn(&mut self, at: ReplicaId) -> Result<Vec<LinkEvent>> {
        let (links, mut events) = (&mut self.links[at], Events::with_capacity(64));
        let timeout = links.before_poll(Duration::from_millis(5));
        self.polls[at].poll(&mut events, Some(timeout))?;
        events.iter().for_each(|event| _ = links.handle(event));
        links.turn()?;
        Ok(std::iter::from_fn(|| links.next_event()).collect())
    }

    /// Makes turns of both until an event is the awaited one.
    fn turn_until(&mut self, mut is_it: impl FnMut(ReplicaId, &LinkEvent) -> bool) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for at in [LEADER, REPLICA] {
                if self.turn(at)?.iter().any(|event| is_it(at, event)) {
                    return Ok(());
                }
            }
        }
        bail!("not within {PATIENCE:?}")
    }

    /// Makes turns of both until an event at this replica is the awaited one.
    fn wait(&mut self, at: ReplicaId, is_it: impl Fn(&LinkEvent) -> bool) -> Result<()> {
        self.turn_until(|happens_at, event| happens_at == at && is_it(event))
    }

    /// Grants the right to write to the leader.
    fn grant(&mut self) {
        self.links[REPLICA].grant(LEADER);
        self.links[REPLICA].send(LEADER, Message::Granted { term: 1, last: 0 });
        let is_granted = |event: &LinkEvent| matches!(event, LinkEvent::Message(_, Message::Granted { .. }));
        self.wait(LEADER, is_granted).expect("a grant");
    }

    /// The leader of term 1 writes an empty frame.
    fn write(&mut self) {
        let frame = Frame { term: 1, previous: Default::default(), commit: 0, records: Vec::new() };
        self.links[LEADER].write(REPLICA, 0, frame.encode());
    }
}

impl Pair<Rdma<SimDevice>> {
    fn granted() -> Self {
        let mut pair = Pair::new(Rdma::new);
        pair.grant();
        pair
    }

    /// The replica's connection with the leader.
    fn connection(&mut self) -> &mut Connection<SimDevice> {
        self.links[REPLICA].peers[LEADER].connection().expect("a connection")
    }

    fn region(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; Memory::default().region];
        self.connection().region.read(0, &mut bytes).expect("the bytes");
        bytes
    }
}

#[test]
fn a_leader_with_the_right_writes() {
    let mut pair = Pair::granted();
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, frame) if frame.term == 1)).expect("a frame");
    assert!(pair.region().iter().any(|byte| *byte != 0));
    // A write before the right is revoked is not an error.
    pair.links[REPLICA].fence();
    pair.links[REPLICA].grant(LEADER);
    pair.turn(REPLICA).expect("no error");
}

#[test]
fn a_deposed_leader_writes_nothing() {
    let mut pair = Pair::granted();
    pair.links[REPLICA].fence();
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Disconnected(LEADER))).expect("the end of the connection");
}

/// A fence that a device does not enforce: the leader keeps its right.
#[test]
fn a_write_of_a_deposed_leader_is_reported() {
    let mut pair = Pair::granted();
    pair.connection().expect_no_writes().expect("a hash");
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, _))).expect("a frame");
    pair.links[REPLICA].grant(LEADER);
    let error = pair.turn(REPLICA).expect_err("a violation").to_string();
    assert_eq!(error, "replica 0 has written without the right to it: use a device that enforces access rights");
}

#[test]
fn a_peer_that_sends_much_does_not_hold_a_turn() {
    let mut pair = Pair::new(|device, registry, id, addrs| {
        let memory = Memory { messages: 2 * POLLS * AT_ONCE, ..Memory::default() };
        let driver = OnMio::new(device, registry, addrs.len())?;
        Rdma::on(driver, id, addrs, memory, fastrand::Rng::new())
    });
    let sent = POLLS * AT_ONCE + 1;
    (0..sent).for_each(|_| pair.links[LEADER].send(REPLICA, Message::Granted { term: 1, last: 0 }));
    // Nearly always all arrive meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    let mut left = sent;
    while left > 0 {
        let taken = pair.turn(REPLICA).expect("a turn").len();
        assert!(taken <= POLLS * AT_ONCE, "{taken} in a turn");
        left -= taken;
    }
}

/// The write is reported also if the connection ends before a grant.
#[test]
fn a_write_of_a_deposed_leader_is_reported_at_the_end_of_its_connection() {
    let mut pair = Pair::granted();
    pair.connection().expect_no_writes().expect("a hash");
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, _))).expect("a frame");
    pair.links[REPLICA].close(LEADER);
    let error = pair.turn(REPLICA).expect_err("a violation").to_string();
    assert!(error.contains("without the right"), "{error}");
}

/// It has the port until it is destroyed. Two calls in a row fail, each of those after a removal, among them that which
/// makes the listener again and the destroy behind it.
#[test]
fn a_listener_whose_destroy_fails_does_not_keep_the_port() {
    for after in 0..10 {
        let mut pair = Pair::new(Rdma::new);
        pair.hosts[REPLICA].remove_device();
        [after, 0].into_iter().for_each(|after| pair.hosts[REPLICA].fail_call(after, Errno::EIO));
        pair.wait(REPLICA, |event| matches!(event, LinkEvent::Disconnected(LEADER))).expect("the removal");
        pair.hosts[REPLICA].add_device();
        pair.wait(REPLICA, |event| matches!(event, LinkEvent::Connected(LEADER))).expect("a connection");
    }
}

#[test]
fn an_action_for_another_connection_does_nothing() {
    let mut pair = Pair::new(Rdma::new);
    for earlier_or_later in [0, 2] {
        pair.links[REPLICA].peers[LEADER].current = earlier_or_later;
        pair.links[REPLICA].grant(LEADER);
        assert_eq!(pair.connection().region.access(), Some(Access::LOCAL_WRITE));
    }
    pair.links[REPLICA].peers[LEADER].current = 1;
    pair.links[REPLICA].grant(LEADER);
    assert_eq!(pair.connection().region.access(), Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE));
}
