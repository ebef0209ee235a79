//! Sessions from the connect to the destroyed id: whatever ends them, nothing is left.
#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "a test")]

use std::time::{Duration, Instant};

use cmid_harness::{Driver, Make, OnEpoll};
use cmid_proto::datapath::{Access, Attaching, Caps, Completion, CreateError, QpParts, SendWr, prelude::*};
use cmid_proto::handshake::{DialTo, HandshakeError, Incoming, Session};
use cmid_proto::{Acks, ChannelKey, Errno, IdKey, PortSpace, State};
use cmid_sim::{Clock, Config, Fabric, Host, Mr, SimDevice};

/// Longer than any step of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

type Attached = (QpParts<SimDevice>, Mr);

/// A QP, memory of 64 bytes, and a receive of 8.
fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<Attached, CreateError> {
    let mut parts = device.qp(to).caps(Caps { max_send_wr: 4, ..Caps::default() }).attach()?;
    let mr = parts.pd.register(vec![0; 64], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
    parts.qp.post_recv(1, mr.sge(0..8))?;
    Ok((parts, mr))
}

/// A side on a host of its own.
struct Side {
    host: Host,
    driver: OnEpoll<SimDevice>,
    channel: ChannelKey,
    id: IdKey,
    session: Option<Session<Attached>>,
    completions: Vec<Completion>,
}

impl Side {
    fn new(fabric: &Fabric, address: &str) -> Self {
        let host = fabric.host(&[address.parse().unwrap()]);
        let mut driver = OnEpoll::make(host.device()).unwrap();
        let channel = driver.drive().open_channel(Acks::Explicit).unwrap();
        let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
        Side { host, driver, channel, id, session: None, completions: Vec::new() }
    }

    fn session(&mut self) -> &mut Session<Attached> {
        self.session.as_mut().unwrap()
    }

    fn turn(&mut self, limit: Duration) -> Result<(), HandshakeError> {
        self.driver.wait(Some(Duration::from_millis(5))).unwrap();
        let drive = self.driver.drive();
        while let Some(event) = drive.next_event(self.channel) {
            match Incoming::new(drive, event) {
                Ok(incoming) => {
                    let session = Session::accept(drive, incoming, Default::default(), b"", limit, attach);
                    self.session = Some(session?);
                }
                Err(event) => {
                    self.session.as_mut().unwrap().handle(drive, event, attach)?;
                }
            }
        }
        if let Some(session) = &mut self.session {
            while let Some(completion) = session.next_completion(drive).unwrap() {
                self.completions.push(completion);
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_over)
    }

    fn is_open(&mut self) -> bool {
        self.session.as_mut().is_some_and(|session| session.attached().is_some())
    }

    /// The session is over, its id is gone, and nothing of its QP is left.
    fn has_ended(&mut self) {
        let session = self.session.take().unwrap();
        assert!(session.is_over() && session.cq_fd().is_none());
        assert_eq!(self.driver.drive().core().state(session.id()), None);
        self.driver.drive().core().check();
        let (parts, mr) = session.into_connected().unwrap().attached;
        assert!(parts.qp.unpolled().is_none());
        drop(parts);
        assert_eq!(mr.deregister().map_err(|(_, error)| error).unwrap().buffer.len(), 64);
    }
}

/// A client and a server.
struct World([Side; 2]);

impl World {
    fn connected(limit: Duration) -> Self {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let mut world = World([Side::new(&fabric, "10.0.0.1"), Side::new(&fabric, "10.0.0.2")]);
        let [client, server] = &mut world.0;
        let address = "10.0.0.2:7471".parse().unwrap();
        let drive = server.driver.drive();
        drive.bind(server.id, address).unwrap();
        drive.listen(server.id, 1).unwrap();
        client.session =
            Some(Session::connect(client.driver.drive(), client.id, &DialTo::new(address), limit).unwrap());
        world.until(limit, |[client, server]| client.is_open() && server.is_open());
        world
    }

    fn until(&mut self, limit: Duration, mut done: impl FnMut(&mut [Side; 2]) -> bool) {
        let begun = Instant::now();
        while !done(&mut self.0) {
            assert!(begun.elapsed() < SOON);
            self.0.iter_mut().for_each(|side| side.turn(limit).unwrap());
        }
    }

    fn ends(mut self, limit: Duration) -> [Vec<Completion>; 2] {
        self.until(limit, |sides| sides.iter().all(Side::is_over));
        self.0.map(|mut side| {
            side.has_ended();
            side.completions
        })
    }
}

/// The numbers of the work requests and whether they have succeeded.
fn results(completions: &[Completion]) -> Vec<(u64, bool)> {
    completions.iter().map(|it| (it.wr_id, it.is_success())).collect()
}

#[test]
fn a_disconnect_ends_both_sides_and_completes_all_work() {
    let mut world = World::connected(SOON);
    let [client, _] = &mut world.0;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..8))).unwrap();
    world.until(SOON, |[_, server]| !server.completions.is_empty());
    let [_, server] = &mut world.0;
    server.session.as_mut().unwrap().disconnect(server.driver.drive()).unwrap();
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(2, true), (1, false)], vec![(1, true)]));
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let mut world = World::connected(SOON);
    for side in &mut world.0 {
        side.session.as_mut().unwrap().disconnect(side.driver.drive()).unwrap();
    }
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(1, false)], vec![(1, false)]));
}

#[test]
fn unsignaled_sends_are_over_before_the_qp_is_destroyed() {
    let mut world = World::connected(SOON);
    let [client, _] = &mut world.0;
    let (parts, mr) = client.session().attached().unwrap();
    parts.qp.post_send(SendWr::send(2, mr.sge(0..8)).unsignaled()).unwrap();
    world.until(SOON, |[_, server]| !server.completions.is_empty());
    let [client, _] = &mut world.0;
    client.session.as_mut().unwrap().disconnect(client.driver.drive()).unwrap();
    // The mark that has flushed it is not reported.
    let [client, _] = world.ends(SOON);
    assert_eq!(results(&client), [(1, false)]);
}

#[test]
fn a_failed_completion_disconnects() {
    let mut world = World::connected(SOON);
    let [client, _] = &mut world.0;
    let (parts, mr) = client.session().attached().unwrap();
    // The peer's receive has 8 bytes.
    parts.qp.post_send(SendWr::send(2, mr.sge(0..16))).unwrap();
    let [client, server] = world.ends(SOON);
    assert_eq!((results(&client), results(&server)), (vec![(2, false), (1, false)], vec![(1, false)]));
}

#[test]
fn a_peer_that_is_gone_delays_the_end_until_the_limit() {
    let limit = Duration::from_millis(300);
    let mut world = World::connected(limit);
    let [client, server] = &mut world.0;
    server.host.set_link(false);
    client.session.as_mut().unwrap().disconnect(client.driver.drive()).unwrap();
    let begun = Instant::now();
    world.until(limit, |[client, _]| client.is_over());
    assert!(begun.elapsed() >= limit);
    let [mut client, server] = world.0;
    client.has_ended();
    assert_eq!(results(&client.completions), [(1, false)]);
    // This side has seen nothing of it.
    assert!(!server.is_over());
}

#[test]
fn a_removed_device_ends_the_session_without_the_peer() {
    let mut world = World::connected(SOON);
    let [client, _] = &mut world.0;
    client.host.remove_device();
    world.until(SOON, |[client, _]| client.is_over());
    let [client, _] = &mut world.0;
    let id = client.session().id();
    assert_eq!(client.driver.drive().core().state(id), None);
    assert_eq!(results(&client.completions), [(1, false)]);
}

#[test]
fn a_refused_connect_ends_the_session() {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [mut client, _server] = [Side::new(&fabric, "10.0.0.1"), Side::new(&fabric, "10.0.0.2")];
    // Nobody listens.
    let to = DialTo::new("10.0.0.2:7471".parse().unwrap());
    client.session = Some(Session::connect(client.driver.drive(), client.id, &to, SOON).unwrap());
    let error = loop {
        if let Err(error) = client.turn(SOON) {
            break error;
        }
    };
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    assert!(client.is_over() && client.session().attached().is_none());
    assert_eq!(client.driver.drive().core().state(client.id), None);
}

#[test]
fn a_cancel_destroys_the_id_at_once_at_each_step() {
    let mut world = World::connected(SOON);
    for (side, state) in world.0.iter_mut().zip([State::Connected, State::Closing]) {
        let session = side.session.as_mut().unwrap();
        if state == State::Closing {
            session.disconnect(side.driver.drive()).unwrap();
        }
        assert_eq!(side.driver.drive().core().state(session.id()), Some(state));
        session.cancel(side.driver.drive()).unwrap();
        session.cancel(side.driver.drive()).unwrap();
        let id = session.id();
        assert!(side.is_over());
        assert_eq!(side.driver.drive().core().state(id), None);
    }
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let mut client = Side::new(&fabric, "10.0.0.1");
    let to = DialTo::new("10.0.0.2:7471".parse().unwrap());
    let mut session: Session<Attached> = Session::connect(client.driver.drive(), client.id, &to, SOON).unwrap();
    session.cancel(client.driver.drive()).unwrap();
    assert!(session.is_over());
    assert_eq!(client.driver.drive().core().state(client.id), None);
}
