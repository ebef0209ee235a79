//! The peer of perftest's `ib_send_lat -R`, on cmid-blocking. `-R` uses two connections to one port: the first exchanges
//! parameters, the second is measured.
//!
//! `kernel-perftest serve|connect ADDRESS:PORT`; CMID_BACKEND selects the backend of cmid-verbs. The peer runs with
//! `-n 100`.
//!
//! On both connections a message of the client is answered by one of the server with the same length. So the server of
//! this program sends each message back. On the first connection perftest 4.5 exchanges its version, two sizes and the
//! MTU, then the parameters of the QP, [`PARAMETERS`] bytes, several times: first before the second connection is made,
//! last after the measurement.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_blocking::{Connection, Error, Listener, Options};
use cmid_proto::datapath::{Access, Attaching, Caps, Completion, CreateError, SendWr, prelude::*};
use cmid_proto::{ConnParam, Errno};
use cmid_verbs::{Backend, Cq, Mr, Pd, Qp, Verbs};

/// The limit of each wait.
const SPAN: Duration = Duration::from_secs(20);
/// The messages that are measured: `-n` of the peer.
const MEASURED: u32 = 100;
/// The bytes of such a message: the default of `ib_send_lat`.
const MEASURED_LEN: usize = 2;
/// perftest's version: it decides which of the following messages there are.
const VERSION: &[u8; 16] = b"6.10\0\0\0\0\0\0\0\0\0\0\0\0";
/// The buffer and the cache line of the client in bytes, in network byte order.
const SIZES: [u32; 2] = [4096, 64];
/// The MTU: the value of `IBV_MTU_1024` in decimal.
const MTU: &[u8; 2] = b"3\0";
/// The bytes of the parameters of a QP. The connection manager has them already: the receiver only prints them.
const PARAMETERS: usize = 56;
/// How often the parameters are exchanged between the second connection and the measurement.
const COPIES: usize = 5;
/// Messages on the first connection: version, sizes, MTU, and parameters.
const EXCHANGED: u32 = 1 + SIZES.len() as u32 + 1 + 1 + COPIES as u32 + 1;
/// The bytes of the longest message.
const LONGEST: usize = 64;
/// The attempts to make the second connection: the server listens only after the first exchange of parameters.
const TRIES: u32 = 100;

const RECEIVED: u64 = 0;
const SENT: u64 = 1;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [role, address] = arguments.as_slice() else { bail!("kernel-perftest serve|connect ADDRESS:PORT") };
    let address = address.parse()?;
    let backend = std::env::var("CMID_BACKEND").map_or(Ok(Backend::default()), |name| name.parse())?;
    match role.as_str() {
        "serve" => serve(backend, address)?,
        "connect" => connect(backend, address)?,
        other => bail!("{other} is neither serve nor connect"),
    }
    println!("{EXCHANGED} messages exchanged, {MEASURED} measured");
    Ok(())
}

fn options() -> Options<'static> {
    Options {
        param: ConnParam { retry_count: 7, rnr_retry_count: 7, ..ConnParam::default() },
        timeout: SPAN,
        ..Options::default()
    }
}

fn serve(backend: Backend, address: SocketAddr) -> Result<()> {
    let mut listener = Listener::bind(Verbs::open_with(backend)?, address)?;
    thread::scope(|scope| {
        let mut serving = Vec::new();
        for messages in [EXCHANGED, MEASURED] {
            let (mut connection, mut side) = listener.accept(SPAN)?.accept(&options(), Side::attach)?;
            serving.push(scope.spawn(move || -> Result<()> {
                for number in 0..messages {
                    let len = side.receive().with_context(|| format!("message {number} of {messages}"))?;
                    side.send(len)?;
                }
                connection.wait_closed(SPAN)?;
                Ok(connection.disconnect(SPAN)?)
            }));
        }
        serving.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

fn connect(backend: Backend, address: SocketAddr) -> Result<()> {
    let (mut first, mut exchange) = Connection::connect(Verbs::open_with(backend)?, address, &options(), Side::attach)?;
    exchange.request(VERSION).context("the version")?;
    let version = String::from_utf8_lossy(&exchange.memory()?[..VERSION.len()]).into_owned();
    for size in SIZES {
        exchange.request(&size.to_be_bytes()).context("a size")?;
    }
    exchange.request(MTU).context("the MTU")?;
    exchange.request(&[0; PARAMETERS]).context("the first parameters")?;
    let (mut second, mut measured) = second(backend, address)?;
    for _ in 0..COPIES {
        exchange.request(&[0; PARAMETERS]).context("the parameters")?;
    }
    for _ in 0..MEASURED {
        measured.request(&[0; MEASURED_LEN]).context("a measured message")?;
    }
    exchange.request(&[0; PARAMETERS]).context("the last parameters")?;
    second.disconnect(SPAN)?;
    first.disconnect(SPAN)?;
    println!("the peer is perftest {}", version.trim_end_matches('\0'));
    Ok(())
}

/// Connects until the server listens again.
fn second(backend: Backend, address: SocketAddr) -> Result<(Connection<Verbs>, Side)> {
    for _ in 0..TRIES {
        match Connection::connect(Verbs::open_with(backend)?, address, &options(), Side::attach) {
            Err(error @ (Error::Ended { .. } | Error::Core(_))) if error.errno() == Errno::ECONNREFUSED => {
                thread::sleep(Duration::from_millis(100));
            }
            result => return result.context("the second connection"),
        }
    }
    bail!("the second connection was refused {TRIES} times")
}

/// One side of a connection, with one message at a time.
struct Side {
    qp: Qp,
    cq: Cq,
    memory: Mr,
    _pd: Pd,
    /// The length of a message that came before the completion of a send.
    received: Option<usize>,
}

impl Side {
    fn attach(device: &mut Verbs, to: Attaching<'_>) -> Result<Self, CreateError> {
        let id = to.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 4)?;
        let memory = pd.register(vec![0; LONGEST], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 1, max_recv_wr: 1, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        qp.post_recv(RECEIVED, memory.sge(0..LONGEST))?;
        Ok(Side { qp, cq, memory, _pd: pd, received: None })
    }

    fn memory(&self) -> Result<[u8; LONGEST]> {
        let mut bytes = [0; LONGEST];
        self.memory.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Sends a message and receives one of the same length.
    fn request(&mut self, message: &[u8]) -> Result<()> {
        self.memory.write(0, message)?;
        self.send(message.len())?;
        let len = self.receive()?;
        ensure!(len == message.len(), "{} bytes sent, {len} received", message.len());
        Ok(())
    }

    /// Sends the first `len` bytes of the memory.
    fn send(&mut self, len: usize) -> Result<()> {
        self.qp.post_send(SendWr::send(SENT, self.memory.sge(0..len)))?;
        loop {
            let completion = self.completion()?;
            if completion.wr_id == SENT {
                return Ok(());
            }
            self.received = Some(completion.byte_len as usize);
        }
    }

    /// Waits for a message, posts the next receive, and returns the length.
    fn receive(&mut self) -> Result<usize> {
        let len = match self.received.take() {
            Some(len) => len,
            None => self.completion()?.byte_len as usize,
        };
        // The memory has the message until the next one is sent and answered.
        self.qp.post_recv(RECEIVED, self.memory.sge(0..LONGEST))?;
        Ok(len)
    }

    fn completion(&mut self) -> Result<Completion> {
        let end = Instant::now() + SPAN;
        loop {
            match self.cq.poll_one()? {
                Some(completion) if completion.is_success() => return Ok(completion),
                Some(completion) => bail!("a message ended with \"{}\"", completion.status),
                None if Instant::now() >= end => bail!("no completion in {SPAN:?}"),
                None => thread::yield_now(),
            }
        }
    }
}
