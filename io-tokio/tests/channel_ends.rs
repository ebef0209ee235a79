//! How channels end, and how a side notices that the other one is gone.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::{Future as _, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use cmid_tokio::proto::messages::{MessagesConfig, MessagesError};
use cmid_tokio::proto::{Errno, Transport};
use cmid_tokio::sim::SimDevice;
use cmid_tokio::{ByteStream, Channel};
use common::channels::{CONFIG, CREDITS, channels, channels_with};
use common::{LIMIT, World, ends};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::time::{Instant, timeout};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn both_close_at_once_or_one_after_the_other_and_what_was_not_received_is_discarded() {
    for apart in [0, 1, 30].map(Duration::from_millis) {
        let [mut client, mut server] = channels(&World::paused()).await;
        for byte in 0..4 {
            client.send(&[byte]).await.unwrap();
            server.send(&[byte]).await.unwrap();
        }
        let later = async {
            tokio::time::sleep(apart).await;
            let closed = server.close(LIMIT).await;
            drop(server);
            closed
        };
        let (first, second) = ends(async { tokio::join!(client.close(LIMIT), later) }).await;
        first.unwrap();
        second.unwrap();
        // The end stays.
        ends(client.finish()).await.unwrap();
        assert!(ends(client.recv()).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_side_that_has_finished_still_receives() {
    let [mut client, mut server] = channels(&World::paused()).await;
    client.send(b"question").await.unwrap();
    // In the peer's memory, although nobody has received it.
    ends(client.finish()).await.unwrap();
    assert_eq!(ends(server.recv()).await.unwrap().unwrap()[..], *b"question");
    assert!(ends(server.recv()).await.unwrap().is_none());
    server.send(b"answer").await.unwrap();
    ends(server.finish()).await.unwrap();
    drop(server);
    assert_eq!(ends(client.recv()).await.unwrap().unwrap()[..], *b"answer");
    assert!(ends(client.recv()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drop_after_a_finish_loses_nothing_and_the_peer_can_finish_too() {
    let [mut client, mut server] = channels(&World::paused()).await;
    client.send(b"last").await.unwrap();
    ends(client.finish()).await.unwrap();
    drop(client);
    tokio::time::sleep(LIMIT).await;
    assert_eq!(ends(server.recv()).await.unwrap().unwrap()[..], *b"last");
    assert!(ends(server.recv()).await.unwrap().is_none());
    // HTTP flushes before it ends.
    ends(SinkExt::<&[u8]>::flush(&mut server)).await.unwrap();
    ends(server.close(LIMIT)).await.unwrap();
    assert_eq!(ends(server.send(b"x")).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// Not when a sign of life is due.
#[tokio::test(start_paused = true)]
async fn a_send_that_fails_tells_who_receives_at_once() {
    let config = MessagesConfig { keep_alive: MINUTE, silence: 3 * MINUTE, ..CONFIG };
    let world = World::paused();
    let [client, _server] = channels_with(&world, [config; 2]).await;
    let (mut receiver, mut sender) = split(ByteStream::new(client));
    let waits = tokio::spawn(async move { receiver.read_u8().await.unwrap_err().to_string() });
    tokio::time::sleep(LIMIT).await;
    world.client.fail_next_doorbell(Errno::EIO);
    let failed = sender.write_u8(1).await.unwrap_err().to_string();
    assert_eq!(timeout(LIMIT, waits).await.unwrap().unwrap(), failed);
}

#[tokio::test(start_paused = true)]
async fn a_drop_without_a_finish_is_an_error_after_the_messages_that_have_arrived() {
    let [mut client, mut server] = channels(&World::paused()).await;
    client.send(b"one").await.unwrap();
    client.send(b"two").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(client);
    for message in [b"one", b"two"] {
        assert_eq!(ends(server.recv()).await.unwrap().unwrap()[..], *message);
    }
    for _ in 0..2 {
        assert_eq!(ends(server.recv()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(ends(server.send(b"x")).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let error = ends(server.close(LIMIT)).await.unwrap_err();
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::UnexpectedEof, "the peer has gone without finish or close")
        );
    }
    // A stream returns it once.
    assert!(ends(server.next()).await.unwrap().is_err());
    assert!(ends(server.next()).await.is_none());
}

/// One send of several is signaled. The others end with the last request of the connection.
#[tokio::test(start_paused = true)]
async fn the_end_is_told_at_once_whatever_number_of_messages_was_sent() {
    for (transport, count) in
        [Transport::InfiniBand, Transport::Iwarp].into_iter().flat_map(|it| [(it, 1), (it, 2), (it, 3)])
    {
        let [mut client, mut server] = channels(&World::paused_over(transport)).await;
        for _ in 0..count {
            server.send(b"x").await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        for _ in 0..count {
            ends(client.recv()).await.unwrap();
        }
        let begin = Instant::now();
        drop(client);
        assert_eq!(ends(server.recv()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(begin.elapsed() < Duration::from_millis(100), "{transport:?}, {count}: {:?}", begin.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_before_it_has_read_a_large_message_is_an_error() {
    let [mut client, server] = channels(&World::paused()).await;
    client.send(&vec![7; 1 << 20]).await.unwrap();
    drop(server);
    assert_eq!(ends(client.recv()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // Also one that has finished, and need not have said that the channel is over.
    let [mut client, mut server] = channels(&World::paused()).await;
    ends(server.finish()).await.unwrap();
    client.send(&vec![7; 1 << 20]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(server);
    assert_eq!(ends(client.finish()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(ends(client.close(LIMIT)).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_that_is_read_before_the_end_is_received() {
    for transport in [Transport::InfiniBand, Transport::Iwarp] {
        let [mut client, mut server] = channels(&World::paused_over(transport)).await;
        server.send(&[7; 1000]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The read begins, and nobody sees that it completes.
        assert!(poll_fn(|context| Poll::Ready(pin!(client.recv()).poll(context))).await.is_pending());
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(server);
        // All else is flushed, and the end is known.
        ends(client.connection().closed()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(ends(client.recv()).await.unwrap().unwrap()[..], [7; 1000], "{transport:?}");
        assert_eq!(ends(client.recv()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_peer_has_perhaps_not_received_is_an_error_of_finish() {
    let [mut client, server] = channels(&World::paused()).await;
    let drops = async {
        drop(server);
        client.send(b"lost").await.unwrap();
        client.finish().await
    };
    let error = ends(drops).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::Other), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_channel_lives_by_signs_of_life_and_a_task_that_awaits_nothing_of_it_is_dead() {
    let [mut client, mut server] = channels(&World::paused()).await;
    let both = async { tokio::join!(timeout(MINUTE, client.recv()), timeout(MINUTE, server.recv())) };
    let (client_waits, server_waits) = both.await;
    assert!(client_waits.is_err() && server_waits.is_err(), "nothing has happened for a minute");
    let begun = Instant::now();
    let error = ends(client.recv()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains(&MessagesError::Silent(CONFIG.silence).to_string()), "{error}");
    let took = begun.elapsed();
    assert!(took > CONFIG.silence - CONFIG.keep_alive && took <= CONFIG.silence + CONFIG.keep_alive, "{took:?}");
}

/// One side sends more signs of life than there are receives, before the other one sends any.
#[tokio::test(start_paused = true)]
async fn sides_that_differ_in_their_signs_of_life_live_and_can_send() {
    let often = MessagesConfig { silence: 2 * MINUTE, ..CONFIG };
    let seldom = MessagesConfig { keep_alive: MINUTE, ..CONFIG };
    let [mut client, mut server] = channels_with(&World::paused(), [often, seldom]).await;
    let both = async { tokio::join!(timeout(MINUTE / 2, client.recv()), timeout(MINUTE / 2, server.recv())) };
    let (client_waits, server_waits) = both.await;
    assert!(client_waits.is_err() && server_waits.is_err(), "nothing has happened for half a minute");
    timeout(CONFIG.keep_alive, client.send(b"x")).await.unwrap().unwrap();
}

/// Also with each block of it in a send that does not complete: it does not poll without pause then.
#[tokio::test(start_paused = true)]
async fn a_peer_whose_link_is_down_is_noticed_by_its_silence_or_by_a_send_that_fails() {
    for sends in [0, 3] {
        let world = World::paused();
        // Fewer blocks than credits: three messages and a sign of life have them all.
        let [mut client, mut server] = channels_with(&world, [MessagesConfig { window: 4, ..CONFIG }, CONFIG]).await;
        world.server.set_link(false);
        let begun = Instant::now();
        for _ in 0..sends {
            client.send(b"lost").await.unwrap();
        }
        let polls = AtomicU32::new(0);
        let mut receive = pin!(client.recv());
        let counted = poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            receive.as_mut().poll(context)
        });
        let (received, other) = ends(async { tokio::join!(counted, server.recv()) }).await;
        received.unwrap_err();
        other.unwrap_err();
        assert!(begun.elapsed() <= CONFIG.silence + CONFIG.keep_alive, "{:?}", begun.elapsed());
        assert!(polls.load(Ordering::Relaxed) < 50, "{polls:?} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn sides_that_only_send_and_wait_for_credits_keep_each_other_alive() {
    let [mut client, mut server] = channels(&World::paused()).await;
    let fill = async |channel: &mut Channel<SimDevice>| {
        while let Ok(sent) = timeout(MINUTE, channel.send(b"more")).await {
            sent.unwrap();
        }
    };
    tokio::join!(fill(&mut client), fill(&mut server));
    for _ in 0..CREDITS {
        assert_eq!(ends(client.recv()).await.unwrap().unwrap()[..], *b"more");
        assert_eq!(ends(server.recv()).await.unwrap().unwrap()[..], *b"more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_that_the_peer_does_not_answer_lets_the_limit_pass() {
    let [mut client, mut server] = channels(&World::paused()).await;
    let limit = Duration::from_secs(3);
    let begun = Instant::now();
    let peer = async { while let Ok(Some(_)) = server.recv().await {} };
    let (closed, ()) = ends(async { tokio::join!(client.close(limit), peer) }).await;
    assert_eq!(closed.unwrap_err().to_string(), "the peer has not finished within 3s");
    assert!(begun.elapsed() >= limit && begun.elapsed() < 2 * limit);
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_the_device_ends_a_channel() {
    let world = World::paused();
    let [mut client, mut server] = channels(&world).await;
    let removed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.client.remove_device();
    };
    let (received, ()) = ends(async { tokio::join!(client.recv(), removed) }).await;
    received.unwrap_err();
    ends(server.recv()).await.unwrap_err();
}
