//! The RDMA device is removed while ids are in every state and connections are made and closed, and is added again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use cmid_harness::{Check, Driver, Env, Fixture, Side};
use cmid_proto::{Acks, CmEvent, EventKind, IdKey, PortSpace, RequestKind, State, Time};

use crate::cycles;

/// The device of the project's VM, and its network interface.
const DEVICE: &str = "rxe0";
const UNDER_IT: &str = "dummy0";
/// Emulated machines are slow.
const SOON: Duration = Duration::from_secs(20);
const CYCLES_BEFORE: u32 = 20;
const CYCLES_AFTER: u32 = 50;

/// Brings ids into every state, removes the device under load, and checks the events of each id.
pub(crate) fn run<L: Env>(env: &L) -> Result<()> {
    for round in 1..=2 {
        let mut going = {
            let mut benches =
                stages().into_iter().map(|fixture| Staged::new(env, fixture)).collect::<Result<Vec<_>>>()?;
            let loaded = AtomicBool::new(false);
            let (gone, over) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| -> Result<Child> {
                let load = scope.spawn(|| load(env, &loaded, &gone, &over));
                let result = (|| {
                    let began = Instant::now();
                    while !loaded.load(Ordering::Relaxed) {
                        ensure!(began.elapsed() < SOON, "no load within {SOON:?}");
                        thread::sleep(Duration::from_millis(5));
                    }
                    gone.store(true, Ordering::Relaxed);
                    // The removal ends only when every program has closed the device.
                    let going = rdma(&["link", "delete", DEVICE])?;
                    for staged in &mut benches {
                        staged.observed()?;
                    }
                    Ok(going)
                })();
                over.store(true, Ordering::Relaxed);
                let cycles = load.join().map_err(|_| anyhow!("the load panicked"))??;
                println!("round {round}: the device went under {cycles} connections made");
                result
            })
            .and_then(|going| {
                let ids = benches.len();
                for staged in benches {
                    staged.destroy()?;
                }
                println!("round {round}: ids in {ids} states reported and destroyed");
                Ok(going)
            })?
        };
        let status = let_go(&mut going)?;
        ensure!(status.success(), "rdma link delete: {status}");
        let status = rdma(&["link", "add", DEVICE, "type", "rxe", "netdev", UNDER_IT])?.wait()?;
        ensure!(status.success(), "rdma link add: {status}");
        let began = Instant::now();
        while !Path::new("/sys/class/infiniband").join(DEVICE).exists() {
            ensure!(began.elapsed() < SOON, "the device has not come back within {SOON:?}");
            thread::sleep(Duration::from_millis(20));
        }
        cycles::some(env, CYCLES_AFTER)?;
        println!("round {round}: the device is back, and {CYCLES_AFTER} connections were made on it");
    }
    Ok(())
}

/// Waits for the end of the removal, which the kernel completes when all files of the device are closed. librdmacm
/// keeps one open until it lists the devices again and finds that this one is gone.
fn let_go(going: &mut Child) -> Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = going.try_wait().context("rdma link delete")? {
            return Ok(status);
        }
        ensure!(began.elapsed() < SOON, "the device is not let go of within {SOON:?}");
        cmid_verbs::devices().context("looking for devices")?;
        thread::sleep(Duration::from_millis(50));
    }
}

fn rdma(arguments: &[&str]) -> Result<Child> {
    Command::new("rdma").args(arguments).spawn().with_context(|| format!("rdma {}", arguments.join(" ")))
}

/// Connects and disconnects until that fails because the device is gone. Then everything must still be destroyed.
fn load<L: Env>(env: &L, loaded: &AtomicBool, gone: &AtomicBool, over: &AtomicBool) -> Result<u32> {
    let mut fixture = Fixture::new(env, Acks::OnDelivery).map_err(|failure| anyhow!("{failure}"))?;
    fixture.listen().map_err(|failure| anyhow!("{failure}"))?;
    let mut made = 0;
    let failure = loop {
        if let Err(failure) = cycles::plain(&mut fixture) {
            break failure;
        }
        made += 1;
        if made == CYCLES_BEFORE {
            loaded.store(true, Ordering::Relaxed);
        }
    };
    ensure!(gone.load(Ordering::Relaxed), "after {made} connections, before the device went: {failure}");
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(5));
    }
    for side in [Side::Client, Side::Server] {
        destroy_all(&mut fixture.endpoint(side).driver)?;
    }
    Ok(made)
}

/// Destroys every id of a driver. Their events do not matter.
fn destroy_all(driver: &mut impl Driver) -> Result<()> {
    let drive = driver.drive();
    for id in drive.core().ids().collect::<Vec<_>>() {
        drive.destroy(id, Time::NEVER).with_context(|| format!("destroying {id}"))?;
    }
    ensure!(drive.core().ids().count() == 0, "{} ids are left", drive.core().ids().count());
    Ok(())
}

/// A function that brings an id into a state.
type Make<L> = fn(&mut Fixture<'_, L>) -> Check<IdKey>;

/// The states, each with the side of its id, a function to reach it, and whether the kernel reports the removal. It
/// does if the id is bound to the device and, on the passive side, accepted (`cma_process_remove`,
/// `ucma_event_handler`).
fn stages<L: Env>() -> Vec<(State, Side, Make<L>, bool)> {
    use Side::{Client, Server};
    vec![
        (State::Idle, Client, |b| b.idle(), false),
        (State::Bound, Client, |b| b.bound(), true),
        (State::AddrResolving, Client, |b| resolving(b), true),
        (State::AddrResolved, Client, |b| b.addr_resolved(), true),
        (State::RouteResolved, Client, |b| b.resolved(), true),
        (State::Connecting, Client, |b| client(b, Fixture::requested), true),
        (State::Requested, Server, |b| server(b, Fixture::requested), false),
        (State::Accepting, Server, |b| server(b, Fixture::accepting), true),
        (State::Responded, Client, |b| client(b, Fixture::responded), true),
        (State::Connected, Client, |b| client(b, Fixture::connected), true),
        (State::Connected, Server, |b| server(b, Fixture::connected), true),
        (State::Disconnecting, Client, |b| client(b, Fixture::disconnecting), true),
        (State::PeerClosed, Server, |b| server(b, Fixture::disconnecting), true),
        (State::Failed, Client, |b| client(b, Fixture::rejected), true),
        (State::Listening, Server, |b| b.listen(), true),
        (State::Listening, Server, |b| wildcard(b), false),
    ]
}

fn resolving<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (id, nobody) = (b.bound()?, SocketAddr::new(b.net().nobody, 7471));
    let drive = b.client.drive();
    drive.resolve_addr(id, None, nobody, drive.within(Duration::from_secs(600)))?;
    Ok(id)
}

fn wildcard<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let channel = b.server.channel;
    let drive = b.server.drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.listen(id, 8)?;
    Ok(id)
}

/// A function that makes a connection: the client's id and the server's.
type Pair<'env, L> = fn(&mut Fixture<'env, L>) -> Check<(IdKey, IdKey)>;

fn client<'env, L: Env>(b: &mut Fixture<'env, L>, pair: Pair<'env, L>) -> Check<IdKey> {
    b.listen()?;
    pair(b).map(|(client, _)| client)
}

fn server<'env, L: Env>(b: &mut Fixture<'env, L>, pair: Pair<'env, L>) -> Check<IdKey> {
    b.listen()?;
    pair(b).map(|(_, server)| server)
}

/// An id in a state, with drivers of its own.
struct Staged<'env, L: Env> {
    fixture: Fixture<'env, L>,
    state: State,
    side: Side,
    id: IdKey,
    is_reported: bool,
}

impl<'env, L: Env> Staged<'env, L> {
    fn new(env: &'env L, (state, side, make, is_reported): (State, Side, Make<L>, bool)) -> Result<Self> {
        let observed = |failure| anyhow!("making an id {state}: {failure}");
        let mut fixture = Fixture::new(env, Acks::OnDelivery).map_err(observed)?;
        let id = make(&mut fixture).map_err(observed)?;
        let is = fixture.endpoint(side).drive().core().state(id);
        ensure!(is == Some(state), "an id that should be {state} is {is:?}");
        Ok(Staged { fixture, state, side, id, is_reported })
    }

    /// Checks that the id gets the removal once, or not at all.
    fn observed(&mut self) -> Result<()> {
        let (began, mut removals) = (Instant::now(), 0);
        let channel = self.fixture.endpoint(self.side).channel;
        // After the first removal a second one would arrive at once.
        let patience = |removals| if removals == 0 && self.is_reported { SOON } else { Duration::from_millis(200) };
        while began.elapsed() < patience(removals) {
            let endpoint = self.fixture.endpoint(self.side);
            endpoint.driver.wait(Some(Duration::from_millis(10)))?;
            while let Some(event) = endpoint.drive().next_event(channel) {
                let is_removal = event.kind == EventKind::Cm(CmEvent::DeviceRemoval);
                removals += u32::from(is_removal && event.id == self.id);
            }
        }
        let state = self.fixture.endpoint(self.side).drive().core().state(self.id);
        ensure!(removals == u32::from(self.is_reported), "an id {}: {removals} times reported", self.state);
        let expected = if self.is_reported { State::Removed } else { self.state };
        ensure!(state == Some(expected), "an id that was {} is {state:?}", self.state);
        if self.is_reported {
            let refused = self.fixture.endpoint(self.side).drive().disconnect(self.id, Time::NEVER);
            ensure!(refused.is_err(), "{} on an id whose device is gone", RequestKind::Disconnect);
        }
        Ok(())
    }

    fn destroy(mut self) -> Result<()> {
        for side in [Side::Client, Side::Server] {
            destroy_all(&mut self.fixture.endpoint(side).driver).with_context(|| format!("after {}", self.state))?;
        }
        Ok(())
    }
}
