//! The TCP connection with which cmtime of rdma-core 52 to 58 synchronizes both sides ("out of band").
//!
//! Neither side passes a [`Point`] before the other one has reached it: the client sends the point's byte, the server
//! sends it back. There are three rounds on the same TCP connection ([`rounds`]). The calls here block. This is
//! harmless: at each point the connections of this side wait only for the other side.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::args::{Plan, Role};
use crate::point::Point;

/// The default first QP number of the round without QPs, as in cmtime.
const BASE_QPN: u32 = 1000;
/// Between two attempts to connect to the other side.
const PAUSE: Duration = Duration::from_millis(10);

/// The rounds of cmtime, in order: one connection to warm up, all of them with QPs, all of them without.
pub(crate) fn rounds(plan: Plan) -> [Plan; 3] {
    let without = plan.base_qpn.unwrap_or(BASE_QPN);
    let with = Plan { base_qpn: None, in_step: true, ..plan };
    [Plan { connections: 1, ..with }, with, Plan { base_qpn: Some(without), ..with }]
}

/// One side of the TCP connection.
#[derive(Debug)]
pub(crate) struct Oob {
    end: End,
    limit: Duration,
}

#[derive(Debug)]
enum End {
    Client(TcpStream),
    /// No client has connected yet.
    Listener(TcpListener),
    Server(TcpStream),
}

impl Oob {
    /// The server's side listens. The client's connects, with retries for at most `limit`: cmtime's server listens
    /// for TCP after it listens for RDMA. `limit` also bounds each [`Oob::sync`].
    pub(crate) fn new(role: Role, limit: Duration) -> Result<Self> {
        let end = match role {
            Role::Server(address) => {
                End::Listener(TcpListener::bind(address).with_context(|| format!("listening on TCP {address}"))?)
            }
            Role::Client(server) => {
                let connect = || ready(TcpStream::connect(server), ErrorKind::ConnectionRefused);
                End::Client(until(limit, connect).with_context(|| format!("connecting to TCP {server}"))?)
            }
        };
        if let End::Client(stream) = &end {
            prepare(stream, limit)?;
        }
        Ok(Oob { end, limit })
    }

    /// Returns when the other side has reached this point too.
    ///
    /// # Errors
    ///
    /// The other side is gone, is at another point, or does not reach it within the limit.
    pub(crate) fn sync(&mut self, point: Point) -> Result<()> {
        let at = || format!("waiting for the other side to be {point:?}");
        let byte = point as u8;
        match &mut self.end {
            End::Client(stream) => {
                send(stream, byte).and_then(|()| receive(stream, byte)).with_context(at)?;
            }
            End::Server(stream) => {
                receive(stream, byte).and_then(|()| send(stream, byte)).with_context(at)?;
            }
            End::Listener(listener) => {
                listener.set_nonblocking(true)?;
                let accept = || ready(listener.accept(), ErrorKind::WouldBlock);
                let (stream, _) = until(self.limit, accept).context("waiting for a client's TCP connection")?;
                prepare(&stream, self.limit)?;
                self.end = End::Server(stream);
                return self.sync(point);
            }
        }
        Ok(())
    }
}

fn prepare(stream: &TcpStream, limit: Duration) -> Result<()> {
    // An accepted socket is blocking, also if its listener is not (accept(2)).
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    Ok(stream.set_write_timeout(Some(limit))?)
}

fn send(stream: &mut TcpStream, byte: u8) -> Result<()> {
    Ok(stream.write_all(&[byte])?)
}

fn receive(stream: &mut TcpStream, byte: u8) -> Result<()> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    ensure!(answer == [byte], "it is at step {}, not at {byte}", answer[0]);
    Ok(())
}

/// Returns `None` for the one error after which another attempt may succeed.
fn ready<T>(result: std::io::Result<T>, again: ErrorKind) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == again => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn until<T>(limit: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt()? {
            return Ok(value);
        }
        if begin.elapsed() >= limit {
            bail!("nobody there within {} s", limit.as_secs());
        }
        thread::sleep(PAUSE);
    }
}
