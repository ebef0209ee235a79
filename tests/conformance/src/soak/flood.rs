//! Connects more peers than the backlog to a listener with an application that reads no requests. Measures what the
//! server holds, how often its driver wakes, and how long an event of another channel takes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_harness::{Devices, Env};
use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, ConnParam, Device, DeviceLayer, IdKey, Limits, Outcome, Pollable, PortSpace, Time,
};

/// Upper bound of each step, also on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// An event that has not arrived by then never does.
const SOON: Duration = Duration::from_secs(2);
/// A period without events for the server, and how often its wait may return in it.
const QUIET: Duration = Duration::from_millis(200);
const RETURNS_MAX: u32 = 20;
/// Upper bound of device calls for one request of the application, or one turn of the driver.
const CALLS_MAX: u32 = 300;
const FIRST_QP: u32 = 0x20_0000;

/// A device that counts its calls.
struct Counting<D> {
    device: D,
    calls: Rc<Cell<u32>>,
}

impl<D: Device> DeviceLayer for Counting<D> {
    cmid_proto::layer_on!(device: D);
    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.calls.set(self.calls.get() + 1);
        self.device.call(call, private_data)
    }
}

impl<D: Pollable> Pollable for Counting<D> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }
    fn sibling(&self) -> Self {
        Counting { device: self.device.sibling(), calls: Rc::default() }
    }
}

/// The measured values.
#[derive(Debug, Default)]
struct Figures {
    ids: usize,
    untaken: usize,
    returns: u32,
    disconnected: Option<Duration>,
    has_free_id: bool,
    calls_at_once: u32,
    calls_in_a_turn: u32,
}

/// Runs with limits that the peers could exhaust, and with the usual limits.
pub(crate) fn run<L: Env + Devices>(env: &L, peers: u32, backlog: u16) -> Result<()>
where
    L::Device: Pollable,
{
    let tight = Limits { ids: 128, events: 64, ..Limits::LARGE };
    let mut wrong = Vec::new();
    for (name, limits) in [("128 ids and 64 events", tight), ("the usual limits", Limits::LARGE)] {
        let mut fixture = FloodFixture::new(env, limits, peers)?;
        let figures = fixture.measure(backlog)?;
        println!("{peers} peers, backlog {backlog}, {name}:");
        println!("  ids held at most: {}; of requests that nobody has taken: {}", figures.ids, figures.untaken);
        println!("  wait returned {} times in {} ms in which nothing happened", figures.returns, QUIET.as_millis());
        match figures.disconnected {
            Some(after) => println!("  DISCONNECTED on the other channel after {:.1} ms", after.as_secs_f64() * 1e3),
            None => println!("  DISCONNECTED on the other channel: not within {SOON:?}"),
        }
        println!("  an id for an outbound connection: {}", if figures.has_free_id { "yes" } else { "no" });
        println!(
            "  device calls when the listener moves: {} at once, then at most {} in a turn",
            figures.calls_at_once, figures.calls_in_a_turn
        );
        wrong.extend(figures.wrong(backlog).into_iter().map(|what| format!("with {name}: {what}")));
        let answered = fixture.answer()?;
        println!("  requests answered when the application takes them at last: {answered}");
        // The core holds as many as the backlog, and so does the kernel. The kernel has dropped the others.
        if answered < (2 * usize::from(backlog)).min(peers as usize) {
            wrong.push(format!("with {name}: requests that waited in the kernel are lost"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

impl Figures {
    fn wrong(&self, backlog: u16) -> Vec<&'static str> {
        let laws = [
            (self.untaken > usize::from(backlog), "more untaken requests than the backlog allows"),
            (self.untaken == 0, "no request was read"),
            (self.returns > RETURNS_MAX, "wait returns although nothing happens"),
            (self.disconnected.is_none(), "DISCONNECTED was not delivered"),
            (!self.has_free_id, "no id is left for an outbound connection"),
            (self.calls_at_once > 0, "device calls for requests whose listener moves"),
            (self.calls_in_a_turn > CALLS_MAX, "too many device calls at a time"),
        ];
        laws.into_iter().filter(|(broken, _)| *broken).map(|(_, what)| what).collect()
    }
}

struct FloodFixture<D: Pollable> {
    server: Epoll<Counting<D>>,
    calls: Rc<Cell<u32>>,
    busy: ChannelKey,
    listener: IdKey,
    client: Epoll<D>,
    dials: ChannelKey,
    from: SocketAddr,
    to: SocketAddr,
    peers: u32,
    /// Clients that have sent a request to connect.
    asked: BTreeSet<IdKey>,
    answered: BTreeSet<IdKey>,
}

impl<D: Pollable> FloodFixture<D> {
    fn new<L: Env + Devices<Device = D>>(env: &L, limits: Limits, peers: u32) -> Result<Self> {
        let device = || env.device().map_err(|failure| anyhow!("{failure}"));
        let calls = Rc::new(Cell::new(0));
        let counting = Counting { device: device()?, calls: Rc::clone(&calls) };
        let mut server = Epoll::new(counting, Config { limits, ..Config::default() })?;
        let mut client = Epoll::new(device()?, Config::default())?;
        let to = SocketAddr::new(env.net().server, env.fresh().0);
        let busy = server.drive().open_channel(Acks::OnDelivery)?;
        let listener = server.drive().create_id(Some(busy), PortSpace::Tcp)?;
        server.drive().bind(listener, to)?;
        let dials = client.drive().open_channel(Acks::OnDelivery)?;
        let from = SocketAddr::new(env.net().client, 0);
        let (asked, answered) = (BTreeSet::new(), BTreeSet::new());
        Ok(FloodFixture { server, calls, busy, listener, client, dials, from, to, peers, asked, answered })
    }

    fn measure(&mut self, backlog: u16) -> Result<Figures> {
        self.server.drive().listen(self.listener, i32::from(backlog))?;
        let calm = self.server.drive().open_channel(Acks::OnDelivery)?;
        let peer = self.connect_one(calm)?;
        let mut figures = Figures::default();
        let (asked, mut left) = (self.asked.len() + self.peers as usize, self.peers);
        self.until(|fixture| {
            figures.ids = figures.ids.max(fixture.server.drive().core().ids().count());
            // Not more at a time than the kernel keeps, because it drops the others.
            let some = left.min(4);
            left -= some;
            for _ in 0..some {
                fixture.dial()?;
            }
            Ok(fixture.asked.len() == asked)
        })?;
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            self.pump()?;
            figures.ids = figures.ids.max(self.server.drive().core().ids().count());
        }
        // Without the listener and the connection of the other channel.
        figures.untaken = figures.ids - 2;
        // The requests that wait are no reason to run an application that takes none.
        self.server.drive().pause_channel(self.busy)?;
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            self.server.wait(Some(Duration::from_millis(50)))?;
            figures.returns += 1;
        }
        self.client.drive().disconnect(peer, Time::NEVER)?;
        figures.disconnected = self.disconnected(calm)?;
        let spare = self.server.drive().create_id(Some(calm), PortSpace::Tcp);
        figures.has_free_id = spare.is_ok();
        if let Ok(spare) = spare {
            self.server.drive().destroy(spare, Time::NEVER)?;
        }
        self.move_listener(&mut figures)?;
        Ok(figures)
    }

    fn move_listener(&mut self, figures: &mut Figures) -> Result<()> {
        let to = self.server.drive().open_channel(Acks::OnDelivery)?;
        self.calls.set(0);
        self.server.drive().migrate(self.listener, Some(to), Time::NEVER)?;
        figures.calls_at_once = self.calls.take();
        for _ in 0..20 {
            let _rest = self.server.turn()?;
            figures.calls_in_a_turn = figures.calls_in_a_turn.max(self.calls.take());
        }
        self.busy = to;
        Ok(())
    }

    /// Makes a connection. Its server id is on a channel of its own.
    fn connect_one(&mut self, calm: ChannelKey) -> Result<IdKey> {
        let peer = self.dial()?;
        let mut child = None;
        self.until(|fixture| {
            if let Some(event) = fixture.server.drive().next_event(fixture.busy) {
                fixture.server.drive().migrate(event.id, Some(calm), Time::NEVER)?;
                let param = ConnParam { qp_num: FIRST_QP - 1, ..ConnParam::default() };
                fixture.server.drive().accept(event.id, param, &[], Time::NEVER)?;
                child = Some(event.id);
            }
            Ok(child
                .is_some_and(|child| fixture.server.drive().next_event(calm).is_some_and(|event| event.id == child)))
        })?;
        self.answered.remove(&peer);
        Ok(peer)
    }

    fn disconnected(&mut self, calm: ChannelKey) -> Result<Option<Duration>> {
        let began = Instant::now();
        while began.elapsed() < SOON {
            self.server.wait(Some(Duration::from_millis(5)))?;
            self.client.wait(Some(Duration::ZERO))?;
            if self.server.drive().next_event(calm).is_some_and(|event| event.cm() == Some(CmEvent::Disconnected)) {
                return Ok(Some(began.elapsed()));
            }
        }
        Ok(None)
    }

    /// The application reads the requests and rejects these peers. Returns how many receive the rejection.
    fn answer(&mut self) -> Result<usize> {
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            while let Some(event) = self.server.drive().next_event(self.busy) {
                ensure!(event.cm() == Some(CmEvent::ConnectRequest), "{} of {}", event.kind, event.id);
                self.server.drive().reject(event.id, b"no")?;
                self.server.drive().destroy(event.id, Time::NEVER)?;
            }
            self.pump()?;
        }
        Ok(self.answered.len())
    }

    fn dial(&mut self) -> Result<IdKey> {
        let drive = self.client.drive();
        let id = drive.create_id(Some(self.dials), PortSpace::Tcp)?;
        drive.resolve_addr(id, Some(self.from), self.to, drive.within(PATIENCE))?;
        Ok(id)
    }

    fn until(&mut self, mut done: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !done(self)? {
            ensure!(Instant::now() < end, "nothing for {PATIENCE:?}");
            self.pump()?;
        }
        Ok(())
    }

    /// Runs both drivers once, and handles the clients' events.
    fn pump(&mut self) -> Result<()> {
        self.server.wait(Some(Duration::from_millis(1)))?;
        self.client.wait(Some(Duration::from_millis(1)))?;
        while let Some(event) = self.client.drive().next_event(self.dials) {
            let (id, drive) = (event.id, self.client.drive());
            match event.cm() {
                Some(CmEvent::AddrResolved) => drive.resolve_route(id, drive.within(PATIENCE))?,
                Some(CmEvent::RouteResolved) => {
                    let qp_num = FIRST_QP + u32::try_from(self.asked.len())?;
                    drive.connect(id, ConnParam { qp_num, ..ConnParam::default() }, &[], Time::NEVER)?;
                    self.asked.insert(id);
                }
                Some(CmEvent::ConnectResponse) => drive.establish(id)?,
                Some(CmEvent::Rejected) => {
                    ensure!(self.answered.insert(id), "{id} was answered twice");
                    drive.destroy(id, Time::NEVER)?;
                }
                Some(CmEvent::Disconnected | CmEvent::TimewaitExit) => {}
                Some(_) | None => bail!("{} of {id} with status {}", event.kind, event.status),
            }
        }
        Ok(())
    }
}
