//! A client: blocking, one request at a time.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::protocol::{Index, RequestId};
use crate::wire::{GREETING, Reply, Request, frame_len};

/// The time limit of an answer. A replica without a majority does not answer.
const ANSWER: Duration = Duration::from_millis(1500);

/// The time between two attempts.
const RETRY: Duration = Duration::from_millis(20);

/// A client of all replicas. It appends its records in order.
#[derive(Debug)]
pub struct Client {
    replicas: Vec<SocketAddr>,
    target: usize,
    stream: Option<TcpStream>,
    next: RequestId,
}

impl Client {
    /// Creates a client with a random number. The first request connects.
    #[must_use]
    pub fn new(replicas: &[SocketAddr]) -> Self {
        let next = RequestId { client: fastrand::u64(1..), number: 1 };
        Client { replicas: replicas.to_vec(), target: 0, stream: None, next }
    }

    /// Appends a record. Returns its index once a majority has stored it. Tries the replicas in turn until one accepts
    /// the record.
    ///
    /// # Errors
    /// No replica has acknowledged the record within `limit`; it may be appended nevertheless. Or the replicas have
    /// another version.
    pub fn append(&mut self, data: &[u8], limit: Duration) -> Result<Index> {
        let (id, start) = (self.next, Instant::now());
        self.next.number += 1;
        let request = Request::Append(id, data.to_vec());
        loop {
            let error = match self.exchange(&request) {
                Ok(Reply::Appended(appended, index)) if appended == id => return Ok(index),
                Ok(Reply::NotLeader(_, leader)) => {
                    self.turn_to(leader.map_or(self.target + 1, |leader| leader as usize));
                    anyhow!("no leader")
                }
                Ok(reply) => bail!("an unexpected reply: {reply:?}"),
                Err(error) if error.is::<OtherVersion>() => return Err(error),
                Err(error) => {
                    self.turn_to(self.target + 1);
                    error
                }
            };
            if start.elapsed() >= limit {
                return Err(error.context(format!(
                    "no leader has accepted the record within {limit:?}: start a majority of the replicas"
                )));
            }
            thread::sleep(RETRY);
        }
    }

    /// Reads a record from the current replica; `None` if the replica does not have it as committed.
    ///
    /// # Errors
    /// The replica does not answer.
    pub fn read(&mut self, index: Index) -> Result<Option<Vec<u8>>> {
        let reply = self.exchange(&Request::Read(index))?;
        match reply {
            Reply::Record(read, data) if read == index => Ok(Some(data)),
            Reply::Unknown(_) => Ok(None),
            Reply::Record(..) | Reply::Appended(..) | Reply::NotLeader(..) | Reply::Status { .. } => {
                bail!("an unexpected reply: {reply:?}")
            }
        }
    }

    /// Returns the state of the current replica.
    ///
    /// # Errors
    /// The replica does not answer.
    pub fn status(&mut self) -> Result<Reply> {
        self.exchange(&Request::Status)
    }

    /// Selects a replica, modulo their number.
    pub fn turn_to(&mut self, replica: usize) {
        self.target = replica % self.replicas.len();
        self.stream = None;
    }

    /// Sends a request and receives its reply.
    fn exchange(&mut self, request: &Request) -> Result<Reply> {
        let addr = self.replicas[self.target];
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(addr)?,
        };
        let (mut bytes, end) = (Vec::new(), Instant::now() + ANSWER);
        request.encode(&mut bytes);
        stream.write_all(&bytes).with_context(|| format!("{addr} has ended the connection"))?;
        let mut reply = vec![0; 4];
        let limit = || format!("{addr} does not answer");
        read_exact(&mut stream, &mut reply, end).with_context(limit)?;
        let len = u32::from_be_bytes([reply[0], reply[1], reply[2], reply[3]]) as usize;
        ensure!(!matches!(frame_len(&reply), Some(Err(_))), "{addr} is no replica of replog");
        reply.resize(len, 0);
        read_exact(&mut stream, &mut reply, end).with_context(limit)?;
        self.stream = Some(stream);
        Reply::decode(&reply).with_context(|| format!("{addr} is no replica of replog"))
    }
}

/// Reads until `end`, whatever the pace of the peer.
fn read_exact(stream: &mut TcpStream, mut into: &mut [u8], end: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The replica has another version.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OtherVersion(String);

fn connect(addr: SocketAddr) -> Result<TcpStream> {
    let refused = || format!("cannot reach {addr}: start the replica, or correct --client");
    let mut stream = TcpStream::connect_timeout(&addr, ANSWER).with_context(refused)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(ANSWER))?;
    let (mut greeting, end) = ([0; GREETING.len()], Instant::now() + ANSWER);
    stream.write_all(&GREETING).and_then(|()| read_exact(&mut stream, &mut greeting, end)).with_context(refused)?;
    let ([name @ .., version], [own_name @ .., own]) = (greeting, GREETING);
    if name != own_name {
        bail!(OtherVersion(format!("{addr} is not a replica of replog: correct --client")));
    }
    if version != own {
        bail!(OtherVersion(format!(
            "{addr} has version {version}, this program {own}: install one version everywhere"
        )));
    }
    Ok(stream)
}
