//! Programs for tokio in worlds of the simulator: in virtual time, under faults, with the same outcome for the same seed.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cmid_tokio::proto::Errno;
use cmid_tokio::sim::{Config, Fault, Host, Node, SimDevice, World, check};
use cmid_tokio::{Channel, Connection, Listener, Options, SimRuntime};
use common::attach;
use common::channels::CONFIG;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7471;

fn options() -> Options<'static> {
    Options { timeout: SECOND, ..Options::default() }
}

/// Sends back what it receives, each connection in a task of its own.
async fn serve(mut listener: Listener<SimDevice>) -> io::Result<()> {
    loop {
        let incoming = listener.accept().await?;
        tokio::spawn(async move {
            let mut channel = Channel::accept(incoming, CONFIG, &options()).await?;
            while let Some(message) = channel.recv().await? {
                channel.send(&message).await?;
            }
            channel.finish().await
        });
    }
}

/// A server that listens again after its device is gone.
fn server(node: &Node) -> SimRuntime {
    let here = node.clone();
    SimRuntime::new(node, async move {
        loop {
            if let Ok(listener) = Listener::bind(here.device(), here.addr(PORT)) {
                let _ended = serve(listener).await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Sends the numbers from 1 to 20, and gets each of them back.
async fn talk(device: SimDevice, server: SocketAddr) -> io::Result<()> {
    let mut channel = Channel::connect(device, server, CONFIG, &options()).await?;
    for number in 1..=20_u64 {
        channel.send(&number.to_le_bytes()).await?;
        let back = channel.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        assert_eq!(*back, number.to_le_bytes());
        sleep(Duration::from_millis(1)).await;
    }
    channel.close(SECOND).await
}

/// Talks until it has succeeded, and counts its attempts.
fn client(node: &Node, attempts: &Rc<Cell<u32>>) -> SimRuntime {
    let (here, attempts) = (node.clone(), Rc::clone(attempts));
    SimRuntime::new(node, async move {
        loop {
            attempts.set(attempts.get() + 1);
            let talk = talk(here.device(), here.addr_of("server", PORT));
            if matches!(timeout(3 * SECOND, talk).await, Ok(Ok(()))) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
}

/// Adds the programs, on hosts that it returns. The counter is of the client's attempts.
fn programs(world: &mut World) -> ([Host; 2], Rc<Cell<u32>>) {
    let attempts = Rc::new(Cell::new(0));
    let counted = Rc::clone(&attempts);
    let hosts = [world.host("server", server), world.client("client", move |node| client(node, &counted))];
    (hosts, attempts)
}

/// Adds the programs, and faults. Returns the counter of the client's attempts.
fn talks(world: &mut World, faults: usize) -> Rc<Cell<u32>> {
    let (_, attempts) = programs(world);
    world.chaos(faults, Duration::from_millis(40), &Fault::ALL);
    attempts
}

#[test]
fn a_program_for_tokio_succeeds_under_any_faults() {
    let most = Cell::new(0);
    check(0..60, |world| {
        let attempts = talks(world, 4);
        world.run(60 * SECOND);
        most.set(most.get().max(attempts.get()));
    });
    assert!(most.get() > 1, "no fault was met");
}

/// The n-th call of a device fails, for each n, and the one behind it too: it costs the client an attempt, and no time-out.
#[test]
fn any_call_of_a_device_may_fail() {
    for (at, failures) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
        for calls in 0.. {
            let mut world = World::new(&Config::default());
            let (hosts, attempts) = programs(&mut world);
            let errno = [Errno::ENOMEM, Errno::EINVAL, Errno::EIO, Errno::ENODEV][calls as usize % 4];
            [calls, 0][..failures].iter().for_each(|&after| hosts[at].fail_call(after, errno));
            world.run(SECOND / 10);
            if hosts[at].calls_to_fail() == failures {
                assert!(calls >= 12);
                break;
            }
            assert!(attempts.get() as usize <= 1 + failures);
        }
    }
}

#[test]
fn a_crash_drops_every_task_and_a_restart_begins_anew() {
    check(0..5, |world| {
        let (lives, starts) = (Arc::new(()), Rc::new(Cell::new(0)));
        let (held, counted) = (Arc::clone(&lives), Rc::clone(&starts));
        world.host("server", move |node| {
            counted.set(counted.get() + 1);
            let (listener, held) = (Listener::bind(node.device(), node.addr(PORT)).unwrap(), Arc::clone(&held));
            SimRuntime::new(node, async move {
                tokio::spawn(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                });
                serve(listener).await.unwrap();
            })
        });
        world.run_for(SECOND / 100);
        assert_eq!((Arc::strong_count(&lives), starts.get()), (3, 1));
        world.crash("server");
        assert_eq!(Arc::strong_count(&lives), 2, "a task has survived");
        world.restart("server");
        world.run_for(SECOND / 100);
        assert_eq!((Arc::strong_count(&lives), starts.get()), (3, 2));
    });
}

#[test]
fn a_peer_sees_the_end_of_a_program_that_crashes() {
    check(0..5, |world| {
        world.host("server", |node| {
            let mut listener = Listener::bind(node.device(), node.addr(PORT)).unwrap();
            SimRuntime::new(node, async move {
                let incoming = listener.accept().await.unwrap();
                let (mut connection, _port) = incoming.accept(&options(), attach).await.unwrap();
                connection.closed().await.unwrap();
            })
        });
        let is_connected = Rc::new(Cell::new(false));
        let noted = Rc::clone(&is_connected);
        world.client("client", move |node| {
            let (here, noted) = (node.clone(), Rc::clone(&noted));
            SimRuntime::new(node, async move {
                let (server, options) = (here.addr_of("server", PORT), options());
                let connect = Connection::connect(here.device(), server, &options, attach);
                let (mut connection, _port) = connect.await.unwrap();
                noted.set(true);
                connection.closed().await.unwrap();
            })
        });
        world.run_until("connected", SECOND, |_| is_connected.get());
        world.run_for(SECOND);
        assert!(!world.is_done("client"));
        world.crash("server");
        world.run(SECOND / 10);
    });
}

#[test]
fn a_program_is_polled_only_when_it_is_woken() {
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    let mut world = World::new(&Config::default());
    world.client("a", move |node| {
        let (polls, mut waits) = (Rc::clone(&counted), None);
        let future = poll_fn(move |context| {
            polls.set(polls.get() + 1);
            waits.get_or_insert_with(|| Box::pin(sleep(SECOND))).as_mut().poll(context)
        });
        SimRuntime::new(node, future)
    });
    world.run(2 * SECOND);
    assert_eq!(polls.get(), 2);
}

#[test]
fn timers_are_in_the_time_of_the_host() {
    let mut world = World::new(&Config::default());
    for (name, drift) in [("a", 0), ("b", 100_000)] {
        world.client(name, |node| {
            let here = node.clone();
            SimRuntime::new(node, async move {
                let (start, began) = (Instant::now(), here.now());
                sleep_until(start + SECOND).await;
                assert_eq!(start.elapsed(), here.now().since(began));
                assert_eq!(start.elapsed().as_millis(), 1000);
                assert!(timeout(SECOND, std::future::pending::<()>()).await.is_err());
            })
        });
        world.skew_clock(name, 7 * SECOND, drift);
    }
    // A clock that is a tenth faster is through with two seconds after 1.82 s.
    world.run_until("b is done", 2 * SECOND, |world| world.is_done("b"));
    let at = world.now().since(cmid_tokio::proto::Time::ZERO);
    assert!((1818..1822).contains(&at.as_millis()), "{at:?}");
    world.run_until("a is done", SECOND, |world| world.is_done("a"));
    let at = world.now().since(cmid_tokio::proto::Time::ZERO);
    assert!((2000..2003).contains(&at.as_millis()), "{at:?}");
}

/// The trace and the chart of a world under faults.
fn run(seed: u64) -> String {
    let mut world = World::logged(&Config { seed, ..Config::default() });
    talks(&mut world, 4);
    world.run(60 * SECOND);
    world.trace() + &world.chart()
}

#[test]
fn the_same_seed_is_the_same_world_byte_by_byte() {
    for seed in 0..10 {
        let [one, two] = [(); 2].map(|()| run(seed));
        let differ = one.lines().zip(two.lines()).find(|(one, two)| one != two);
        assert!(one == two && one.lines().count() > 20, "seed {seed}: {differ:?} in {}", one.lines().count());
    }
    assert_ne!(run(0), run(1));
}

/// Two processes differ in the addresses of memory and the seeds of hash maps, and in what tokio draws from them.
#[test]
fn the_same_seed_is_the_same_world_in_another_process() {
    const FILE: &str = "CMID_TEST_WORLD";
    let world = (0..10).map(run).collect::<String>();
    if let Ok(file) = std::env::var(FILE) {
        return std::fs::write(file, world).unwrap();
    }
    let file = std::env::temp_dir().join(format!("cmid-tokio-world-{}", std::process::id()));
    let name = std::thread::current().name().unwrap().to_owned();
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", &name]).env(FILE, &file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let other = std::fs::read_to_string(&file);
    std::fs::remove_file(&file).unwrap();
    assert!(other.unwrap() == world, "the worlds of two processes differ");
}
