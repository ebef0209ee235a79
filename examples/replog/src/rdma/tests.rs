//! The check that a deposed leader writes nothing: a device that enforces access rights passes, one that does not fails.

use cmid_mio::sim::{Clock, Config, Fabric, SimDevice};
use mio::{Events, Poll};

use super::*;
use crate::protocol::Frame;

/// The limit of each wait. Test machines may be slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A leader and a replica, on loops of their own.
struct Pair {
    polls: [Poll; 2],
    links: [Rdma<SimDevice>; 2],
}

const LEADER: ReplicaId = 0;
const REPLICA: ReplicaId = 1;

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let addrs = ["10.0.0.1:7500", "10.0.0.2:7500"].map(|addr| addr.parse::<SocketAddr>().expect("an address"));
        let polls = [(); 2].map(|()| Poll::new().expect("a poll"));
        let start = |id: ReplicaId| {
            let device = fabric.host(&[addrs[id].ip()]).device();
            Rdma::new(device, polls[id].registry(), id, &addrs).expect("a replica")
        };
        let links = [start(LEADER), start(REPLICA)];
        Pair { polls, links }
    }

    /// Makes a turn of a loop.
    fn turn(&mut self, at: ReplicaId) -> Result<VecDeque<LinkEvent>> {
        let (links, mut events, mut happened) = (&mut self.links[at], Events::with_capacity(64), VecDeque::new());
        let timeout = links.before_poll(Duration::from_millis(5));
        self.polls[at].poll(&mut events, Some(timeout))?;
        events.iter().for_each(|event| _ = links.handle(event));
        links.turn(&mut happened)?;
        Ok(happened)
    }

    /// Makes turns of both until something happens at a replica.
    fn wait(&mut self, at: ReplicaId, is_it: impl Fn(&LinkEvent) -> bool) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.turn(1 - at)?;
            if self.turn(at)?.iter().any(&is_it) {
                return Ok(());
            }
        }
        bail!("not within {PATIENCE:?}")
    }

    /// Connects them, and grants the right to write to the leader.
    fn granted() -> Self {
        let mut pair = Pair::new();
        pair.wait(LEADER, |event| matches!(event, LinkEvent::Connected(REPLICA))).expect("a connection");
        pair.wait_until_connected();
        pair.links[REPLICA].grant(LEADER);
        pair.links[REPLICA].send(LEADER, Message::Granted { term: 1, last: 0 });
        let is_granted = |event: &LinkEvent| matches!(event, LinkEvent::Message(_, Message::Granted { .. }));
        pair.wait(LEADER, is_granted).expect("a grant");
        pair
    }

    fn wait_until_connected(&mut self) {
        let start = Instant::now();
        while self.links[REPLICA].peers[LEADER].connection.is_none() {
            assert!(start.elapsed() < PATIENCE, "the replica is not connected");
            (0..2).for_each(|at| drop(self.turn(at).expect("no error")));
        }
    }

    /// The leader of term 1 writes an empty frame.
    fn write(&mut self) {
        let frame = Frame { term: 1, previous: Default::default(), commit: 0, records: Vec::new() };
        self.links[LEADER].write(REPLICA, 0, &frame.encode());
    }

    fn region(&self) -> Vec<u8> {
        let (_, connection) = self.links[REPLICA].peers[LEADER].connection.as_ref().expect("a connection");
        let mut bytes = vec![0; REGION];
        connection.region.read(0, &mut bytes).expect("the bytes");
        bytes
    }
}

#[test]
fn a_leader_with_the_right_writes() {
    let mut pair = Pair::granted();
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, frame) if frame.term == 1)).expect("a frame");
    assert!(pair.region().iter().any(|byte| *byte != 0));
    // What was written before the right is revoked is no error.
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
    let connection = pair.links[REPLICA].peers[LEADER].connection.as_mut();
    connection.expect("a connection").1.expect_no_writes().expect("a hash");
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, _))).expect("a frame");
    pair.links[REPLICA].grant(LEADER);
    let error = pair.turn(REPLICA).expect_err("a violation").to_string();
    assert_eq!(error, "replica 0 has written without the right to it: use a device that enforces access rights");
}

/// The same if the connection ends before a grant.
#[test]
fn a_write_of_a_deposed_leader_is_reported_at_the_end_of_its_connection() {
    let mut pair = Pair::granted();
    let connection = pair.links[REPLICA].peers[LEADER].connection.as_mut();
    connection.expect("a connection").1.expect_no_writes().expect("a hash");
    pair.write();
    pair.wait(REPLICA, |event| matches!(event, LinkEvent::Frame(LEADER, _))).expect("a frame");
    pair.links[REPLICA].close(LEADER);
    let error = pair.turn(REPLICA).expect_err("a violation").to_string();
    assert!(error.contains("without the right"), "{error}");
}
