//! The clients of a replica: TCP connections in its mio loop.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::protocol::{Machine, ProposeError, RequestId};
use crate::wire::{GREETING, Reply, Request, frame_len};

/// The token of the listener; those of the clients follow.
const LISTENER: usize = 100_000;

/// A client with this number of unsent bytes of replies is not read.
const UNSENT: usize = 1 << 20;

/// The reads of a client in one turn, each of at most 16 KiB. Others are served before the next ones.
const READS: usize = 4;

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether the greeting has arrived.
    greeted: bool,
    /// Whether the stream may have unread bytes.
    readable: bool,
}

/// All clients.
#[derive(Debug)]
pub struct Clients {
    listener: TcpListener,
    /// Whether clients may wait in the backlog, although no event will tell.
    has_backlog: bool,
    registry: Registry,
    clients: HashMap<Token, Client>,
    next: usize,
    /// The clients that wait for a record, by request.
    waiting: HashMap<RequestId, Token>,
}

impl Clients {
    /// Serves the clients of a listener.
    ///
    /// # Errors
    /// The error of the registration.
    pub fn new(mut listener: TcpListener, registry: &Registry) -> io::Result<Self> {
        registry.register(&mut listener, Token(LISTENER), Interest::READABLE)?;
        let registry = registry.try_clone()?;
        let (has_backlog, clients, next, waiting) = (false, HashMap::new(), LISTENER + 1, HashMap::new());
        Ok(Clients { listener, has_backlog, registry, clients, next, waiting })
    }

    /// Handles an event of the poll. Events of other sources are ignored.
    pub fn handle(&mut self, event: &mio::event::Event) {
        if event.token() == Token(LISTENER) {
            self.accept();
        } else if let Some(client) = self.clients.get_mut(&event.token()) {
            client.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        }
    }

    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // After an error such as EMFILE the next turn tries again.
                    self.has_backlog = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            };
            let token = Token(self.next);
            self.next += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if stream.set_nodelay(true).is_ok() && self.registry.register(&mut stream, token, interest).is_ok() {
                let output = GREETING.to_vec();
                let client = Client { stream, input: Vec::new(), output, greeted: false, readable: true };
                self.clients.insert(token, client);
            }
        }
    }

    /// Reads requests, and passes them to the machine. A leader with too many uncommitted records stops reading, so
    /// that the clients' sends block.
    pub fn turn(&mut self, machine: &mut Machine) {
        if self.has_backlog {
            self.accept();
        }
        let Clients { clients, waiting, registry, .. } = self;
        clients.retain(|&token, client| {
            let result = client.read(machine, |id| _ = waiting.insert(id, token));
            if result.is_err() {
                let _ = registry.deregister(&mut client.stream);
                waiting.retain(|_, waiting| *waiting != token);
            }
            result.is_ok()
        });
    }

    /// Writes the replies.
    pub fn flush(&mut self) {
        for client in self.clients.values_mut() {
            // The next read returns the error again.
            client.readable |= client.write().is_err();
        }
    }

    /// Whether a client has requests that can be read now.
    #[must_use]
    pub fn is_ready(&self, machine: &Machine) -> bool {
        !machine.is_full() && self.clients.values().any(Client::is_ready)
    }

    /// Reports to its client that a record is committed.
    pub fn committed(&mut self, request: RequestId, index: u64) {
        self.reply(request, &Reply::Appended(request, index));
    }

    /// Reports to waiting clients that this replica does not lead any more.
    pub fn deposed(&mut self) {
        for request in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.reply(request, &Reply::NotLeader(request, None));
        }
    }

    fn reply(&mut self, request: RequestId, reply: &Reply) {
        let client = self.waiting.remove(&request).and_then(|token| self.clients.get_mut(&token));
        if let Some(client) = client {
            reply.encode(&mut client.output);
        }
    }
}

impl Client {
    fn is_ready(&self) -> bool {
        let has_request = self.greeted && frame_len(&self.input).is_some();
        (self.readable || has_request) && self.output.len() < UNSENT
    }

    /// Reads until no bytes are left, or until the machine accepts no more records, at most the bytes of one turn: a
    /// request that is repeated adds no record and no reply, so a client that does only that has no other end. An error
    /// ends the connection.
    fn read(&mut self, machine: &mut Machine, mut wait: impl FnMut(RequestId)) -> io::Result<()> {
        for _ in 0..READS {
            self.take_requests(machine, &mut wait)?;
            if !self.readable || machine.is_full() || self.output.len() >= UNSENT {
                return Ok(());
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.take_requests(machine, &mut wait)
    }

    fn take_requests(&mut self, machine: &mut Machine, wait: &mut impl FnMut(RequestId)) -> io::Result<()> {
        let mut taken = 0;
        if !self.greeted {
            let Some(greeting) = self.input.first_chunk::<8>() else { return Ok(()) };
            // A client of another version detects that by this side's greeting.
            self.greeted = *greeting == GREETING;
            if !self.greeted {
                let _ = self.write();
                return Err(ErrorKind::InvalidData.into());
            }
            taken = greeting.len();
        }
        while !machine.is_full() && self.output.len() < UNSENT {
            let Some(len) = frame_len(&self.input[taken..]) else { break };
            let len = len.map_err(|_| ErrorKind::InvalidData)?;
            let request = Request::decode(&self.input[taken + 4..taken + len]).ok_or(ErrorKind::InvalidData)?;
            taken += len;
            self.answer(machine, request, wait);
        }
        self.input.drain(..taken);
        Ok(())
    }

    fn answer(&mut self, machine: &mut Machine, request: Request, wait: &mut impl FnMut(RequestId)) {
        let reply = match request {
            Request::Append(id, data) => match machine.propose(id, data) {
                Ok(()) => return wait(id),
                Err(ProposeError::NotLeader(leader)) => Reply::NotLeader(id, leader.map(|leader| leader as u64)),
                // Not reached: `take_requests` has checked this.
                Err(ProposeError::Full) => Reply::NotLeader(id, None),
            },
            Request::Read(index) => match machine.read(index) {
                Some(record) => Reply::Record(index, record.data.clone()),
                None => Reply::Unknown(index),
            },
            Request::Status => Reply::Status {
                term: machine.term(),
                leader: machine.leader().map(|leader| leader as u64),
                commit: machine.commit(),
                last: machine.last().index,
            },
        };
        reply.encode(&mut self.output);
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::net::TcpStream as Client;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::protocol::{Ballot, Config};

    /// A request that is in the log already adds no record and no reply, so neither ends the turn.
    #[test]
    fn a_client_that_repeats_a_request_for_ever_is_read_a_part_at_a_time() {
        let config = Config {
            id: 0,
            members: 1,
            election_timeout: Duration::from_millis(1),
            heartbeat: Duration::from_millis(1),
            region: 1 << 20,
            frames: 64,
            frame: 64 << 10,
            uncommitted: 1024,
            seed: 1,
        };
        let mut machine = Machine::new(config, Ballot::default(), Vec::new(), Duration::ZERO);
        machine.tick(Duration::from_secs(1));
        // Its vote. Records are not stored, and so not committed: the first one is that of its term.
        machine.stored(1);
        assert_eq!(machine.last().index, 1);
        let poll = mio::Poll::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut clients = Clients::new(listener, poll.registry()).unwrap();
        let flood = thread::spawn(move || {
            let mut client = Client::connect(addr).unwrap();
            client.write_all(&GREETING).unwrap();
            let mut request = Vec::new();
            Request::Append(RequestId { client: 1, number: 1 }, vec![7; 64]).encode(&mut request);
            // It is refused when the test has ended.
            let _ = client.write_all(&request.repeat(1 << 18));
        });
        while clients.clients.is_empty() {
            clients.accept();
        }
        // Until a turn ends before the bytes do.
        while machine.last().index == 1 || !clients.is_ready(&machine) {
            clients.clients.values_mut().for_each(|client| client.readable = true);
            clients.turn(&mut machine);
            assert_eq!(clients.clients.len(), 1, "all was read, and then the end");
        }
        drop(clients);
        flood.join().unwrap();
    }
}
