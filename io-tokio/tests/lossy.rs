//! Many connects over a lossy network, with a quarter of the futures dropped before their end. Nothing is left
//! afterwards.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cmid_tokio::sim::{Config, SimDevice};
use cmid_tokio::{Connection, Listener, Options};
use common::{World, attach, attach_with, server};
use tokio::time::timeout;

/// So many at a time that their descriptors are fewer than a shell permits.
const AT_A_TIME: u32 = 60;
const ROUNDS: u32 = 5;

/// The limit of a handshake. The connection manager sends a message again after about four seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// Accepts each request, and ends the connection after the peer.
async fn serve(mut listener: Listener<SimDevice>, accepted: Arc<AtomicU32>, lives: Arc<()>) {
    loop {
        let incoming = listener.accept().await.unwrap();
        let (accepted, lives) = (Arc::clone(&accepted), Arc::clone(&lives));
        tokio::spawn(async move {
            let options = Options { timeout: LIMIT, ..Options::default() };
            // The accept fails if the peer no longer waits.
            let accept = incoming.accept(&options, |device, to| attach_with(device, to, lives));
            if let Ok((mut connection, _port)) = accept.await {
                accepted.fetch_add(1, Ordering::Relaxed);
                // A peer that is gone, and whose last message was lost, is not noticed.
                let _ended = timeout(2 * LIMIT, connection.closed()).await;
            }
        });
    }
}

/// Returns the numbers of connects that succeeded, failed, and were dropped.
async fn connects(world: &World, seed: u64) -> [u32; 3] {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counts = [0; 3];
    for _ in 0..ROUNDS {
        let tasks: Vec<_> = (0..AT_A_TIME)
            .map(|number| {
                let (device, after) = (world.client.device(), Duration::from_micros(random.u64(0..30_000)));
                tokio::spawn(async move {
                    let options = Options { timeout: LIMIT, ..Options::default() };
                    let connect = Connection::connect(device, server(), &options, attach);
                    match timeout(if number % 4 == 0 { after } else { 2 * LIMIT }, connect).await {
                        Ok(Ok(_connection)) => 0,
                        Ok(Err(_)) => 1,
                        Err(_) => 2,
                    }
                })
            })
            .collect();
        for task in tasks {
            counts[task.await.unwrap()] += 1;
        }
    }
    counts
}

/// Returns the counts of the client, and the number of connections that the server has accepted. The server has fewer
/// than the client if the last message of a handshake is lost.
async fn nothing_is_left(loss: f64) -> ([u32; 3], u32) {
    let world = World::with(Config { loss, seed: 7, ..Config::default() });
    tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
    let (accepted, lives) = (Arc::new(AtomicU32::new(0)), Arc::default());
    let serving = tokio::spawn(serve(world.listener(), Arc::clone(&accepted), Arc::clone(&lives)));
    let counts = connects(&world, 1).await;
    // Drops the listener, with the requests that it has not taken.
    serving.abort();
    let gone = async {
        while Arc::strong_count(&lives) > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(20 * LIMIT, gone).await.unwrap();
    // All ids of the server's address are gone.
    drop(world.listener());
    eprintln!("loss {loss}: {counts:?} succeeded, failed, dropped; {accepted:?} accepted");
    (counts, accepted.load(Ordering::Relaxed))
}

const CONNECTS: u32 = AT_A_TIME * ROUNDS;

#[tokio::test(start_paused = true)]
async fn without_loss() {
    let ([succeeded, failed, dropped], accepted) = nothing_is_left(0.0).await;
    assert!(accepted >= succeeded, "{accepted} of {succeeded}");
    assert!(failed == 0 && succeeded >= CONNECTS * 3 / 4 && dropped > 0, "{succeeded} {failed} {dropped}");
}

#[tokio::test(start_paused = true)]
async fn with_2_percent_loss() {
    let ([succeeded, _, dropped], accepted) = nothing_is_left(0.02).await;
    assert!(succeeded > CONNECTS / 2 && accepted > CONNECTS / 2 && dropped > 0, "{succeeded} {dropped}");
}

#[tokio::test(start_paused = true)]
async fn with_20_percent_loss() {
    let ([succeeded, _, dropped], accepted) = nothing_is_left(0.2).await;
    assert!(succeeded > CONNECTS / 4 && accepted > CONNECTS / 4 && dropped > 0, "{succeeded} {dropped}");
}
