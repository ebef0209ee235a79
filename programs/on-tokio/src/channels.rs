//! Messages of any length over channels: those that no receive has room for are read by RDMA.

use std::io;
use std::net::SocketAddr;

use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::{Channel, Incoming, Listener, Options};

use crate::{LIMIT, serve_each};

/// Sends each message back, each connection in a task of its own. Does not end without an error.
///
/// # Errors
/// The listener has failed, such as by the removal of its device.
pub async fn serve<D: DataPath + 'static>(listener: Listener<D>) -> io::Result<()> {
    serve_each(listener, echo).await
}

async fn echo<D: DataPath>(incoming: Incoming<D>) -> io::Result<()> {
    let mut channel = Channel::accept(incoming, MessagesConfig::default(), &Options::default()).await?;
    while let Some(message) = channel.recv().await? {
        channel.send(&message).await?;
    }
    channel.close(LIMIT).await
}

/// Connects, sends so many messages of different lengths up to 300 kB, compares their echoes, and closes. Returns the number of
/// bytes that came back.
///
/// # Errors
/// The connect or the channel has failed, or an echo differs.
pub async fn ping<D: DataPath>(device: D, peer: SocketAddr, messages: u32) -> io::Result<usize> {
    let mut channel = Channel::connect(device, peer, MessagesConfig::default(), &Options::default()).await?;
    let mut bytes = 0;
    for number in 0..messages {
        let message = vec![number as u8; number as usize * 7919 % 300_000];
        channel.send(&message).await?;
        let echo = channel.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if echo[..] != message {
            return Err(io::Error::other(format!("message {number} came back as {} bytes", echo.len())));
        }
        bytes += echo.len();
    }
    channel.close(LIMIT).await?;
    Ok(bytes)
}
