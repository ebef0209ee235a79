//! The RDMA device goes while ids are in every state and connections come and go, and comes back.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use cmid_conformance::{Check, Driver, Env, Fixture, Side};
use cmid_proto::{Acks, CmEvent, EventKind, IdKey, PortSpace, RequestKind, State, Time};

use crate::cycles;

/// The device of the project's VM, and what it is on.
const DEVICE: &str = "rxe0";
const UNDER_IT: &str = "dummy0";
/// Emulated machines are slow.
const SOON: Duration = Duration::from_secs(20);
const CYCLES_BEFORE: u32 = 20;
const CYCLES_AFTER: u32 = 50;

/// Brings ids into every state, takes the device away under load, and checks what each was told.
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
                    // It comes back only when every program has let go of the device.
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
                println!("round {round}: ids in {ids} states told and destroyed");
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

/// The kernel finishes the removal when nobody has the device open. librdmacm has, for as long as the program lives, until
/// it looks again which devices there are and finds that this one is gone.
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

/// Connects and disconnects until that fails because the device is gone; then everything must still be destroyed.
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
        destroy_all(fixture.endpoint(side).drive())?;
    }
    Ok(made)
}

/// Every id of a driver: what it was told does not matter, but it must go.
fn destroy_all<D: cmid_proto::Device>(drive: &mut cmid_proto::Drive<D>) -> Result<()> {
    for id in drive.core().id_keys().collect::<Vec<_>>() {
        drive.destroy(id, Time::NEVER).with_context(|| format!("destroying {id}"))?;
    }
    ensure!(drive.core().ids() == 0, "{} ids are left", drive.core().ids());
    Ok(())
}

/// How an id gets into a state.
type Make<L> = fn(&mut Fixture<'_, L>) -> Check<IdKey>;

/// A state, whose side the id is on, how it gets there, and whether the kernel tells it of the removal: it does if the id
/// is bound to the device and, on the passive side, accepted (`cma_process_remove`, `ucma_event_handler`).
fn stages<L: Env>() -> Vec<(State, Side, Make<L>, bool)> {
    use Side::{Client, Server};
    vec![
        (State::Idle, Client, |b| create(b), false),
        (State::Bound, Client, |b| bound(b), true),
        (State::AddrResolving, Client, |b| resolving(b), true),
        (State::AddrResolved, Client, |b| b.addr_resolved(), true),
        (State::RouteResolved, Client, |b| b.resolved(), true),
        (State::Connecting, Client, |b| requested(b).map(|(client, _)| client), true),
        (State::Requested, Server, |b| requested(b).map(|(_, server)| server), false),
        (State::Accepting, Server, |b| accepted(b).map(|(_, server)| server), true),
        (State::Responded, Client, |b| responded(b), true),
        (State::Connected, Client, |b| connected(b).map(|(client, _)| client), true),
        (State::Connected, Server, |b| connected(b).map(|(_, server)| server), true),
        (State::Disconnecting, Client, |b| disconnecting(b).map(|(client, _)| client), true),
        (State::PeerClosed, Server, |b| disconnecting(b).map(|(_, server)| server), true),
        (State::Failed, Client, |b| rejected(b), true),
        (State::Listening, Server, |b| b.listen(), true),
        (State::Listening, Server, |b| wildcard(b), false),
    ]
}

fn create<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let channel = b.client.channel;
    Ok(b.client.drive().create_id(Some(channel), PortSpace::Tcp)?)
}

fn bound<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (id, here) = (create(b)?, SocketAddr::new(b.net().client, 0));
    b.client.drive().bind(id, here)?;
    Ok(id)
}

fn resolving<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (id, nobody) = (bound(b)?, SocketAddr::new(b.net().nobody, 7471));
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

fn requested<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.requested()
}

fn accepted<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = requested(b)?;
    b.accept(server, &[])?;
    Ok((client, server))
}

fn responded<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (client, _) = accepted(b)?;
    b.until(Side::Client, client, State::Responded)?;
    Ok(client)
}

fn connected<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.connected()
}

fn disconnecting<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = connected(b)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.until(Side::Server, server, State::PeerClosed)?;
    Ok((client, server))
}

fn rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (client, server) = requested(b)?;
    b.server.drive().reject(server, &[])?;
    b.until(Side::Client, client, State::Failed)?;
    Ok(client)
}

/// An id in a state, with drivers of its own.
struct Staged<'env, L: Env> {
    fixture: Fixture<'env, L>,
    state: State,
    side: Side,
    id: IdKey,
    is_told: bool,
}

impl<'env, L: Env> Staged<'env, L> {
    fn new(env: &'env L, (state, side, make, is_told): (State, Side, Make<L>, bool)) -> Result<Self> {
        let observed = |failure| anyhow!("making an id {state}: {failure}");
        let mut fixture = Fixture::new(env, Acks::OnDelivery).map_err(observed)?;
        let id = make(&mut fixture).map_err(observed)?;
        let is = fixture.endpoint(side).drive().core().state(id);
        ensure!(is == Some(state), "an id that should be {state} is {is:?}");
        Ok(Staged { fixture, state, side, id, is_told })
    }

    /// The id hears of the removal, once, or not at all.
    fn observed(&mut self) -> Result<()> {
        let (began, mut removals) = (Instant::now(), 0);
        let channel = self.fixture.endpoint(self.side).channel;
        // After the first a second one would come at once.
        let patience = |removals| if removals == 0 && self.is_told { SOON } else { Duration::from_millis(200) };
        while began.elapsed() < patience(removals) {
            let endpoint = self.fixture.endpoint(self.side);
            endpoint.driver.wait(Duration::from_millis(10))?;
            while let Some(event) = endpoint.drive().next_event(channel) {
                let is_removal = event.kind == EventKind::Cm(CmEvent::DeviceRemoval);
                removals += u32::from(is_removal && event.id == self.id);
            }
        }
        let state = self.fixture.endpoint(self.side).drive().core().state(self.id);
        ensure!(removals == u32::from(self.is_told), "an id {}: {removals} times told", self.state);
        let expected = if self.is_told { State::Removed } else { self.state };
        ensure!(state == Some(expected), "an id that was {} is {state:?}", self.state);
        if self.is_told {
            let refused = self.fixture.endpoint(self.side).drive().disconnect(self.id, Time::NEVER);
            ensure!(refused.is_err(), "{} on an id whose device is gone", RequestKind::Disconnect);
        }
        Ok(())
    }

    fn destroy(mut self) -> Result<()> {
        for side in [Side::Client, Side::Server] {
            destroy_all(self.fixture.endpoint(side).drive()).with_context(|| format!("after {}", self.state))?;
        }
        Ok(())
    }
}
