//! A pair of channels.

use std::time::Duration;

use cmid_tokio::proto::ConnParam;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::SimDevice;
use cmid_tokio::{Channel, Options};

use super::{World, server};

/// Six messages may be on their way in each direction.
pub(crate) const CONFIG: MessagesConfig =
    MessagesConfig { window: 8, packet: 64, keep_alive: Duration::from_secs(1), silence: Duration::from_secs(5) };

/// The messages that a side can send before the other one has received any.
pub(crate) const CREDITS: u8 = 6;

/// The client's side, and the server's. A packet that met no receive would end the connection: it is not sent again.
pub(crate) async fn channels(world: &World) -> [Channel<SimDevice>; 2] {
    channels_with(world, [CONFIG; 2]).await
}

/// With other configurations.
pub(crate) async fn channels_with(world: &World, [to, from]: [MessagesConfig; 2]) -> [Channel<SimDevice>; 2] {
    let mut listener = world.listener();
    let options = Options { param: ConnParam { rnr_retry_count: 0, ..ConnParam::default() }, ..Options::default() };
    let connect = Channel::connect(world.client.device(), server(), to, &options);
    let accept = async { Channel::accept(listener.accept().await?, from, &options).await };
    let (client, server) = tokio::try_join!(connect, accept).unwrap();
    [client, server]
}
