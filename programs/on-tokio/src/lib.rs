//! An echo server and its clients on tokio, over any device: of messages, of those of channels, and of bodies of HTTP by axum.
#![forbid(unsafe_code)]

pub mod channels;
pub mod http;
pub mod http_client;
mod port;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cmid_tokio::proto::datapath::{Completion, DataPath, WcOpcode, WcStatus};
use cmid_tokio::{Connection, Incoming, Listener, Options};
use tokio::time::{Instant, timeout};

use port::{Port, SIZE, SLOTS};

const LIMIT: Duration = Duration::from_secs(10);

/// Serves each connection in a task of its own. Does not end without an error.
///
/// # Errors
/// The listener has failed, such as by the removal of its device.
pub async fn serve<D: DataPath + 'static>(listener: Listener<D>) -> io::Result<()> {
    serve_each(listener, echo).await
}

async fn serve_each<D: DataPath, F>(mut listener: Listener<D>, echo: impl Fn(Incoming<D>) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        let echoing = match listener.accept().await {
            // One client is rejected, for lack of descriptors.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            incoming => echo(incoming?),
        };
        tokio::spawn(async move {
            if let Err(error) = echoing.await {
                eprintln!("a connection has failed: {error}");
            }
        });
    }
}

/// Sends each message back, until the peer disconnects.
async fn echo<D: DataPath>(incoming: Incoming<D>) -> io::Result<()> {
    let (mut connection, mut port) = incoming.accept(&Options::default(), Port::attach).await?;
    let mut completions = [Completion::default(); SLOTS as usize];
    loop {
        let polled = connection.next_completions(&mut completions).await?;
        if polled == 0 {
            return Ok(());
        }
        for completion in &completions[..polled] {
            match (completion.status, completion.opcode) {
                (WcStatus::SUCCESS, WcOpcode::RECV) => port.echo(completion.wr_id, completion.byte_len)?,
                // The slot is free again.
                (WcStatus::SUCCESS, _) => port.receive(completion.wr_id)?,
                // The peer has disconnected.
                (WcStatus::WR_FLUSH_ERR, _) => {}
                (status, _) => return Err(io::Error::other(status.to_string())),
            }
        }
    }
}

/// Connects, sends so many messages, compares their echoes, and disconnects. Returns the number of bytes that came back.
///
/// # Errors
/// The connect or a work request has failed, or an echo differs.
pub async fn ping<D: DataPath>(device: D, peer: SocketAddr, messages: u32) -> io::Result<usize> {
    let (mut connection, mut port) = Connection::connect(device, peer, &Options::default(), Port::attach).await?;
    let mut bytes = 0;
    for number in 0..messages {
        let message = vec![number as u8; number as usize % SIZE + 1];
        port.send(u64::from(number % SLOTS), &message)?;
        let echo = next_message(&mut connection, &mut port).await?;
        if echo != message {
            return Err(io::Error::other(format!("message {number} came back as {echo:?}")));
        }
        bytes += echo.len();
    }
    connection.disconnect(LIMIT).await?;
    // The posted receives come back, and perhaps a send whose ack was under way.
    let (mut one, mut flushed) = ([Completion::default()], 0);
    while connection.next_completions(&mut one).await? > 0 {
        flushed += u32::from(one[0].status == WcStatus::WR_FLUSH_ERR);
    }
    if flushed < SLOTS {
        return Err(io::Error::other(format!("{flushed} of {SLOTS} receives came back")));
    }
    Ok(bytes)
}

/// Begins a connect, and drops its future after a time. Returns how long the drop took.
///
/// # Errors
/// The connect has failed before.
pub async fn give_up<D: DataPath>(device: D, peer: SocketAddr, after: Duration) -> io::Result<Duration> {
    let options = Options::default();
    let mut connect = Box::pin(Connection::connect(device, peer, &options, Port::attach));
    if let Ok(connected) = timeout(after, &mut connect).await {
        // A drop of the connection itself.
        drop(connected?);
    }
    let begun = Instant::now();
    drop(connect);
    Ok(begun.elapsed())
}

/// Waits for a message, and posts its receive again.
async fn next_message<D: DataPath>(connection: &mut Connection<D>, port: &mut Port<D>) -> io::Result<Vec<u8>> {
    let mut one = [Completion::default()];
    loop {
        if connection.next_completions(&mut one).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [Completion { status, opcode, wr_id, byte_len, .. }] = one;
        if status != WcStatus::SUCCESS {
            return Err(io::Error::other(status.to_string()));
        } else if opcode == WcOpcode::RECV {
            let message = port.message(wr_id, byte_len)?;
            port.receive(wr_id)?;
            return Ok(message);
        }
    }
}
