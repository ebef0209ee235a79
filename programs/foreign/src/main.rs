//! A data path of the application's own, on connections that cmid manages.
//!
//! `path` is the data path: a PD, a CQ, an MR and a QP, created and used by calls of libibverbs. `connection` is the
//! connection: cmid resolves, connects and accepts, and returns the attributes that move the QP to each state. The
//! trait `ForeignQp` is the interface between the two. The server and the client are threads of this program.

mod connection;
mod path;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use cmid_verbs::{Backend, Verbs};

use crate::connection::{Connection, LIMIT};
use crate::path::Path;

/// Sends messages and receives their echoes, on its own data path.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The address of the server
    #[arg(default_value = "10.99.0.2:7481")]
    address: SocketAddr,
    /// The number of messages
    #[arg(short = 'C', long, default_value_t = 1000)]
    count: u32,
    /// The backend of connection management: the kernel's own interface (kernel), or librdmacm
    #[arg(long, default_value_t)]
    backend: Backend,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (ready, is_ready) = mpsc::channel();
    let of_server = args.clone();
    let server = thread::spawn(move || serve(&of_server, &ready));
    // Without a listener, the server has failed, and the program reports the server's error.
    if is_ready.recv_timeout(LIMIT).is_ok() {
        request(&args).context("the client")?;
    }
    server.join().map_err(|_| anyhow!("the server panicked"))?.context("the server")
}

/// Echoes the messages.
fn serve(args: &Args, ready: &Sender<()>) -> Result<()> {
    let (connection, mut path) = Connection::accept(Verbs::open_with(args.backend)?, args.address, ready, Path::open)?;
    for _ in 0..args.count {
        let message = path.receive()?;
        path.send(message)?;
    }
    connection.wait_disconnected()?;
    writeln!(io::stdout(), "server: {} messages echoed", args.count)?;
    Ok(())
}

/// Sends the messages and checks each echo.
fn request(args: &Args) -> Result<()> {
    let (connection, mut path) = Connection::connect(Verbs::open_with(args.backend)?, args.address, Path::open)?;
    for number in 0..args.count {
        path.send(number)?;
        let echo = path.receive()?;
        ensure!(echo == number, "message {number} came back as {echo}");
    }
    connection.disconnect()?;
    writeln!(io::stdout(), "client: {} messages sent and received", args.count)?;
    Ok(())
}
