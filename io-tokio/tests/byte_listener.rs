//! A listener of byte streams.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::{Host, Kind, Rule, SimDevice};
use cmid_tokio::{ByteListener, ByteStream, Channel, Connection, Options};
use common::{LIMIT, World, attach, ends, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

fn listener(world: &World) -> ByteListener<SimDevice> {
    let options = Options { timeout: LIMIT, ..Options::default() };
    ByteListener::new(world.listener(), MessagesConfig::default(), options)
}

/// A stream of a client that has sent a byte.
async fn client(host: &Host, byte: u8) -> ByteStream<SimDevice> {
    let options = Options::default();
    let channel = Channel::connect(host.device(), server(), MessagesConfig::default(), &options).await;
    let mut stream = ByteStream::new(channel.unwrap());
    stream.write_u8(byte).await.unwrap();
    stream
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_no_channel_is_an_error_of_its_own_and_the_next_one_is_accepted() {
    let world = World::paused();
    let mut listener = listener(&world);
    assert_eq!(listener.local_addr().unwrap(), server());
    let options = Options::default();
    let wrong = Connection::connect(world.client.device(), server(), &options, attach);
    let (wrong, accepted) = tokio::join!(wrong, ends(listener.accept()));
    let error = accepted.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    let text = error.to_string();
    assert!(text.starts_with("the connection of 10.0.0.1:") && text.contains(" was not accepted: "), "{text}");
    drop(wrong);
    let (_client, accepted) = tokio::join!(client(&world.client, 7), ends(listener.accept()));
    let (mut stream, peer) = accepted.unwrap();
    assert_eq!((stream.read_u8().await.unwrap(), peer.ip()), (7, "10.0.0.1".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_confirmation_never_comes_delays_no_other_one() {
    let world = World::paused();
    let mut listener = listener(&world);
    let silent = world.fabric.host(&["10.0.0.3".parse().unwrap()]);
    let _lost = world.fabric.rule(Rule::drop().of(&[Kind::Rtu]).from(&silent));
    // Its data would confirm it too: it sends none.
    let _silent = tokio::spawn(async move {
        let options = Options::default();
        Channel::connect(silent.device(), server(), MessagesConfig::default(), &options).await?.recv().await.map(drop)
    });
    // The listener has its request.
    assert!(timeout(Duration::from_millis(1), listener.accept()).await.is_err());
    let begun = Instant::now();
    let (_client, accepted) = tokio::join!(client(&world.client, 7), ends(listener.accept()));
    assert_eq!(accepted.unwrap().0.read_u8().await.unwrap(), 7);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let failed = timeout(2 * LIMIT, listener.accept()).await.unwrap();
    assert_eq!(failed.map(drop).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}

#[tokio::test(start_paused = true)]
async fn more_peers_than_are_accepted_at_once_are_all_accepted_and_a_drop_ends_those_that_were_not_returned() {
    const PEERS: usize = 70;
    let world = World::paused();
    let mut listener = listener(&world);
    let peers: Vec<_> = (0..PEERS)
        .map(|number| {
            let host = world.client.clone();
            tokio::spawn(async move { client(&host, number as u8).await })
        })
        .collect();
    let mut streams = Vec::new();
    for _ in 0..PEERS - 1 {
        streams.push(ends(listener.accept()).await.unwrap().0);
    }
    sleep(Duration::from_millis(10)).await;
    drop(listener);
    let mut numbers = Vec::new();
    for stream in &mut streams {
        numbers.push(ends(stream.read_u8()).await.unwrap());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), PEERS - 1);
    let mut ended = 0;
    for peer in peers {
        // The stream that nobody has accepted was connected, and ends.
        let mut stream = peer.await.unwrap();
        ended += usize::from(timeout(Duration::from_millis(1), stream.read_u8()).await.is_ok_and(|read| read.is_err()));
    }
    assert_eq!(ended, 1);
}
