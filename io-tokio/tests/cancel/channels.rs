//! The futures of channels and of their bytes.

use std::io;

use cmid_tokio::{ByteListener, ByteStream, Channel, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::common::channels::{CONFIG, CREDITS, channels};
use super::common::{LIMIT, ends, server};
use super::{goes_on, polled, stopped, with_each_number_of_polls};

#[test]
fn a_channel_whose_connect_or_accept_is_dropped_releases_everything() {
    with_each_number_of_polls(3, async |world, polls| {
        let mut listener = world.listener();
        let options = Options::default();
        let connect = || Channel::connect(world.client.device(), server(), CONFIG, &options);
        let accept = async { Channel::accept(listener.accept().await?, CONFIG, &options).await };
        let both = async { tokio::join!(connect(), accept) };
        let first = polled(&world.fabric, polls, both).await;
        let is_ready = first.is_some_and(|(client, server)| client.is_ok() && server.is_ok());
        goes_on(&world);
        let connect_again = async {
            let mut channel = connect().await.unwrap();
            channel.send(b"x").await.unwrap();
            channel.recv().await.unwrap_err().kind()
        };
        // The request of the first client may wait, and ends with an error.
        let accept_again = async {
            loop {
                let accepted = Channel::accept(listener.accept().await.unwrap(), CONFIG, &options).await;
                let Ok(mut channel) = accepted else { continue };
                if let Ok(message) = channel.recv().await {
                    return message.unwrap().to_vec();
                }
            }
        };
        let (end, message) = ends(async { tokio::join!(connect_again, accept_again) }).await;
        assert_eq!((end, &message[..]), (io::ErrorKind::UnexpectedEof, &b"x"[..]));
        is_ready
    });
}

#[test]
fn an_accept_of_a_listener_of_bytes_that_is_dropped_takes_no_stream() {
    with_each_number_of_polls(4, async |world, polls| {
        let mut listener = ByteListener::new(world.listener(), CONFIG, Options::default());
        let device = world.client.device();
        let client = tokio::spawn(async move {
            let mut stream = ByteStream::new(Channel::connect(device, server(), CONFIG, &Options::default()).await?);
            stream.write_all(b"x").await?;
            stream.read_u8().await
        });
        let first = polled(&world.fabric, polls, listener.accept()).await;
        let is_ready = first.is_some();
        goes_on(&world);
        let (mut stream, _peer) = match first {
            Some(first) => first.unwrap(),
            None => ends(listener.accept()).await.unwrap(),
        };
        assert_eq!(ends(stream.read_u8()).await.unwrap(), b'x');
        ends(stream.write_all(b"y")).await.unwrap();
        assert_eq!(ends(client).await.unwrap().unwrap(), b'y');
        is_ready
    });
}

#[test]
fn a_receive_of_a_channel_that_is_dropped_takes_no_message() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = stopped(&world, channels(&world)).await;
        for byte in 0..CREDITS {
            assert!(polled(&world.fabric, 1, client.send(&[byte])).await.is_some());
        }
        let first = polled(&world.fabric, polls, server.recv()).await;
        let (is_ready, mut received) = (first.is_some(), Vec::new());
        received.extend(first.map(|first| first.unwrap().unwrap()[0]));
        goes_on(&world);
        while received.len() < CREDITS.into() {
            received.push(ends(server.recv()).await.unwrap().unwrap()[0]);
        }
        assert_eq!(received, Vec::from_iter(0..CREDITS));
        // The end too is not lost.
        ends(client.finish()).await.unwrap();
        assert!(ends(server.recv()).await.unwrap().is_none());
        is_ready
    });
}

#[test]
fn a_send_of_a_channel_that_is_dropped_is_sent_whole_or_not_at_all() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = stopped(&world, channels(&world)).await;
        for byte in 0..CREDITS {
            assert!(polled(&world.fabric, 1, client.send(&[byte])).await.is_some());
        }
        // The peer has received all, and its credits are on their way while the next send waits for them.
        let receives = async {
            for byte in 0..CREDITS {
                assert_eq!(server.recv().await.unwrap().unwrap()[..], [byte]);
            }
        };
        assert!(polled(&world.fabric, 100, receives).await.is_some());
        let credits = tokio::spawn(async move { (server.recv().await, server) });
        let first = polled(&world.fabric, polls, client.send(b"first")).await;
        let is_ready = first.is_some();
        goes_on(&world);
        ends(client.send(b"second")).await.unwrap();
        let (received, mut server) = ends(credits).await.unwrap();
        let mut received = received.unwrap().unwrap();
        if is_ready {
            assert_eq!(received[..], *b"first");
            received = ends(server.recv()).await.unwrap().unwrap();
        }
        assert_eq!(received[..], *b"second");
        is_ready
    });
}

#[test]
fn a_finish_that_is_dropped_goes_on_and_the_next_call_waits_for_its_end() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = stopped(&world, channels(&world)).await;
        assert!(polled(&world.fabric, 1, client.send(b"last")).await.is_some());
        let first = polled(&world.fabric, polls, client.finish()).await;
        let is_ready = first.is_some();
        goes_on(&world);
        assert_eq!(ends(server.recv()).await.unwrap().unwrap()[..], *b"last");
        if polls > 0 {
            // The peer sees it, whether or not somebody waits.
            assert!(ends(server.recv()).await.unwrap().is_none());
        }
        let (client, server) = ends(async { tokio::join!(client.close(LIMIT), server.close(LIMIT)) }).await;
        client.unwrap();
        server.unwrap();
        is_ready
    });
}

#[test]
fn a_close_that_is_dropped_goes_on_and_the_next_call_waits_for_its_end() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = stopped(&world, channels(&world)).await;
        let peer = tokio::spawn(async move { server.close(LIMIT).await });
        let first = polled(&world.fabric, polls, client.close(LIMIT)).await;
        let is_ready = first.is_some();
        goes_on(&world);
        let (again, peer) = ends(async { tokio::join!(client.close(LIMIT), peer) }).await;
        again.unwrap();
        peer.unwrap().unwrap();
        is_ready
    });
}

/// It waits until the one before is taken.
#[test]
fn a_send_of_a_large_message_that_is_dropped_is_sent_whole_or_not_at_all() {
    with_each_number_of_polls(1, async |world, polls| {
        let [mut client, mut server] = stopped(&world, channels(&world)).await;
        assert!(polled(&world.fabric, 1, client.send(&[1; 1000])).await.is_some());
        let received = tokio::spawn(async move { (server.recv().await, server) });
        let first = polled(&world.fabric, polls, client.send(&[2; 2000])).await;
        let is_ready = first.is_some();
        goes_on(&world);
        let (message, mut server) = ends(received).await.unwrap();
        assert_eq!(message.unwrap().unwrap()[..], [1; 1000]);
        let rest = tokio::spawn(async move {
            let mut rest = vec![server.recv().await.unwrap().unwrap().to_vec()];
            while rest.last().is_some_and(|it| it[0] != 3) {
                rest.push(server.recv().await.unwrap().unwrap().to_vec());
            }
            (rest, server)
        });
        ends(client.send(&[3; 3000])).await.unwrap();
        let (rest, _server) = tokio::select! {
            rest = ends(rest) => rest.unwrap(),
            _ = client.recv() => unreachable!("no message"),
        };
        let expected = [vec![2; 2000], vec![3; 3000]];
        assert!(rest == expected[usize::from(!is_ready)..]);
        is_ready
    });
}

#[test]
fn reads_writes_and_shutdowns_of_bytes_that_are_dropped_lose_and_repeat_none() {
    with_each_number_of_polls(1, async |world, polls| {
        let channels = stopped(&world, channels(&world)).await;
        let [mut client, mut server] = channels.map(ByteStream::new);
        // All credits; the peer reads them while the next write waits.
        for byte in 0..CREDITS {
            assert!(polled(&world.fabric, 1, client.write(&[byte])).await.is_some());
        }
        let mut read = [0; 1];
        let first_read = polled(&world.fabric, polls, server.read(&mut read)).await;
        let mut received = Vec::from(&read[..first_read.map_or(0, Result::unwrap)]);
        let reading = tokio::spawn(async move { server.read_to_end(&mut received).await.map(|_| received) });
        let first_write = polled(&world.fabric, polls, client.write(&[CREDITS])).await;
        let first_shutdown = polled(&world.fabric, polls, client.shutdown()).await;
        goes_on(&world);
        let written = CREDITS + u8::from(first_write.is_some_and(|it| it.is_ok_and(|count| count == 1)));
        ends(client.shutdown()).await.unwrap();
        assert_eq!(ends(reading).await.unwrap().unwrap(), Vec::from_iter(0..written));
        first_shutdown.is_some()
    });
}
