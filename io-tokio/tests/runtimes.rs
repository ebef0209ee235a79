//! Values move between threads and runtimes.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use cmid_tokio::proto::datapath::{Attaching, Completion, CreateError, DataPath};
use cmid_tokio::proto::drive::StepRecord;
use cmid_tokio::proto::{Acks, Limits, Observer};
use cmid_tokio::sim::{Clock, SimDevice};
use cmid_tokio::{ByteStream, Channel, Connection, Incoming, ListenOptions, Listener, Options, Tokio};
use common::channels::channels;
use common::{LIMIT, Side, World, attach, ends, server};
use tokio::runtime::{Builder, Runtime};

fn is_send<T: Send>(value: T) -> T {
    value
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn values_and_futures_are_send_if_the_device_is() {
    type Attach<D> = fn(&mut D, Attaching<'_>) -> Result<(<D as DataPath>::Cq, ()), CreateError>;
    fn values<D: DataPath>(
        listener: Listener<D>,
        incoming: Incoming<D>,
        connection: Connection<D>,
        channel: Channel<D>,
        completions: &mut [Completion],
        attach: Attach<D>,
    ) {
        let (mut listener, mut connection) = is_send((listener, connection));
        drop(is_send(listener.accept()));
        drop(is_send(incoming.accept(&Options::default(), attach)));
        drop(is_send(connection.closed()));
        drop(is_send(connection.next_completions(completions)));
        drop(is_send(connection.disconnect(LIMIT)));
        let mut channel = is_send(channel);
        drop(is_send(channel.send(b"")));
        drop(is_send(channel.recv()));
        drop(is_send(channel.close(LIMIT)));
        drop(is_send(ByteStream::new(channel)));
    }
    let _compiles = values::<SimDevice>;
    let world = World::new(Clock::Real);
    drop(is_send(Connection::connect(world.client.device(), server(), &Options::default(), attach)));
}

/// Counts the observers that have seen a step.
#[derive(Debug)]
struct Witness {
    count: Arc<AtomicUsize>,
    has_seen: bool,
}

impl Observer for Witness {
    fn step(&mut self, _record: &StepRecord<'_>) {
        self.count.fetch_add(usize::from(!std::mem::replace(&mut self.has_seen, true)), Ordering::Relaxed);
    }

    fn sibling(&self) -> Self {
        Witness { count: Arc::clone(&self.count), has_seen: false }
    }
}

#[tokio::test(start_paused = true)]
async fn the_listener_and_each_connection_have_an_observer_of_their_own() {
    let (world, count) = (World::paused(), Arc::<AtomicUsize>::default());
    let witness = || Witness { count: Arc::clone(&count), has_seen: false };
    let (listening, options) = (ListenOptions::default(), Options::default());
    let mut listener = Listener::observed(world.server.device(), witness(), server(), &listening).unwrap();
    for number in 1..3 {
        let accept = async { listener.accept().await?.accept(&options, attach).await };
        let connect = Connection::observed(world.client.device(), witness(), server(), &options, attach);
        let ((mut connection, _port), (mut peer, _peers_port)) =
            ends(async { tokio::try_join!(accept, connect) }).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1 + 2 * number);
        let (id, drive) = connection.parts();
        assert_eq!(drive.peer_addr(id).unwrap(), peer.local_addr().unwrap());
        let (ended, closed) = ends(async { tokio::join!(peer.disconnect(LIMIT), connection.closed()) }).await;
        ended.unwrap();
        closed.unwrap();
        connection.parts().1.core().check();
        peer.parts().1.core().check();
    }
    listener.parts().1.core().check();
}

/// Waits for a message in a runtime of this thread.
fn receive(server: &mut Side, byte: u8) {
    let mut one = [Completion::default()];
    let polled = runtime().block_on(ends(server.connection.next_completions(&mut one))).unwrap();
    assert!(polled == 1 && one[0].is_success());
    assert_eq!(server.port.byte(one[0].wr_id), byte);
}

#[test]
fn a_connection_moves_to_the_runtimes_of_other_threads() {
    let world = World::new(Clock::Real);
    let [mut client, mut server] = runtime().block_on(world.connected());
    for byte in 0..3 {
        // The runtime that it was registered in last is gone, or will not be polled any more.
        server.connection.leave_runtime();
        server = thread::scope(|scope| {
            let moved = scope.spawn(|| {
                receive(&mut server, byte);
                server
            });
            // Before the other thread waits, or while it does.
            thread::sleep(Duration::from_millis(u64::from(byte) * 10));
            client.port.send(byte);
            moved.join().unwrap()
        });
    }
    // What happens between two runtimes is not lost either.
    server.connection.leave_runtime();
    client.port.send(3);
    drop(client);
    thread::sleep(Duration::from_millis(50));
    receive(&mut server, 3);
    server.connection.leave_runtime();
    runtime().block_on(ends(server.connection.closed())).unwrap();
}

#[test]
fn a_channel_moves_to_the_runtimes_of_other_threads() {
    let world = World::new(Clock::Real);
    let [mut client, mut server] = runtime().block_on(channels(&world));
    for byte in 0..3 {
        client.leave_runtime();
        server.leave_runtime();
        thread::scope(|scope| {
            let received = scope.spawn(|| runtime().block_on(ends(server.recv())).unwrap().unwrap().to_vec());
            let sent = scope.spawn(|| runtime().block_on(ends(client.send(&[byte]))).unwrap());
            assert_eq!((sent.join().unwrap(), &received.join().unwrap()[..]), ((), &[byte][..]));
        });
    }
    // Outside of a runtime it is an error and no panic.
    server.leave_runtime();
    let mut receive = std::pin::pin!(server.recv());
    let polled = receive.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(_))));
}

#[test]
fn a_runtime_that_is_gone_is_an_error_until_the_connection_has_left_it() {
    let world = World::new(Clock::Real);
    let [_client, mut server] = {
        let runtime = runtime();
        let mut sides = runtime.block_on(world.connected());
        let wait = async {
            let closed = sides[1].connection.closed();
            assert!(tokio::time::timeout(Duration::from_millis(1), closed).await.is_err());
        };
        runtime.block_on(wait);
        sides
    };
    assert!(runtime().block_on(ends(server.connection.closed())).is_err());
    server.connection.leave_runtime();
    drop(_client);
    runtime().block_on(ends(server.connection.closed())).unwrap();
}

#[test]
fn a_request_is_accepted_in_another_runtime_than_its_listener() {
    let world = World::new(Clock::Real);
    let mut listener = world.listener();
    let device = world.client.device();
    let client = thread::spawn(move || {
        runtime().block_on(ends(async {
            let (mut connection, _port) = Connection::connect(device, server(), &Options::default(), attach).await?;
            connection.disconnect(LIMIT).await
        }))
    });
    let incoming = runtime().block_on(ends(listener.accept())).unwrap();
    let server = thread::spawn(move || {
        runtime().block_on(ends(async {
            let (mut connection, _port) = incoming.accept(&Options::default(), attach).await?;
            connection.closed().await
        }))
    });
    server.join().unwrap().unwrap();
    client.join().unwrap().unwrap();
}

#[test]
fn the_timer_of_a_channel_leaves_a_runtime_with_its_connection() {
    let world = World::new(Clock::Real);
    let [mut client, _server] = {
        let runtime = runtime();
        let mut channels = runtime.block_on(channels(&world));
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_millis(1), channels[0].recv()).await.unwrap_err() });
        channels
    };
    client.connection().leave_runtime();
    let wait = async { tokio::time::timeout(Duration::from_millis(100), client.recv()).await };
    assert!(runtime().block_on(wait).is_err(), "no message and no error");
}

/// The error of a call in a runtime that lacks a driver.
fn lacks<T>(runtime: &Runtime, future: impl Future<Output = io::Result<T>>) -> String {
    runtime.block_on(future).err().unwrap().to_string()
}

#[test]
fn a_runtime_without_a_driver_is_an_error_that_names_it_and_no_panic() {
    for (name, runtime) in [
        ("enable_io", Builder::new_current_thread().enable_time().build().unwrap()),
        ("enable_time", Builder::new_current_thread().enable_io().build().unwrap()),
    ] {
        let world = World::new(Clock::Real);
        let options = Options::default();
        let connect = || Connection::connect(world.client.device(), server(), &options, attach);
        let [mut client, mut other] = self::runtime().block_on(channels(&world));
        client.leave_runtime();
        let mut errors = vec![lacks(&runtime, connect()), lacks(&runtime, client.recv())];
        client.leave_runtime();
        // The first error of a channel is final.
        errors.extend([lacks(&runtime, client.send(b"")), lacks(&runtime, client.finish())]);
        other.leave_runtime();
        errors.push(lacks(&runtime, other.close(LIMIT)));
        let [mut client, _server] = self::runtime().block_on(world.connected());
        client.connection.leave_runtime();
        errors.push(lacks(&runtime, client.connection.disconnect(LIMIT)));
        let mut driver = Tokio::new(world.client.device(), Limits::default());
        let _channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
        errors.push(lacks(&runtime, driver.wait(Some(LIMIT))));
        for error in errors {
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}

#[test]
fn a_driver_without_channels_waits_in_another_runtime_when_the_first_is_gone() {
    let world = World::new(Clock::Real);
    let mut driver = Tokio::new(world.client.device(), Limits::default());
    for _ in 0..2 {
        runtime().block_on(driver.wait(Some(Duration::from_millis(1)))).unwrap();
    }
}
