//! Each future is dropped after each number of polls. Between two polls one thing happens on the simulated fabric, so
//! that it is dropped at each point where it can wait. Afterwards nothing is lost, the next call works, and everything
//! is released.
#![allow(clippy::unwrap_used, reason = "a test")]

mod channels;
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cmid_tokio::proto::datapath::Completion;
use cmid_tokio::proto::{Acks, CmEvent, Limits, PortSpace, State, Time};
use cmid_tokio::sim::{Clock, Fabric, SimDevice};
use cmid_tokio::{Connection, Listener, Options, Tokio};
use common::{LIMIT, RECEIVES, Side, World, attach, attach_with, ends, server};
use tokio::runtime::Builder;

/// One test at a time, because they count the descriptors of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs `one` with 0 polls, 1, and so on, each in a runtime and on a fabric of its own, until it returns true: the
/// future was ready. Then it has waited at least `least` times. No descriptor is left.
fn with_each_number_of_polls(least: usize, one: impl AsyncFn(World, usize) -> bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // With tokio's feature `signal`, which a crate of the tests has, the first one of a process opens a pair that stays.
    drop(Builder::new_current_thread().enable_all().build().unwrap());
    let waits = (0..100).find(|&polls| {
        let before = descriptors();
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let is_ready = runtime.block_on(one(World::new(Clock::Virtual), polls));
        drop(runtime);
        // Fewer, if the harness of the tests has closed one meanwhile.
        let after = descriptors();
        assert!(after <= before, "{after} descriptors after {polls} polls, {before} before");
        is_ready
    });
    assert!(waits.unwrap() > least, "ready after {waits:?} polls");
}

/// Polls a future so many times at most; then drops it.
async fn polled<T>(fabric: &Fabric, polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
        if let Poll::Ready(output) = once.await {
            return Some(output);
        }
        happens(fabric).await;
    }
    None
}

/// One thing happens on the fabric, and the other tasks see it.
async fn happens(fabric: &Fabric) {
    if let Some(due) = fabric.next_due() {
        fabric.advance_to(due);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// From now on the fabric goes on by itself.
fn goes_on(world: &World) {
    tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
}

/// Accepts each request, and keeps the connection until its end. Counts the connections that it has.
async fn serve(mut listener: Listener<SimDevice>, count: Arc<AtomicUsize>) {
    loop {
        let incoming = listener.accept().await.unwrap();
        let count = Arc::clone(&count);
        tokio::spawn(async move {
            // It fails if the peer no longer waits.
            if let Ok((mut connection, _port)) = incoming.accept(&Options::default(), attach).await {
                count.fetch_add(1, Ordering::Relaxed);
                connection.closed().await.unwrap();
                count.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

async fn is_zero(count: &AtomicUsize) {
    ends(async {
        while count.load(Ordering::Relaxed) != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[test]
fn a_connect_that_is_dropped_releases_everything() {
    // The address, the route and the answer.
    with_each_number_of_polls(3, async |world, polls| {
        let (served, lives) = (Arc::default(), Arc::default());
        tokio::spawn(serve(world.listener(), Arc::clone(&served)));
        // Of a port that only one id at a time can use.
        let options = Options { source: Some("10.0.0.1:5000".parse().unwrap()), ..Options::default() };
        let connect = || {
            let lives = Arc::clone(&lives);
            Connection::connect(world.client.device(), server(), &options, |device, to| attach_with(device, to, lives))
        };
        let first = polled(&world.fabric, polls, connect()).await;
        let is_ready = first.is_some();
        drop(first);
        assert_eq!(Arc::strong_count(&lives), 1, "a QP is left");
        goes_on(&world);
        let (mut connection, _port) = ends(connect()).await.unwrap();
        ends(connection.disconnect(LIMIT)).await.unwrap();
        is_zero(&served).await;
        is_ready
    });
}

#[test]
fn an_accept_of_a_listener_that_is_dropped_takes_no_request() {
    with_each_number_of_polls(2, async |world, polls| {
        let mut listener = world.listener();
        let device = world.client.device();
        let client = tokio::spawn(async move {
            let (mut connection, _port) = Connection::connect(device, server(), &Options::default(), attach).await?;
            connection.closed().await
        });
        let first = polled(&world.fabric, polls, listener.accept()).await;
        let is_ready = first.is_some();
        goes_on(&world);
        let incoming = match first {
            Some(first) => first.unwrap(),
            None => ends(listener.accept()).await.unwrap(),
        };
        drop(ends(incoming.accept(&Options::default(), attach)).await.unwrap());
        ends(client).await.unwrap().unwrap();
        is_ready
    });
}

#[test]
fn an_accept_of_a_request_that_is_dropped_ends_the_connection_of_the_peer() {
    with_each_number_of_polls(1, async |world, polls| {
        let (mut listener, lives) = (world.listener(), Arc::default());
        let connect = |device| async move {
            let (mut connection, _port) = Connection::connect(device, server(), &Options::default(), attach).await?;
            connection.closed().await
        };
        let client = tokio::spawn(connect(world.client.device()));
        let incoming = loop {
            if let Some(incoming) = polled(&world.fabric, 1, listener.accept()).await {
                break incoming.unwrap();
            }
        };
        let witness = Arc::clone(&lives);
        let options = Options::default();
        let accept = incoming.accept(&options, |device, to| attach_with(device, to, witness));
        let first = polled(&world.fabric, polls, accept).await;
        let is_ready = first.is_some();
        drop(first);
        assert_eq!(Arc::strong_count(&lives), 1, "a QP is left");
        goes_on(&world);
        // Rejected, or connected and then disconnected.
        let _rejected = ends(client).await.unwrap();
        let client = tokio::spawn(connect(world.client.device()));
        drop(ends(async { listener.accept().await?.accept(&options, attach).await }).await.unwrap());
        ends(client).await.unwrap().unwrap();
        is_ready
    });
}

/// A connection on a fabric that has stopped again.
async fn connected(world: &World) -> [Side; 2] {
    stopped(world, world.connected()).await
}

/// What a future returns on a fabric that goes on until then.
async fn stopped<T>(world: &World, future: impl Future<Output = T>) -> T {
    let going = tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
    let output = future.await;
    going.abort();
    assert!(going.await.unwrap_err().is_cancelled());
    output
}

#[test]
fn a_wait_for_completions_that_is_dropped_takes_none() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = connected(&world).await;
        (0..RECEIVES).for_each(|byte| client.port.send(byte));
        let mut some = [Completion::default(); 3];
        let first = polled(&world.fabric, polls, server.connection.next_completions(&mut some)).await;
        let is_ready = first.is_some();
        let mut received: Vec<_> = some.into_iter().take(first.map_or(0, Result::unwrap)).collect();
        goes_on(&world);
        while received.len() < RECEIVES.into() {
            let polled = ends(server.connection.next_completions(&mut some)).await.unwrap();
            received.extend_from_slice(&some[..polled]);
        }
        assert!(received.iter().all(Completion::is_success));
        let bytes: Vec<_> = received.iter().map(|it| server.port.byte(it.wr_id)).collect();
        assert_eq!(bytes, Vec::from_iter(0..RECEIVES));
        // The end too is not lost.
        drop(client);
        assert_eq!(ends(server.connection.next_completions(&mut some)).await.unwrap(), 0);
        is_ready
    });
}

#[test]
fn a_wait_for_the_end_that_is_dropped_loses_neither_the_end_nor_what_is_flushed() {
    with_each_number_of_polls(1, async |world, polls| {
        let [client, mut server] = connected(&world).await;
        drop(client);
        let first = polled(&world.fabric, polls, server.connection.closed()).await;
        let is_ready = first.is_some();
        goes_on(&world);
        ends(server.connection.closed()).await.unwrap();
        let (mut some, mut flushed) = ([Completion::default(); 3], 0);
        while let polled @ 1.. = ends(server.connection.next_completions(&mut some)).await.unwrap() {
            flushed += polled;
        }
        assert_eq!(flushed, usize::from(RECEIVES));
        is_ready
    });
}

#[test]
fn a_disconnect_that_is_dropped_goes_on_and_the_next_call_waits_for_its_end() {
    with_each_number_of_polls(2, async |world, polls| {
        let [mut client, mut server] = connected(&world).await;
        let serve = tokio::spawn(async move { server.connection.closed().await });
        let first = polled(&world.fabric, polls, client.connection.disconnect(LIMIT)).await;
        let is_ready = first.is_some();
        goes_on(&world);
        if polls > 0 {
            // The peer sees it, whether or not somebody waits.
            ends(serve).await.unwrap().unwrap();
        }
        ends(client.connection.disconnect(LIMIT)).await.unwrap();
        assert_eq!(client.connection.state(), State::TimeWait);
        is_ready
    });
}

#[test]
fn a_wait_of_a_driver_that_is_dropped_loses_no_event() {
    with_each_number_of_polls(1, async |world, polls| {
        let mut driver = Tokio::new(world.client.device(), Limits::default());
        let drive = driver.drive();
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        drive.resolve_addr(id, None, server(), Time::NEVER).unwrap();
        let first = polled(&world.fabric, polls, driver.wait(None)).await;
        let is_ready = first.is_some();
        goes_on(&world);
        let event = loop {
            if let Some(event) = driver.drive().next_event(channel) {
                break event;
            }
            ends(driver.wait(None)).await.unwrap();
        };
        assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
        is_ready
    });
}

#[test]
fn a_listener_has_two_descriptors_and_a_connection_four() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::paused();
        let before = descriptors();
        let mut listener = world.listener();
        assert!(polled(&world.fabric, 1, listener.accept()).await.is_none());
        assert_eq!(descriptors(), before + 2);
        drop(listener);
        let [mut client, _server] = connected(&world).await;
        let side = descriptors();
        assert!(
            polled(&world.fabric, 1, client.connection.next_completions(&mut [Completion::default()])).await.is_none()
        );
        // The server's does not wait for completions yet.
        assert_eq!((side, descriptors()), (before + 6, before + 7));
        drop(client);
        assert_eq!(descriptors(), before + 3);
    });
}
