//! Handshakes with every driver, on channels and in synchronous mode: one result, one deadline, and no id left.
#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "a test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_harness::{DriveOf, Driver, Make, OnBlocking, OnEpoll, OnMio, make_qp, sim_host, test_caps};
use cmid_proto::datapath::DataPath;
use cmid_proto::handshake::{Connected, Dial, DialTo, HandshakeError, Incoming, Serve};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Drive, Errno, Error, Event, IdKey, Poller, PortSpace, PrivateData,
    RejectCode, RequestKind, State, Time,
};
use cmid_sim::{Cq, Host, Qp, SimDevice};

/// Longer than any step of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

type Attached = Option<(Qp, Cq)>;

/// The way in which the ids of a test report the ends of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Channel(Acks),
    Synchronous,
}

const MODES: [Mode; 3] = [Mode::Channel(Acks::OnDelivery), Mode::Channel(Acks::Explicit), Mode::Synchronous];

/// Both sides on one driver, with the progress of each.
struct World<S> {
    driver: S,
    channel: Option<ChannelKey>,
    listener: Option<IdKey>,
    /// Synchronous mode: the listener's request is taken.
    taken: bool,
    with_qp: bool,
    dial: Option<Dial<Attached>>,
    serve: Option<Serve<Attached>>,
    incoming: Option<Incoming>,
    connected: [Option<Connected<Attached>>; 2],
}

fn addr() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

/// Attaches a QP to an id, if `with_qp`.
fn attach<P: Poller<SimDevice>>(drive: &mut Drive<SimDevice, P>, id: IdKey, with_qp: bool) -> Result<Attached, Error> {
    if !with_qp {
        return Ok(None);
    }
    let made = drive.attach_qp(id, |device, attaching| {
        let pd = device.alloc_pd(id)?;
        make_qp(device, attaching, &pd, test_caps())
    });
    made.map(Some)
}

impl<S: Make<SimDevice>> World<S> {
    fn new(host: &Host, mode: Mode, with_qp: bool) -> Self {
        let mut driver = S::make(host.device()).unwrap();
        let channel = match mode {
            Mode::Channel(acks) => Some(driver.drive().open_channel(acks).unwrap()),
            Mode::Synchronous => None,
        };
        let connected = [None, None];
        World {
            driver,
            channel,
            listener: None,
            taken: false,
            with_qp,
            dial: None,
            serve: None,
            incoming: None,
            connected,
        }
    }

    fn drive(&mut self) -> &mut DriveOf<S> {
        self.driver.drive()
    }

    fn listen(&mut self) {
        let channel = self.channel;
        let listener = self.drive().create_id(channel, PortSpace::Tcp).unwrap();
        self.drive().bind(listener, addr()).unwrap();
        self.drive().listen(listener, 4).unwrap();
        if channel.is_none() {
            self.drive().get_request(listener, Time::NEVER).unwrap();
        }
        self.listener = Some(listener);
    }

    fn dial(&mut self, within: Duration) {
        let mut to = DialTo::new(addr());
        to.param.qp_num = 1001;
        to.private_data = PrivateData::copy_of(b"hello");
        let (channel, deadline) = (self.channel, self.drive().within(within));
        self.dial = Some(Dial::start(self.drive(), channel, &to, deadline).unwrap());
    }

    fn accept(&mut self) {
        let with_qp = self.with_qp;
        let incoming = self.incoming.take().unwrap();
        let param = ConnParam { qp_num: 1002, ..ConnParam::default() };
        let deadline = self.drive().within(SOON);
        let serve = incoming.accept(self.drive(), param, b"welcome", deadline, |drive, id| attach(drive, id, with_qp));
        self.serve = Some(serve.unwrap());
    }

    /// Passes an event or the results to each side. Returns the error of the active side, if it has failed. With one event
    /// at a time, each state is seen.
    fn look(&mut self) -> Result<(), HandshakeError> {
        if let Some(channel) = self.channel {
            return self.drive().next_event(channel).map_or(Ok(()), |event| self.give(event));
        }
        let with_qp = self.with_qp;
        if let Some(event) = self.listener.and_then(|listener| self.drive().core().sync_event(listener))
            && !self.taken
        {
            self.taken = true;
            self.incoming = Some(Incoming::new(self.driver.drive(), event).unwrap());
        }
        let drive = self.driver.drive();
        if let Some(dial) = &mut self.dial
            && let Some(connected) = dial.poll(drive, |drive, id| attach(drive, id, with_qp))?
        {
            self.connected[0] = Some(connected);
        }
        if let Some(serve) = &mut self.serve
            && let Some(connected) = serve.poll(drive)?
        {
            self.connected[1] = Some(connected);
        }
        Ok(())
    }

    fn give(&mut self, event: Event) -> Result<(), HandshakeError> {
        let (drive, with_qp) = (self.driver.drive(), self.with_qp);
        let event = match Incoming::new(drive, event) {
            Ok(incoming) => {
                self.incoming = Some(incoming);
                return Ok(());
            }
            Err(event) => event,
        };
        if let Some(dial) = &mut self.dial
            && dial.id() == event.id
        {
            if let Some(connected) = dial.handle(drive, event, |drive, id| attach(drive, id, with_qp))? {
                self.connected[0] = Some(connected);
            }
        } else if let Some(serve) = &mut self.serve
            && serve.id() == event.id
            && let Some(connected) = serve.handle(drive, event)?
        {
            self.connected[1] = Some(connected);
        }
        Ok(())
    }

    /// Runs until the condition holds.
    fn until(&mut self, reached: impl Fn(&Self) -> bool) -> Result<(), HandshakeError> {
        let begun = Instant::now();
        while !reached(self) {
            assert!(begun.elapsed() < SOON, "not reached within {SOON:?}");
            self.driver.wait(Some(Duration::from_millis(20))).unwrap();
            self.look()?;
        }
        Ok(())
    }

    /// Destroys the listener and the connections, and checks that no id is left.
    fn end(mut self) {
        let rest = self.connected.each_mut().map(Option::take).into_iter().flatten().map(|connected| connected.id);
        let rest: Vec<_> = rest.chain(self.listener).collect();
        for id in rest {
            let _progress = self.drive().destroy(id, Time::NEVER).unwrap();
        }
        if let Some(channel) = self.channel {
            while let Some(event) = self.drive().next_event(channel) {
                if let Some(ack_token) = event.ack_token {
                    self.drive().ack(ack_token).unwrap();
                }
            }
            self.drive().close_channel(channel).unwrap();
        }
        self.driver.wait(Some(Duration::ZERO)).unwrap();
        let core = self.driver.drive().core();
        assert_eq!((core.ids().count(), core.channels().count()), (0, 0), "left: {:?}", core.ids().collect::<Vec<_>>());
        core.check();
    }
}

fn both_sides<S: Make<SimDevice>>() {
    for (mode, with_qp) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let mut world = World::<S>::new(&sim_host(), mode, with_qp);
        world.listen();
        world.dial(SOON);
        world.until(|world| world.incoming.is_some()).unwrap();
        let incoming = world.incoming.as_ref().unwrap();
        assert_eq!(&incoming.private_data()[..5], b"hello");
        assert_eq!(
            incoming.peer_addr(world.driver.drive()).unwrap().ip(),
            "10.0.0.1".parse::<std::net::IpAddr>().unwrap()
        );
        assert_eq!(incoming.local_addr(world.driver.drive()).unwrap(), addr());
        world.accept();
        world.until(|world| world.connected.iter().all(Option::is_some)).unwrap();
        let [client, server] = world.connected.each_ref().map(|connected| connected.as_ref().unwrap());
        assert_eq!(
            (&client.private_data[..7], &server.private_data[..5]),
            (&b"welcome"[..], &b"hello"[..]),
            "{mode:?}"
        );
        assert_eq!(client.attached.is_some(), with_qp);
        assert_ne!(client.param.qp_num, 0);
        let states = [client.id, server.id].map(|id| world.driver.drive().core().state(id));
        assert_eq!(states, [Some(State::Connected); 2], "{mode:?}");
        assert!(world.dial.as_ref().unwrap().is_over() && world.serve.as_ref().unwrap().is_over());
        // A cancel after the end has no effect on the connection.
        let client = client.id;
        let _done = world.dial.take().unwrap().cancel(world.driver.drive()).unwrap();
        assert_eq!(world.driver.drive().core().state(client), Some(State::Connected));
        world.end();
    }
}

/// The error of a rejected dial has the reason and the private data. The id is gone.
fn rejected<S: Make<SimDevice>>() {
    for mode in MODES {
        let mut world = World::<S>::new(&sim_host(), mode, true);
        world.listen();
        world.dial(SOON);
        world.until(|world| world.incoming.is_some()).unwrap();
        world.incoming.take().unwrap().reject(world.driver.drive(), b"not you").unwrap();
        let failed = world.until(|_| false).unwrap_err();
        assert_eq!(failed.errno(), Errno::ECONNREFUSED);
        let HandshakeError::Ended { during: RequestKind::Connect, error } = &failed else { panic!("{failed}") };
        assert_eq!((error.event.cm(), &error.event.private_data[..7]), (Some(CmEvent::Rejected), &b"not you"[..]));
        assert_eq!(error.event.reject_code(), Some(RejectCode::CONSUMER_DEFINED));
        let text =
            format!("connect: {}: REJECTED (reason 28, rejected by the application): ECONNREFUSED", error.event.id);
        assert_eq!(failed.to_string(), text);
        world.end();
    }
}

/// No side accepts the request: the deadline ends the dial, whatever it waits for.
fn too_late<S: Make<SimDevice>>() {
    for mode in MODES {
        let mut world = World::<S>::new(&sim_host(), mode, true);
        world.listen();
        world.dial(Duration::from_millis(500));
        let failed = world.until(|_| false).unwrap_err();
        assert_eq!((failed.errno(), failed.to_string().as_str()), (Errno::ETIMEDOUT, "connect: timed out"));
        // The peer's request may have arrived, and is not answered.
        if world.incoming.is_none() {
            world.until(|world| world.incoming.is_some()).unwrap_or_default();
        }
        world.incoming.take().unwrap().reject(world.driver.drive(), &[]).unwrap_or_default();
        world.end();
    }
}

/// A cancel in each state of the active side, and of the passive one.
fn cancelled<S: Make<SimDevice>>() {
    for mode in MODES {
        for stop in [State::AddrResolving, State::RouteResolving, State::Connecting, State::Accepting] {
            let mut world = World::<S>::new(&sim_host(), mode, true);
            world.listen();
            world.dial(SOON);
            let dial = world.dial.as_ref().unwrap().id();
            if stop == State::Accepting {
                world.until(|world| world.incoming.is_some()).unwrap();
                world.accept();
            } else {
                let begun = Instant::now();
                while world.drive().core().state(dial) != Some(stop) {
                    assert!(begun.elapsed() < SOON);
                    world.driver.wait(Some(Duration::from_millis(20))).unwrap();
                    world.look().unwrap();
                }
            }
            let _progress = world.dial.take().unwrap().cancel(world.driver.drive()).unwrap();
            assert_eq!(world.drive().core().state(dial), None, "{mode:?}, {stop}");
            if let Some(serve) = world.serve.take() {
                let _progress = serve.cancel(world.driver.drive()).unwrap();
            }
            world.incoming.take().into_iter().for_each(|incoming| {
                let _gone = incoming.reject(world.driver.drive(), &[]);
            });
            world.end();
        }
    }
}

/// A failed `attach` ends both sides.
fn attach_fails<S: Make<SimDevice>>() {
    for mode in MODES {
        let mut world = World::<S>::new(&sim_host(), mode, true);
        world.listen();
        world.dial(SOON);
        world.until(|world| world.incoming.is_some()).unwrap();
        let incoming = world.incoming.take().unwrap();
        let (id, drive) = (incoming.id(), world.driver.drive());
        let failed = incoming.accept::<_, _, _, (), _>(drive, ConnParam::default(), &[], Time::NEVER, |drive, id| {
            drive.attach_qp(id, |_, _| Err(Errno::ENOMEM.into()))
        });
        assert_eq!(failed.unwrap_err().errno(), Errno::ENOMEM);
        assert_eq!(drive.core().state(id), None);
        // The destroy has rejected the peer.
        assert_eq!(world.until(|_| false).unwrap_err().errno(), Errno::ECONNREFUSED);
        world.end();
    }
}

/// Another driver than that of the listener accepts a request.
fn handed_over<S: Make<SimDevice>>() {
    let host = sim_host();
    for (mode, with_qp) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let mut acceptor = World::<S>::new(&host, mode, with_qp);
        let mut worker = World::<S>::new(&host, mode, with_qp);
        acceptor.listen();
        acceptor.dial(SOON);
        acceptor.until(|world| world.incoming.is_some()).unwrap();
        let released = acceptor.incoming.take().unwrap().release(acceptor.driver.drive()).unwrap();
        assert_eq!(&released.private_data()[..5], b"hello");
        // Only the listener and the active side are left.
        assert_eq!(acceptor.driver.drive().core().ids().count(), 2);
        let channel = worker.channel;
        worker.incoming = Some(released.adopt(worker.driver.drive(), channel).unwrap());
        worker.accept();
        acceptor.until(|world| world.connected[0].is_some()).unwrap();
        worker.until(|world| world.connected[1].is_some()).unwrap();
        worker.end();
        acceptor.end();
    }
}

/// A full driver refuses the request, and the peer is rejected.
#[test]
fn a_full_driver_adopts_nothing() {
    let host = sim_host();
    let mut acceptor = World::<OnEpoll<_>>::new(&host, Mode::Channel(Acks::OnDelivery), true);
    acceptor.listen();
    acceptor.dial(SOON);
    acceptor.until(|world| world.incoming.is_some()).unwrap();
    let released = acceptor.incoming.take().unwrap().release(acceptor.driver.drive()).unwrap();
    let limits = cmid_proto::Limits { ids: 1, ..cmid_proto::Limits::SINGLE };
    let mut full = cmid_epoll::Epoll::new(host.device(), cmid_epoll::Config { limits, ..Default::default() }).unwrap();
    full.drive().create_id(None, PortSpace::Tcp).unwrap();
    assert_eq!(released.adopt(full.drive(), None).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(acceptor.until(|_| false).unwrap_err().errno(), Errno::ECONNREFUSED);
    acceptor.end();
}

/// A lookup of a datagram service: the accept ends with its call.
#[test]
fn datagrams() {
    let mut driver = OnEpoll::<_>::make(sim_host().device()).unwrap();
    let drive = driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let listener = drive.create_id(Some(channel), PortSpace::Udp).unwrap();
    drive.bind(listener, addr()).unwrap();
    drive.listen(listener, 4).unwrap();
    let to = DialTo { port_space: PortSpace::Udp, ..DialTo::new(addr()) };
    let mut dial = Dial::start(drive, Some(channel), &to, Time::NEVER).unwrap();
    let (mut server, begun) = (None, Instant::now());
    let client = loop {
        assert!(begun.elapsed() < SOON);
        driver.wait(Some(Duration::from_millis(20))).unwrap();
        let drive = driver.drive();
        let Some(event) = drive.next_event(channel) else { continue };
        match Incoming::new(drive, event) {
            Ok(incoming) => {
                let param = ConnParam { qp_num: 77, ..ConnParam::default() };
                let accepted =
                    incoming.accept(drive, param, b"here", Time::NEVER, |_, _| Ok::<_, cmid_proto::Error>(()));
                server = accepted.unwrap().poll(drive).unwrap();
            }
            Err(event) => {
                if let Some(connected) = dial.handle(drive, event, |_, _| Ok::<_, cmid_proto::Error>(())).unwrap() {
                    break connected;
                }
            }
        }
    };
    let drive = driver.drive();
    assert_eq!((client.datagram.unwrap().qp_num, &client.private_data[..4]), (77, &b"here"[..]));
    assert_eq!(drive.core().state(server.unwrap().id), Some(State::SidrResolved));
}

macro_rules! with_each_driver {
    ($($case:ident),+) => { $(
        mod $case {
            use super::*;
            #[test]
            fn on_mio() {
                super::$case::<OnMio<SimDevice>>();
            }
            #[test]
            fn on_epoll() {
                super::$case::<OnEpoll<SimDevice>>();
            }
            #[test]
            fn on_blocking() {
                super::$case::<OnBlocking<SimDevice>>();
            }
        }
    )+ };
}

with_each_driver!(both_sides, rejected, too_late, cancelled, attach_fails, handed_over);
