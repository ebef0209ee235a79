//! Runs an echo server, clients, or both.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::{Clock, Config, Fabric};
use cmid_tokio::{Connector, Listener, Options};
use on_tokio::{channels, give_up, http, http_client, ping, serve};
use tokio::net::TcpListener;

/// A drop waits for nobody. An emulated machine may stall for a part of a second.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Echoes messages over RDMA connections.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What to run.
    #[arg(value_enum, default_value_t = Part::Both)]
    part: Part,
    /// The device. On the simulated fabric only `both` has a peer.
    #[arg(long, value_enum, default_value_t = Device::Sim)]
    device: Device,
    /// The address and port of the server.
    #[arg(long, default_value = "10.99.0.2:7471")]
    address: SocketAddr,
    /// Messages of channels, of any length.
    #[arg(long, conflicts_with = "http")]
    channel: bool,
    /// HTTP/2 requests instead of messages; of `both`, one more client is on TCP.
    #[arg(long)]
    http: bool,
    /// The address and port of the HTTP server's TCP listener.
    #[arg(long, default_value = "127.0.0.1:0")]
    tcp: SocketAddr,
    /// The number of connections at a time.
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// The number of messages, or requests, of each client.
    #[arg(long, default_value_t = 100)]
    messages: u32,
    /// The number of connects whose futures are dropped first, each a millisecond later than the one before.
    #[arg(long, default_value_t = 0)]
    drops: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Both,
    /// The server: until it is killed.
    Serve,
    /// The clients.
    Ping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The simulated fabric.
    Sim,
    /// A real RDMA device.
    Verbs,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.device {
        Device::Sim if args.part != Part::Both => bail!("on the simulated fabric only `both` has a peer"),
        Device::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            run(&args, fabric.host(&[args.address.ip()]).device()).await
        }
        #[cfg(feature = "verbs")]
        Device::Verbs => run(&args, cmid_tokio::verbs::Verbs::open()?).await,
        #[cfg(not(feature = "verbs"))]
        Device::Verbs => bail!("built without the feature `verbs`: there is only --device sim"),
    }
}

async fn run<D: DataPath + 'static>(args: &Args, device: D) -> Result<()> {
    let (peer, messages, is_http, is_channel) = (args.address, args.messages, args.http, args.channel);
    let mut by_tcp = None;
    if args.part != Part::Ping {
        let listener = Listener::bind(device.sibling(), peer).with_context(|| format!("listening on {peer}"))?;
        let tcp = TcpListener::bind(args.tcp).await.with_context(|| format!("listening on {} by TCP", args.tcp))?;
        by_tcp = Some(tcp.local_addr()?);
        let serving = tokio::spawn(async move {
            match (is_http, is_channel) {
                (true, _) => http::serve(listener, tcp).await,
                (_, true) => channels::serve(listener).await,
                _ => serve(listener).await,
            }
        });
        if args.part == Part::Serve {
            return serving.await?.context("the server");
        }
    }
    for after in (0..args.drops).map(|number| Duration::from_millis(number.into())) {
        let took = give_up(device.sibling(), peer, after).await.context("a connect to be dropped")?;
        if took > AT_ONCE {
            bail!("a connect was dropped after {after:?}, which took {took:?}");
        }
    }
    let clients: Vec<_> = (0..args.clients)
        .map(|_| device.sibling())
        .map(|device| match (is_http, is_channel) {
            (true, _) => {
                let connector = Connector::new(device, MessagesConfig::default(), Options::default());
                tokio::spawn(http_client::post(connector, peer, messages))
            }
            (_, true) => tokio::spawn(channels::ping(device, peer, messages)),
            _ => tokio::spawn(ping(device, peer, messages)),
        })
        .collect();
    for client in clients {
        let bytes = client.await?.context("a client")?;
        writeln!(io::stdout(), "{bytes} bytes came back").context("standard output")?;
    }
    if let Some(by_tcp) = by_tcp.filter(|_| is_http) {
        let bytes = http_client::post(http_client::tcp(), by_tcp, messages).await.context("the client on TCP")?;
        writeln!(io::stdout(), "{bytes} bytes came back by TCP").context("standard output")?;
    }
    Ok(())
}
