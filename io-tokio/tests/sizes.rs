//! Sizes that no process has memory for, of the application and of a hostile peer: an error, and no abort.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::ErrorKind;

use cmid_tokio::proto::Time;
use cmid_tokio::proto::datapath::{Access, Attaching, CreateError, Remote, SendWr, prelude::*};
use cmid_tokio::proto::messages::{Messages, MessagesConfig, OFFER};
use cmid_tokio::sim::{Cq, Mr, Qp, SimDevice};
use cmid_tokio::{Channel, Connection, Options};
use common::channels::CONFIG;
use common::{World, ends, server};

#[tokio::test(start_paused = true)]
async fn packets_that_no_process_has_memory_for_are_an_error_of_the_connect_and_of_the_accept() {
    let world = World::paused();
    let mut listener = world.listener();
    let options = Options::default();
    let vast = MessagesConfig { window: 1024, packet: u32::MAX - 1, ..CONFIG };
    let connect = Channel::connect(world.client.device(), server(), vast, &options);
    let error = ends(connect).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("4398046509056 bytes cannot be allocated"), "{error}");

    // What no peer takes is said before anything is made.
    let without = MessagesConfig { window: 0, packet: 0, ..CONFIG };
    let error = ends(Channel::connect(world.client.device(), server(), without, &options)).await.unwrap_err();
    assert_eq!(error.to_string(), "own window of 0 is less than 4");

    let connect = Channel::connect(world.client.device(), server(), CONFIG, &options);
    let accept = async { Channel::accept(listener.accept().await?, vast, &options).await };
    let (connected, accepted) = ends(async { tokio::join!(connect, accept) }).await;
    assert_eq!(accepted.unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(connected.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// A QP, and memory for a packet.
fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<(Cq, (Qp, Mr)), CreateError> {
    let made = device.qp(to).attach()?;
    let mr = made.pd.register(vec![0; OFFER], Access::LOCAL_WRITE)?;
    Ok((made.cq, (made.qp, mr)))
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_no_process_has_memory_for_ends_the_channel_with_an_error() {
    for len in [1 << 60, u64::MAX] {
        let world = World::paused();
        let mut listener = world.listener();
        let hello = CONFIG.hello();
        let options = Options { private_data: &hello, ..Options::default() };
        let connect = Connection::connect(world.client.device(), server(), &options, attach);
        let accept = async {
            let incoming = listener.accept().await?;
            Channel::accept(incoming, CONFIG, &Options::default()).await
        };
        let (client, mut channel) = ends(async { tokio::try_join!(connect, accept) }).await.unwrap();
        channel.set_large_max(usize::MAX);
        let (connection, (mut qp, mut mr)) = client;
        let mut messages = Messages::new(CONFIG, connection.private_data(), Time::ZERO).unwrap();
        let offer = messages.offer(len, Remote { addr: 0, rkey: 0 }, Time::ZERO).unwrap();
        mr.write(0, &offer).unwrap();
        qp.post_send(SendWr::send(1, mr.sge(0..OFFER))).unwrap();
        let error = ends(channel.recv()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        // It stays so.
        assert_eq!(ends(channel.recv()).await.unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
