//! Messages and bytes over a channel.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use cmid_tokio::proto::Transport;
use cmid_tokio::proto::messages::{HEADER, MessagesConfig, NotSent};
use cmid_tokio::sim::{Clock, SimDevice};
use cmid_tokio::{ByteStream, Channel, Connection, Options};
use common::channels::{CONFIG, CREDITS, channels, channels_with};
use common::{LIMIT, Port, World, attach, ends, server};
use futures_util::{Sink, SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const MESSAGES: u16 = 500;
const SHORT: Duration = Duration::from_millis(20);

async fn next(channel: &mut Channel<SimDevice>) -> Vec<u8> {
    ends(channel.recv()).await.unwrap().expect("a message").to_vec()
}

/// The number as bytes, as many as a message has at most and fewer.
fn message(number: u16) -> Vec<u8> {
    vec![number as u8; usize::from(number) % 49]
}

/// A task has each half of the client.
#[tokio::test(start_paused = true)]
async fn messages_of_each_length_arrive_in_order_in_both_directions_at_once() {
    for windows in [[8, 8], [4, 4], [4, 200], [200, 4]] {
        // The server lets messages go one by one, or almost all that it may have at once.
        for held in [1, usize::from(windows[1]) - 3] {
            let configs = windows.map(|window| MessagesConfig { window, ..CONFIG });
            let [client, mut server] = channels_with(&World::paused(), configs).await;
            assert_eq!(client.message_max(), 48);
            let echo = tokio::spawn(async move {
                let mut messages = Vec::new();
                while let Some(message) = server.recv().await.unwrap() {
                    server.send(&message).await.unwrap();
                    messages.push(message);
                    messages.truncate(messages.len() % held);
                }
                server.close(LIMIT).await.unwrap();
            });
            let (mut sink, mut stream) = client.split::<Vec<u8>>();
            let send = tokio::spawn(async move {
                for number in 0..MESSAGES {
                    sink.send(message(number)).await.unwrap();
                }
                sink.close().await.unwrap();
            });
            let receive = tokio::spawn(async move {
                for number in 0..MESSAGES {
                    assert_eq!(stream.next().await.unwrap().unwrap()[..], message(number));
                }
                assert!(stream.next().await.is_none());
            });
            for task in [echo, send, receive] {
                ends(task).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_messages_stops_the_sender_and_a_dropped_message_lets_it_go_on() {
    let [mut client, mut server] = channels(&World::paused()).await;
    let mut sent = 0;
    while timeout(SHORT, client.send(&[sent])).await.is_ok() {
        sent += 1;
    }
    assert_eq!(sent, CREDITS);
    // Messages that the program keeps are not posted again, whoever is polled.
    let mut kept = Vec::new();
    for number in 0..CREDITS {
        kept.push(ends(server.recv()).await.unwrap().unwrap());
        assert_eq!(kept[usize::from(number)][..], [number]);
    }
    let (client_waits, server_waits) = tokio::join!(timeout(SHORT, client.send(b"x")), timeout(SHORT, server.recv()));
    assert!(client_waits.is_err() && server_waits.is_err());
    // They are dropped by another task while that of the channel waits.
    let receiving = tokio::spawn(async move { next(&mut server).await });
    let sending = tokio::spawn(async move { client.send(b"y").await.map(|()| client) });
    tokio::time::sleep(SHORT).await;
    assert!(!receiving.is_finished() && !sending.is_finished());
    drop(kept);
    // Well before the next sign of life.
    assert_eq!(timeout(SHORT, receiving).await.unwrap().unwrap(), b"y");
    sending.await.unwrap().unwrap();
}

/// Whether the task of a channel was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_message_wakes_its_channel_only_if_the_peer_has_few_credits() {
    let [mut client, mut server] = channels(&World::paused()).await;
    // The first one is dropped at once, four are kept: more than half of the window.
    for (count, has_few) in [(1, false), (4, true)] {
        let mut messages = Vec::new();
        for _ in 0..count {
            client.send(b"x").await.unwrap();
            messages.push(ends(server.recv()).await.unwrap().unwrap());
        }
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let is_pending = pin!(server.recv()).poll(&mut Context::from_waker(&waker)).is_pending();
        drop(messages);
        assert_eq!((is_pending, woken.0.load(Ordering::Relaxed)), (true, has_few), "{count}");
    }
    // It tells the peer of all.
    assert!(timeout(SHORT, server.recv()).await.is_err());
    for _ in 0..CREDITS {
        timeout(SHORT, client.send(b"x")).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_channels_at_a_time_on_several_threads() {
    let (world, mut tasks) = (World::new(Clock::Real), Vec::new());
    for _ in 0..8 {
        let [client, server] = channels(&world).await;
        for channel in [client, server] {
            let (mut read, mut write) = tokio::io::split(ByteStream::new(channel));
            tasks.push(tokio::spawn(async move {
                write.write_all(&vec![7; 20_000]).await.unwrap();
                write.shutdown().await.unwrap();
            }));
            tasks.push(tokio::spawn(async move {
                let mut all = Vec::new();
                read.read_to_end(&mut all).await.unwrap();
                assert!(all == vec![7; 20_000]);
            }));
        }
    }
    for task in tasks {
        ends(task).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_whole_whatever_the_pieces_of_writes_and_reads() {
    let [client, server] = channels(&World::paused()).await;
    let [mut client, mut server] = [client, server].map(ByteStream::new);
    let bytes: Vec<u8> = (0..5000).map(|number: u32| number as u8).collect();
    let expected = bytes.clone();
    let send = async move {
        // An empty message is not the end.
        client.channel().send(b"").await.unwrap();
        assert_eq!(client.write(b"").await.unwrap(), 0);
        let slices = [&bytes[..10], &[], &bytes[10..30], &bytes[30..]].map(IoSlice::new);
        assert_eq!(client.write_vectored(&slices).await.unwrap(), 48, "as much as one message has room for");
        client.write_all(&bytes[48..]).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(client.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    };
    let receive = async move {
        let mut received = vec![0; 7];
        server.read_exact(&mut received).await.unwrap();
        server.read_to_end(&mut received).await.unwrap();
        assert!(received == expected);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    };
    ends(async { tokio::join!(send, receive) }).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_and_nothing_has_changed() {
    let [mut client, mut server] = channels(&World::paused()).await;
    let error = client.start_send_unpin([0; 49]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&NotSent::TooLong { len: 49, max: 48 }));
    for number in 0..CREDITS {
        client.start_send_unpin([number]).unwrap();
    }
    // Without a credit one waits, and not a second one.
    client.start_send_unpin([CREDITS]).unwrap();
    assert_eq!(client.start_send_unpin([9]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let receive = async {
        for number in 0..=CREDITS {
            assert_eq!(next(&mut server).await, [number]);
        }
    };
    // The goodbye comes after it.
    ends(async { tokio::join!(client.finish(), receive) }).await.0.unwrap();
    for len in [1, 49] {
        assert_eq!(ends(client.send(&vec![0; len])).await.unwrap_err().kind(), ErrorKind::BrokenPipe, "{len}");
    }
    assert!(ends(server.recv()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_was_ready_takes_a_message_although_a_sign_of_life_has_taken_the_credit() {
    let [mut client, mut server] = channels(&World::paused()).await;
    for number in 1..CREDITS {
        client.send(&[number]).await.unwrap();
    }
    poll_fn(|context| Sink::<[u8; 1]>::poll_ready(Pin::new(&mut client), context)).await.unwrap();
    assert!(timeout(2 * CONFIG.keep_alive, client.recv()).await.is_err());
    client.start_send_unpin([CREDITS]).unwrap();
    assert!(timeout(SHORT, SinkExt::<[u8; 1]>::flush(&mut client)).await.is_err());
    let receive = async {
        for number in 1..=CREDITS {
            assert_eq!(next(&mut server).await, [number]);
        }
    };
    ends(async { tokio::join!(SinkExt::<[u8; 1]>::flush(&mut client), receive) }).await.0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_sides_may_have_different_limits_and_private_data() {
    let world = World::paused();
    let (mut listener, small) = (world.listener(), MessagesConfig { window: 4, packet: 32, ..CONFIG });
    let [to, from] = [&b"to"[..], b"from"].map(|private_data| Options { private_data, ..Options::default() });
    let connect = Channel::connect(world.client.device(), server(), small, &to);
    let accept = async { Channel::accept(listener.accept().await?, CONFIG, &from).await };
    let (mut client, mut server) = ends(async { tokio::try_join!(connect, accept) }).await.unwrap();
    assert!(client.private_data().starts_with(b"from\0") && server.private_data().starts_with(b"to\0"));
    // Sent from the smaller one's memory, or received into it.
    assert_eq!([client.message_max(), server.message_max()], [16, 16]);
    for byte in 0..50 {
        let message = [byte; 16];
        let (sent, received) = ends(async { tokio::join!(server.send(&message), client.recv()) }).await;
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap()[..], message);
    }
    assert_eq!(client.connection().peer_addr().unwrap(), common::server());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_no_channel_is_an_error_of_both_sides() {
    let world = World::paused();
    let (mut listener, options) = (world.listener(), Options::default());
    let connect = Connection::connect(world.client.device(), server(), &options, attach);
    let accept = async { Channel::accept(listener.accept().await.unwrap(), CONFIG, &options).await };
    let (client, accepted) = ends(async { tokio::join!(connect, accept) }).await;
    assert_eq!(accepted.unwrap_err().kind(), ErrorKind::InvalidData);
    let (mut client, _port) = client.unwrap();
    ends(client.closed()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_messages_arrive_in_order_with_the_others() {
    for transport in [Transport::InfiniBand, Transport::Iwarp] {
        let [mut client, mut server] = channels(&World::paused_over(transport)).await;
        let lens = [20, 100_000, 48, 49, 1 << 20, 0];
        let message = |number: usize| vec![number as u8; lens[number % lens.len()]];
        let echo = tokio::spawn(async move {
            while let Some(message) = server.recv().await.unwrap() {
                server.send(&message).await.unwrap();
            }
            server.close(LIMIT).await.unwrap();
        });
        for number in 0..18 {
            client.send(&message(number)).await.unwrap();
            if let Some(earlier) = number.checked_sub(1) {
                assert_eq!(next(&mut client).await, message(earlier));
            }
        }
        assert_eq!(next(&mut client).await, message(17));
        ends(client.close(LIMIT)).await.unwrap();
        ends(echo).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_peer_takes_ends_its_channel() {
    let [mut client, mut server] = channels(&World::paused()).await;
    server.set_large_max(1000);
    client.send(&[7; 1000]).await.unwrap();
    assert_eq!(next(&mut server).await, [7; 1000]);
    let (taken, refused) = tokio::join!(client.send(&[7; 1001]), ends(server.recv()));
    assert!(taken.is_ok());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData);
    drop(server);
    assert_eq!(ends(client.recv()).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// A packet of the peer: its kind, and what follows the header.
fn packet(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 0][..], &len, &[0; 4], &u32::from(CONFIG.window).to_be_bytes(), content].concat()
}

/// An offer of so many bytes, in memory that this side may not read.
fn offer(len: u64) -> Vec<u8> {
    packet(4, &[&[0; 12][..], &len.to_be_bytes()].concat())
}

/// The error of a channel after its peer, which has no channel, has done this.
async fn error_after(action: impl FnOnce(&mut Port)) -> std::io::Error {
    let (world, options, hello) = (World::paused(), Options::default(), CONFIG.hello());
    let mut listener = world.listener();
    let connect = Channel::connect(world.client.device(), server(), CONFIG, &options);
    let said = Options { private_data: &hello, ..options.clone() };
    let accept = async { listener.accept().await?.accept(&said, attach).await };
    let (mut channel, (_connection, mut peer)) = ends(async { tokio::try_join!(connect, accept) }).await.unwrap();
    action(&mut peer);
    ends(channel.recv()).await.unwrap_err()
}

/// What a channel returns after this packet of its peer.
async fn received(packet: &[u8]) -> ErrorKind {
    error_after(|peer| peer.send_bytes(packet)).await.kind()
}

/// Fails if receives that are flushed are posted again, until the peer is taken for silent.
#[tokio::test(start_paused = true)]
async fn a_peer_that_writes_where_it_may_not_ends_its_channel() {
    let started = tokio::time::Instant::now();
    let error = error_after(Port::write_nowhere).await;
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    assert!(started.elapsed() < CONFIG.silence / 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_breaks_the_protocol_ends_its_channel_and_is_named_as_the_cause() {
    let whole = packet(1, b"message");
    for at in 0..HEADER {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            let wrong_number = (8..12).contains(&at) && byte > 0;
            if wrong != whole && (at < 8 || wrong_number || byte == 0xff) {
                assert_eq!(received(&wrong).await, ErrorKind::InvalidData, "{wrong:?}");
            }
        }
    }
    for len in [0, (1 << 20) + 1, u64::from(u32::MAX) + 1, u64::MAX] {
        assert_eq!(received(&offer(len)).await, ErrorKind::InvalidData, "an offer of {len} bytes");
    }
    for wrong in [&[][..], &whole[..HEADER - 1], &packet(5, &[]), &packet(4, &[0; 19]), &packet(4, &[0; 21])] {
        assert_eq!(received(wrong).await, ErrorKind::InvalidData, "{wrong:?}");
    }
    for len in [1, 1 << 20] {
        assert_eq!(received(&offer(len)).await, ErrorKind::Other, "memory of the peer that cannot be read");
    }
    assert_eq!(received(&[7; 65]).await, ErrorKind::Other, "it is longer than a receive");
}
