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

    /// Reads until no bytes are left, or until the machine accepts no more records. An error ends the connection.
    fn read(&mut self, machine: &mut Machine, mut wait: impl FnMut(RequestId)) -> io::Result<()> {
        loop {
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
