//! Many connects over a lossy network, with a quarter of the futures dropped before their end. No id is left
//! afterwards.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cmid_epoll::Config;
use cmid_epoll::proto::handshake::DialTo;
use cmid_epoll::proto::{ConnParam, Limits};
use cmid_epoll::sim::{self, Clock, Fabric, SimDevice};
use on_tokio::{Listener, Reactor};

const CONNECTS: u32 = 2000;

/// The limit of a handshake. The connection manager sends a message again after about four seconds.
const LIMIT: Duration = Duration::from_secs(20);

fn addr() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

fn reactor(device: SimDevice) -> Arc<Reactor<SimDevice>> {
    Arc::new(Reactor::new(device, Config { limits: Limits::LARGE, ..Config::default() }).unwrap())
}

/// Accepts each request, and ends the connection after the peer.
async fn serve(mut listener: Listener<SimDevice>, accepted: Arc<AtomicU32>) {
    loop {
        let inbound = listener.accept().await.unwrap();
        let accepted = Arc::clone(&accepted);
        tokio::spawn(async move {
            let qp_num = u32::from_be_bytes(inbound.incoming().private_data()[..4].try_into().unwrap());
            let param = ConnParam { qp_num: 0x10_0000 + qp_num, ..ConnParam::default() };
            // The accept fails if the peer no longer waits.
            if let Ok(connection) = inbound.accept(param, &[], LIMIT, |_, _| Ok(())).await {
                accepted.fetch_add(1, Ordering::Relaxed);
                let _ended = tokio::time::timeout(LIMIT, connection.closed()).await;
            }
        });
    }
}

/// Returns the number of connects that succeeded, failed, and were dropped.
async fn connects(reactor: &Arc<Reactor<SimDevice>>, seed: u64) -> [u32; 3] {
    let mut random = fastrand::Rng::with_seed(seed);
    let tasks: Vec<_> = (1..=CONNECTS)
        .map(|number| {
            let reactor = Arc::clone(reactor);
            let (is_dropped, after) = (number % 4 == 0, Duration::from_micros(random.u64(0..30_000)));
            tokio::spawn(async move {
                let mut to = DialTo::new(addr());
                to.param.qp_num = number;
                to.private_data = cmid_epoll::proto::PrivateData::copy_of(&number.to_be_bytes());
                let connect = reactor.connect(&to, LIMIT, |_, _| Ok(()));
                let limit = if is_dropped { after } else { 2 * LIMIT };
                match tokio::time::timeout(limit, connect).await {
                    Ok(Ok(_connection)) => 0,
                    Ok(Err(_)) => 1,
                    Err(_) => 2,
                }
            })
        })
        .collect();
    let mut counts = [0; 3];
    for task in tasks {
        counts[task.await.unwrap()] += 1;
    }
    counts
}

/// Returns the counts of the client, and the number of connections that the server has accepted. The server has fewer
/// than the client if the last message of a handshake is lost.
async fn nothing_is_left(loss: f64) -> ([u32; 3], u32) {
    let fabric = Fabric::new(sim::Config { clock: Clock::Real, loss, seed: 7, ..sim::Config::default() });
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|addr| fabric.host(&[addr.parse().unwrap()]));
    let (client, server) = (reactor(client.device()), reactor(server.device()));
    let accepted = Arc::new(AtomicU32::new(0));
    let listener = server.listen(addr(), 1024).unwrap();
    let serving = tokio::spawn(serve(listener, Arc::clone(&accepted)));
    let counts = connects(&client, 1).await;
    assert_eq!(client.ids(), 0, "loss {loss}: ids of the client are left");
    // Drops the listener, with the requests that it has not taken.
    serving.abort();
    let begun = Instant::now();
    while server.ids() > 0 {
        assert!(begun.elapsed() < 3 * LIMIT, "loss {loss}: {} ids of the server are left", server.ids());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("loss {loss}: {counts:?} succeeded, failed, dropped; {accepted:?} accepted; {:?}", begun.elapsed());
    (counts, accepted.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_loss() {
    let ([succeeded, failed, dropped], accepted) = nothing_is_left(0.0).await;
    assert!(accepted >= succeeded, "{accepted} of {succeeded}");
    assert!(failed == 0 && succeeded >= CONNECTS * 3 / 4 && dropped > CONNECTS / 50, "{succeeded} {failed} {dropped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_2_percent_loss() {
    let ([succeeded, _, dropped], accepted) = nothing_is_left(0.02).await;
    assert!(succeeded > CONNECTS / 2 && accepted > CONNECTS / 2 && dropped > CONNECTS / 50, "{succeeded} {dropped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_20_percent_loss() {
    let ([succeeded, _, dropped], accepted) = nothing_is_left(0.2).await;
    assert!(succeeded > CONNECTS / 2 && accepted > CONNECTS / 3 && dropped > CONNECTS / 50, "{succeeded} {dropped}");
}
