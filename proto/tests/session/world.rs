//! Two sides on the simulator.

use std::time::Duration;

use cmid_proto::datapath::{Access, Attaching, Caps, Completion, CreateError, QpParts, prelude::*};
use cmid_proto::handshake::{HandshakeError, Incoming, Options, Session};
use cmid_proto::{Acks, ChannelKey, Drive, IdKey, Limits, Next, PortSpace, Transport};
use cmid_sim::{Config, Fabric, Host, Mr, SimDevice};

/// Longer than any step of these tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) type Attached = (QpParts<SimDevice>, Mr);

pub(crate) fn within(timeout: Duration) -> Options<'static> {
    Options { timeout, ..Options::default() }
}

/// A QP, memory of 64 bytes, and a receive of 8.
pub(crate) fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<Attached, CreateError> {
    let mut parts = device.qp(to).caps(Caps { max_send_wr: 4, ..Caps::default() }).attach()?;
    let mr = parts.pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
    parts.qp.post_recv(1, mr.sge(0..8))?;
    Ok((parts, mr))
}

/// A side on a host of its own.
pub(crate) struct Side {
    pub(crate) host: Host,
    pub(crate) drive: Drive<SimDevice>,
    pub(crate) channel: ChannelKey,
    pub(crate) id: IdKey,
    pub(crate) session: Option<Session<Attached>>,
    pub(crate) completions: Vec<Completion>,
}

impl Side {
    pub(crate) fn new(fabric: &Fabric, transport: Transport, address: &str) -> Self {
        let host = fabric.host_with(&[address.parse().unwrap()], transport);
        let mut drive = Drive::new(host.device(), Limits::SINGLE);
        drive.set_now(fabric.now());
        let channel = drive.open_channel(Acks::Explicit).unwrap();
        let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        Side { host, drive, channel, id, session: None, completions: Vec::new() }
    }

    pub(crate) fn session(&mut self) -> &mut Session<Attached> {
        self.session.as_mut().unwrap()
    }

    /// Reads the events, of which the session learns later.
    pub(crate) fn read(&mut self, fabric: &Fabric) {
        self.drive.set_now(fabric.now());
        self.drive.readable_all();
        while self.drive.run(64) == Next::Again {}
    }

    pub(crate) fn turn(&mut self, fabric: &Fabric, limit: Duration) -> Result<(), HandshakeError> {
        self.read(fabric);
        let drive = &mut self.drive;
        while let Some(event) = drive.next_event(self.channel) {
            match Incoming::new(drive, event) {
                Ok(incoming) => {
                    let session = Session::accept(drive, incoming, &within(limit), attach);
                    self.session = Some(session?);
                }
                Err(event) => {
                    self.session.as_mut().unwrap().handle(drive, event, attach)?;
                }
            }
        }
        if let Some(session) = &mut self.session {
            session.poll(drive, &mut Some(attach))?;
            while let Some(completion) = session.next_completion(drive)? {
                self.completions.push(completion);
            }
        }
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_over)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_open)
    }

    /// Moves the connection to another driver.
    pub(crate) fn moves(&mut self, fabric: &Fabric) {
        assert!(self.session().cq_fd().is_some());
        let mut released = self.session.take().unwrap().release(&mut self.drive).unwrap();
        assert!(format!("{released:?}").starts_with("ReleasedSession { limit: "));
        assert_eq!(released.attached().1.len(), 64);
        self.drive.core().check();
        let device = self.drive.device().sibling();
        self.drive = Drive::new(device, Limits::default());
        self.drive.set_now(fabric.now());
        self.channel = self.drive.open_channel(Acks::Explicit).unwrap();
        // Its key is another one there.
        self.drive.create_id(Some(self.channel), PortSpace::Tcp).unwrap();
        let session = released.adopt(&mut self.drive, self.channel).unwrap();
        self.id = session.id();
        self.session = Some(session);
    }

    /// The session is over, its id is gone, and nothing of its QP is left.
    pub(crate) fn has_ended(&mut self) {
        let session = self.session.take().unwrap();
        assert!(session.is_over() && session.cq_fd().is_none());
        assert_eq!(self.drive.core().state(session.id()), None);
        self.drive.core().check();
        let id = session.id();
        let connected = session.into_connected().unwrap();
        assert_eq!(connected.id, id);
        let (parts, mr) = connected.attached;
        assert!(parts.qp.unpolled().is_none());
        drop(parts);
        assert_eq!(mr.deregister().unwrap().buffer.len(), 64);
    }
}

/// A client and a server.
pub(crate) struct World {
    pub(crate) fabric: Fabric,
    pub(crate) sides: [Side; 2],
}

/// Moves the time to what is due next.
pub(crate) fn advance(fabric: &Fabric, sides: &[&Side]) {
    let due = sides.iter().filter_map(|side| side.drive.next_timeout()).chain(fabric.next_due()).min();
    fabric.advance_to(due.expect("nothing is due").max(fabric.now()));
}

impl World {
    /// The server listens on port 7471 of 10.0.0.2.
    pub(crate) fn unconnected(transport: Transport) -> Self {
        let fabric = Fabric::new(Config::default());
        let sides = [Side::new(&fabric, transport, "10.0.0.1"), Side::new(&fabric, transport, "10.0.0.2")];
        let mut world = World { fabric, sides };
        let [_, server] = &mut world.sides;
        server.drive.bind(server.id, "10.0.0.2:7471".parse().unwrap()).unwrap();
        server.drive.listen(server.id, 1).unwrap();
        world
    }

    pub(crate) fn connected(transport: Transport, limit: Duration) -> Self {
        let mut world = World::unconnected(transport);
        let [client, _] = &mut world.sides;
        let address = "10.0.0.2:7471".parse().unwrap();
        client.session = Some(Session::connect_on(&mut client.drive, client.id, address, &within(limit)).unwrap());
        world.until(limit, |[client, server]| client.is_open() && server.is_open());
        world
    }

    /// Moves the time to what is due next, and lets both sides run.
    pub(crate) fn turn(&mut self) {
        let World { fabric, sides: [client, server] } = self;
        advance(fabric, &[client, server]);
        client.turn(fabric, SOON).unwrap();
        server.turn(fabric, SOON).unwrap();
    }

    pub(crate) fn until(&mut self, limit: Duration, mut done: impl FnMut(&mut [Side; 2]) -> bool) {
        let begun = self.fabric.now();
        let World { fabric, sides } = self;
        sides.iter_mut().for_each(|side| side.turn(fabric, limit).unwrap());
        while !done(sides) {
            assert!(fabric.now().since(begun) < SOON);
            let [client, server] = sides;
            advance(fabric, &[client, server]);
            sides.iter_mut().for_each(|side| side.turn(fabric, limit).unwrap());
        }
    }

    pub(crate) fn ends(mut self, limit: Duration) -> [Vec<Completion>; 2] {
        self.until(limit, |sides| sides.iter().all(Side::is_over));
        self.sides.map(|mut side| {
            side.has_ended();
            side.completions
        })
    }
}
