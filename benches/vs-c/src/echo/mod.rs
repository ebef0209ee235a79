//! The same echo on the data path, over `Messages` and over TCP, for `cargo xtask versus --parts echo`. That on rdma-io is
//! in `benches/peers/rdma-io`. The client keeps a number of messages under way; the server sends back what has arrived.

mod on_epoll;
mod on_tokio;
mod path;
mod tcp;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use cmid_proto::ConnParam;
use cmid_proto::datapath::{Attaching, CreateError};
use cmid_proto::handshake::Options;
use cmid_proto::messages::{HEADER, MessagesConfig};
use cmid_verbs::Verbs;

use crate::connection::{self, Opened};

/// The limit of a handshake and of an end.
const LIMIT: Duration = Duration::from_secs(20);

/// No send meets a missing receive.
const PARAM: ConnParam = ConnParam { rnr_retry_count: 0, ..crate::param::PARAM };

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Arguments {
    /// What carries the messages
    #[arg(long, value_enum)]
    on: Carrier,
    /// The address to listen on, or to connect to
    address: SocketAddr,
    /// Listen, and end with the first connection
    #[arg(short, long)]
    server: bool,
    /// The number of messages each way
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u32,
    /// The length of each message in bytes
    #[arg(short = 'z', long, default_value_t = 64)]
    size: usize,
    /// The number of messages under way; of the data path one
    #[arg(short = 'w', long, default_value_t = 1)]
    window: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Carrier {
    /// The data path, with poll(2)
    Path,
    /// The data path, with a read of the completion channel, as `ibv_rc_pingpong` does
    PathBlocking,
    /// `Messages` on io-epoll, with poll(2)
    Epoll,
    /// A channel of io-tokio
    Tokio,
    /// TCP with poll(2)
    TcpPoll,
    /// TCP on tokio
    TcpTokio,
}

impl Arguments {
    /// 32 receives for messages of this size. An emulated machine may be silent for a while.
    fn config(self) -> Result<MessagesConfig> {
        let packet = u32::try_from(self.size + HEADER).context("a size of 4 GiB")?;
        Ok(MessagesConfig { packet, silence: LIMIT, ..MessagesConfig::default() })
    }

    /// How many messages are to be sent once so many have come back.
    fn due(self, received: u32) -> u32 {
        self.iters.min(received.saturating_add(self.window))
    }

    /// How many messages are to be sent over a stream once so many bytes have come back.
    fn due_of_bytes(self, received: usize) -> u32 {
        self.due(u32::try_from(received / self.size.max(1)).unwrap_or(u32::MAX))
    }

    /// The bytes of all messages.
    fn bytes(self) -> usize {
        self.iters as usize * self.size
    }

    /// Prints the time since `begin` as `ibv_rc_pingpong` does.
    fn print(self, begin: Instant) {
        let (span, iters) = (begin.elapsed().as_secs_f64(), self.iters);
        println!("{iters} iters in {span:.2} seconds = {:.2} usec/iter", span * 1e6 / f64::from(iters));
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    match arguments.on {
        Carrier::Path => path::run(arguments, false),
        Carrier::PathBlocking => path::run(arguments, true),
        Carrier::Epoll => on_epoll::run(arguments),
        Carrier::TcpPoll => tcp::run(arguments),
        Carrier::Tokio => runtime()?.block_on(on_tokio::channel(arguments)),
        Carrier::TcpTokio => runtime()?.block_on(on_tokio::tcp(arguments)),
    }
}

/// With one thread.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Connects, or accepts the first request.
fn open<A>(
    arguments: Arguments,
    private_data: &[u8],
    attach: impl Fn(&mut Verbs, Attaching<'_>) -> Result<A, CreateError>,
) -> Result<Opened<A>> {
    let options = Options { param: PARAM, private_data, timeout: LIMIT, ..Options::default() };
    connection::open(arguments.address, arguments.server, &options, attach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_messages_is_under_way_until_all_are_sent() {
        let address = "10.0.0.1:1".parse().unwrap();
        let arguments = Arguments { on: Carrier::TcpPoll, address, server: false, iters: 10, size: 4, window: 3 };
        assert_eq!([0, 1, 8, 10].map(|received| arguments.due(received)), [3, 4, 10, 10]);
        assert_eq!([0, 3, 4, 40].map(|received| arguments.due_of_bytes(received)), [3, 3, 4, 10]);
    }
}
