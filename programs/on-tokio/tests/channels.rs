//! Channels on the simulator.
#![allow(clippy::unwrap_used, reason = "a test")]

use cmid_tokio::Listener;
use cmid_tokio::sim::{Config, Fabric};
use on_tokio::channels;

#[tokio::test(start_paused = true)]
async fn messages_of_any_length_come_back() {
    let fabric = Fabric::new(Config::default());
    tokio::spawn(cmid_tokio::advance_with_clock(fabric.clone()));
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|addr| fabric.host(&[addr.parse().unwrap()]));
    let addr = "10.0.0.2:7471".parse().unwrap();
    tokio::spawn(channels::serve(Listener::bind(server.device(), addr).unwrap()));
    let ping = |messages| channels::ping(client.device(), addr, messages);
    let bytes = |messages: usize| (0..messages).map(|number| number * 7919 % 300_000).sum::<usize>();
    assert_eq!(tokio::try_join!(ping(60), ping(2)).unwrap(), (bytes(60), bytes(2)));
}
