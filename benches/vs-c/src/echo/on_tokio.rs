//! A channel of io-tokio, and TCP, on a runtime with one thread.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cmid_tokio::{Channel, Listener, Options};
use cmid_verbs::Verbs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Arguments, LIMIT, PARAM};

pub(super) async fn channel(arguments: Arguments) -> Result<()> {
    let (config, device) = (arguments.config()?, Verbs::open()?);
    let options = Options { param: PARAM, timeout: LIMIT, ..Options::default() };
    if arguments.server {
        let incoming = Listener::bind(device, arguments.address)?.accept().await?;
        let mut channel = Channel::accept(incoming, config, &options).await?;
        while let Some(message) = channel.recv().await? {
            channel.send(&message).await?;
        }
        return Ok(channel.close(LIMIT).await?);
    }
    let mut channel = Channel::connect(device, arguments.address, config, &options).await?;
    let message = vec![1; arguments.size];
    let (begin, mut sent, mut received) = (Instant::now(), 0, 0);
    while received < arguments.iters {
        while sent < arguments.due(received) {
            channel.send(&message).await?;
            sent += 1;
        }
        let echo = channel.recv().await?.context("the server has finished")?;
        ensure!(echo.len() == arguments.size, "an echo of {} bytes", echo.len());
        received += 1;
    }
    arguments.print(begin);
    Ok(channel.close(LIMIT).await?)
}

pub(super) async fn tcp(arguments: Arguments) -> Result<()> {
    let mut buffer = vec![0; arguments.size * arguments.window as usize];
    if arguments.server {
        let (mut stream, _) = TcpListener::bind(arguments.address).await?.accept().await?;
        stream.set_nodelay(true)?;
        loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                len => stream.write_all(&buffer[..len]).await?,
            }
        }
    }
    let mut stream = TcpStream::connect(arguments.address).await?;
    stream.set_nodelay(true)?;
    let message = vec![1; arguments.size];
    let (begin, mut sent, mut received) = (Instant::now(), 0, 0);
    while received < arguments.bytes() {
        while sent < arguments.due_of_bytes(received) {
            stream.write_all(&message).await?;
            sent += 1;
        }
        let len = stream.read(&mut buffer).await?;
        ensure!(len > 0, "the server has ended the connection");
        received += len;
    }
    arguments.print(begin);
    Ok(())
}
