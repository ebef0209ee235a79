//! The echo of `benches/vs-c/src/echo/` on rdma-io's stream, which tokio drives: `ADDRESS:PORT -n ITERS -z SIZE -w WINDOW`,
//! and `-s` for the server.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rdma_io::async_cm::AsyncCmListener;
use rdma_io::async_stream::AsyncRdmaStream;
use rdma_io::send_recv_transport::SendRecvConfig;
use rdma_io::transport::TransportBuilder as _;

#[derive(Default)]
struct Arguments {
    address: Option<SocketAddr>,
    is_server: bool,
    iters: usize,
    size: usize,
    window: usize,
}

fn arguments() -> Result<Arguments> {
    let mut found = Arguments { iters: 1000, size: 64, window: 1, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} has no value"));
        match word.as_str() {
            "-s" => found.is_server = true,
            "-n" => found.iters = value()?.parse()?,
            "-z" => found.size = value()?.parse()?,
            "-w" => found.window = value()?.parse()?,
            _ => found.address = Some(word.parse()?),
        }
    }
    Ok(found)
}

fn main() -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(echo(arguments()?))
}

async fn echo(Arguments { address, is_server, iters, size, window }: Arguments) -> Result<()> {
    let address = address.context("no address")?;
    let mut buffer = vec![0; size * window];
    if is_server {
        let listener = AsyncCmListener::bind(&address)?;
        let mut stream = AsyncRdmaStream::new(SendRecvConfig::stream().accept(&listener).await?);
        loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                len => stream.write_all(&buffer[..len]).await?,
            }
        }
    }
    let mut stream = AsyncRdmaStream::new(SendRecvConfig::stream().connect(&address).await?);
    let message = vec![1; size];
    let (begin, mut sent, mut received) = (Instant::now(), 0, 0);
    while received < iters * size {
        while sent < iters.min(received / size + window) {
            stream.write_all(&message).await?;
            sent += 1;
        }
        match stream.read(&mut buffer).await? {
            0 => bail!("the server has ended the connection"),
            len => received += len,
        }
    }
    let span = begin.elapsed().as_secs_f64();
    println!("{iters} iters in {span:.2} seconds = {:.2} usec/iter", span * 1e6 / iters as f64);
    Ok(stream.shutdown().await?)
}
