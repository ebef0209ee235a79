//! A listener that moves back and forth between two reactors while a peer connects to it.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cmid_harness::{Driver, Env};
use cmid_proto::drive::ReleasedId;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Device, Event, IdKey, PortSpace, Time};

use crate::dial;
use crate::on::On;

/// Upper bound of a wait: a lost move would wait for ever.
const PATIENCE: Duration = Duration::from_secs(120);
const BACKLOG: i32 = 128;

/// The process that connects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A thread of this process.
    Thread,
    /// This program again.
    Process(On),
}

/// An id in transit from one reactor to the other.
type InTransit<S> = ReleasedId<<<S as Driver>::Device as Device>::Handle>;

/// The parameters that both reactors and the run share.
struct Plan {
    address: SocketAddr,
    /// The listener moves after this many requests.
    requests_per_move: u32,
    moves: AtomicU32,
    qp_num: AtomicU32,
    over: AtomicBool,
}

/// Runs both reactors and the peer, and compares the accepted connections with the requested ones.
pub(crate) fn run<L: Env>(env: &L, moves: u32, connections: u32, peer: Peer) -> Result<()> {
    ensure!(moves > 0 && connections >= moves, "at least one connection for each move");
    let (port, qp_num) = env.fresh();
    let plan = Plan {
        address: SocketAddr::new(env.net().server, port),
        // Requests that wait when the move is due are served first.
        requests_per_move: (connections / moves / 2).max(1),
        moves: AtomicU32::new(0),
        qp_num: AtomicU32::new(qp_num),
        over: AtomicBool::new(false),
    };
    let (to_first, at_first) = channel();
    let (to_second, at_second) = channel();
    let (ready, listens) = channel();
    let began = Instant::now();
    let (first, second, dialled) = thread::scope(|scope| {
        let first = scope.spawn(|| Reactor::new(env, &plan)?.listen(ready)?.run(at_first, to_second));
        let second = scope.spawn(|| Reactor::new(env, &plan)?.run(at_second, to_first));
        let dialled = match listens.recv() {
            Ok(()) => connect(env, &plan, connections, peer),
            Err(_) => Err(anyhow!("the listener could not be made")),
        };
        plan.over.store(true, Ordering::Relaxed);
        let joined = |it: thread::ScopedJoinHandle<'_, Result<Vec<u32>>>| {
            it.join().unwrap_or_else(|_| Err(anyhow!("a reactor panicked")))
        };
        (joined(first), joined(second), dialled)
    });
    let (first, second) = (first.context("the first reactor")?, second.context("the second reactor")?);
    dialled?;
    let made = plan.moves.load(Ordering::Relaxed);
    let mut all: Vec<u32> = first.iter().chain(&second).copied().collect();
    all.sort_unstable();
    println!(
        "{} connections accepted, {} by the first reactor and {} by the second; the listener moved {made} times; {:.1} s",
        all.len(),
        first.len(),
        second.len(),
        began.elapsed().as_secs_f64()
    );
    ensure!(all == (0..connections).collect::<Vec<_>>(), "not each connection was accepted exactly once: {all:?}");
    ensure!(made >= moves, "the listener moved {made} times, not {moves}");
    Ok(())
}

fn connect<L: Env>(env: &L, plan: &Plan, connections: u32, peer: Peer) -> Result<()> {
    let Peer::Process(on) = peer else { return dial::run(env, plan.address, connections) };
    let itself = std::env::current_exe().context("the program's own path")?;
    let (driver, device) = (format!("{:?}", on.driver).to_lowercase(), format!("{:?}", on.device).to_lowercase());
    let status = Command::new(itself)
        .args(["dial", &plan.address.to_string(), "--connections", &connections.to_string()])
        .args(["--driver", &driver, "--device", &device])
        .status()
        .context("the peer")?;
    ensure!(status.success(), "the peer: {status}");
    Ok(())
}

/// One event loop: a channel for everything that it serves, and at times the listener.
struct Reactor<'plan, S> {
    driver: S,
    channel: ChannelKey,
    listener: Option<IdKey>,
    plan: &'plan Plan,
    /// Requests since the listener's arrival.
    requests: u32,
    open: u32,
    /// The numbers of the connections that were established.
    accepted: Vec<u32>,
}

impl<'plan, S: Driver> Reactor<'plan, S> {
    fn new<L: Env<Driver = S>>(env: &L, plan: &'plan Plan) -> Result<Self> {
        let mut driver = env.driver().map_err(|failure| anyhow!("{failure}"))?;
        let channel = driver.drive().open_channel(Acks::OnDelivery)?;
        Ok(Reactor { driver, channel, listener: None, plan, requests: 0, open: 0, accepted: Vec::new() })
    }

    fn listen(mut self, ready: Sender<()>) -> Result<Self> {
        let drive = self.driver.drive();
        let id = drive.create_id(Some(self.channel), PortSpace::Tcp)?;
        drive.bind(id, self.plan.address)?;
        drive.listen(id, BACKLOG)?;
        self.listener = Some(id);
        ready.send(())?;
        Ok(self)
    }

    /// Serves until the run is over. Passes the listener on after its share of requests.
    fn run(mut self, inbox: Receiver<InTransit<S>>, outbox: Sender<InTransit<S>>) -> Result<Vec<u32>> {
        let mut last = Instant::now();
        loop {
            if let Ok(released_id) = inbox.try_recv() {
                let id = self.driver.drive().adopt(released_id).map_err(|not| not.error)?;
                self.driver.drive().migrate(id, Some(self.channel), Time::NEVER)?;
                (self.listener, self.requests) = (Some(id), 0);
            }
            self.driver.wait(Some(Duration::from_millis(1)))?;
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                self.handle(&event)?;
                last = Instant::now();
            }
            let over = self.plan.over.load(Ordering::Relaxed);
            if let Some(listener) = self.listener
                && self.requests >= self.plan.requests_per_move
            {
                self.listener = None;
                let released_id = self.let_go(listener)?;
                self.plan.moves.fetch_add(1, Ordering::Relaxed);
                // After the end of the run nothing receives it: it is dropped, and the listener with it.
                let _ = outbox.send(released_id);
            }
            if over && self.open == 0 {
                return Ok(self.accepted);
            }
            ensure!(last.elapsed() < PATIENCE || self.open == 0, "{} connections hang", self.open);
        }
    }

    /// Releases the listener from this reactor. Serves the requests that the driver has read; those in the kernel
    /// move along.
    fn let_go(&mut self, listener: IdKey) -> Result<InTransit<S>> {
        let drive = self.driver.drive();
        drive.migrate(listener, None, Time::NEVER)?;
        let Some(home) = drive.core().channel(listener) else { bail!("the listener is gone") };
        while let Some(event) = self.driver.drive().next_event(home) {
            self.driver.drive().migrate(event.id, Some(self.channel), Time::NEVER)?;
            self.handle(&event)?;
        }
        Ok(self.driver.drive().release(listener)?)
    }

    fn handle(&mut self, event: &Event) -> Result<()> {
        let (id, drive) = (event.id, self.driver.drive());
        match event.cm() {
            Some(CmEvent::ConnectRequest) => {
                let number = event.private_data.first_chunk::<4>().context("a request without a number")?;
                let qp_num = self.plan.qp_num.fetch_add(1, Ordering::Relaxed);
                let param = ConnParam { qp_num, ..ConnParam::default() };
                drive.accept(id, param, number, drive.within(PATIENCE))?;
                self.accepted.push(u32::from_be_bytes(*number));
                self.requests += 1;
                self.open += 1;
            }
            Some(CmEvent::Established) => {}
            Some(CmEvent::Disconnected) => {
                drive.disconnect(id, Time::NEVER)?;
                drive.destroy(id, Time::NEVER)?;
                self.open -= 1;
            }
            Some(_) | None => bail!("{} of {id} with status {}", event.kind, event.status),
        }
        Ok(())
    }
}
