//! Connections over TCP, for comparison with RDMA. The replica with the smaller number connects to the other one. A
//! frame that a peer has no right to write ends its connection, as on an RDMA device.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::links::{LinkEvent, Links, Polled, VERSION};
use crate::protocol::{Frame, Message, ReplicaId};

/// The token of the listener; the tokens of the peers follow.
const LISTENER: usize = 1000;
const PEERS: usize = LISTENER + 1;
/// The first token of connections from peers with an unknown number.
const NEW: usize = 10_000;

/// The time between two attempts to connect. An attempt that has not succeeded in this time is ended.
const RETRY: Duration = Duration::from_millis(500);

/// Messages beyond this number of unsent bytes are dropped, which the protocol permits.
const UNSENT: usize = 1 << 20;

/// A stream with this number of bytes that are not handled is not read: more than the largest frame.
const UNHANDLED: usize = 1 << 20;

/// Connections that have not greeted yet. A further one ends the oldest of them.
const UNGREETED: usize = 64;

/// `replog` for peers, the version and the number of the replica.
const MAGIC: &[u8; 6] = b"replgp";

fn hello(id: ReplicaId) -> [u8; 8] {
    let mut hello = [0; 8];
    hello[..6].copy_from_slice(MAGIC);
    hello[6..].copy_from_slice(&[VERSION, id as u8]);
    hello
}

/// A stream with buffers of bytes that are read and not handled, and of bytes to be written.
#[derive(Debug)]
struct Stream {
    tcp: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether the stream may have unread bytes, although no event will tell.
    unread: bool,
    /// Whether the greeting of the peer has arrived.
    greeted: bool,
    /// Whether the peer may write frames.
    granted: bool,
}

impl Stream {
    fn new(tcp: TcpStream, id: ReplicaId) -> Self {
        let output = hello(id).to_vec();
        Stream { tcp, input: Vec::new(), output, unread: false, greeted: false, granted: false }
    }

    fn put(&mut self, kind: u8, bytes: &[u8]) {
        self.output.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        self.output.push(kind);
        self.output.extend_from_slice(bytes);
    }

    fn read(&mut self) -> io::Result<()> {
        loop {
            self.unread = self.input.len() >= UNHANDLED;
            if self.unread {
                return Ok(());
            }
            let mut bytes = [0; 64 << 10];
            match self.tcp.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.tcp.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the peer's version and number, once its greeting has arrived.
    fn greeting(&mut self) -> io::Result<Option<(u8, ReplicaId)>> {
        let Some(greeting) = self.input.first_chunk::<8>() else { return Ok(None) };
        let [magic @ .., version, id] = *greeting;
        if magic != *MAGIC {
            return Err(ErrorKind::InvalidData.into());
        }
        self.input.drain(..8);
        self.greeted = true;
        Ok(Some((version, id.into())))
    }

    /// Returns the next message or frame.
    fn next(&mut self, peer: ReplicaId) -> io::Result<Option<LinkEvent>> {
        let Some(len) = self.input.first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        let invalid = || io::Error::from(ErrorKind::InvalidData);
        if len > crate::rdma::Memory::default().region {
            return Err(invalid());
        }
        let Some(&kind) = self.input.get(4).filter(|_| self.input.len() >= 5 + len) else { return Ok(None) };
        let bytes = &self.input[5..5 + len];
        let event = match kind {
            0 => LinkEvent::Message(peer, Message::decode(bytes).map_err(|_| invalid())?),
            1 if self.granted => LinkEvent::Frame(peer, Frame::decode(bytes).map_err(|_| invalid())?),
            _ => return Err(invalid()),
        };
        self.input.drain(..5 + len);
        Ok(Some(event))
    }
}

#[derive(Debug)]
struct Peer {
    addr: SocketAddr,
    stream: Option<Stream>,
    retry: Instant,
    /// The number of connections, and of those that [`Links::next_event`] has returned.
    connections: u64,
    taken: u64,
}

impl Peer {
    /// Returns the stream, if [`Links::next_event`] has returned its connection.
    fn current(&mut self) -> Option<&mut Stream> {
        let is_current = self.connections == self.taken;
        self.stream.as_mut().filter(|stream| stream.greeted && is_current)
    }
}

/// Connections over TCP.
#[derive(Debug)]
pub struct Tcp {
    id: ReplicaId,
    peers: Vec<Peer>,
    listener: TcpListener,
    /// Whether connections may wait in the backlog, although no event will tell.
    has_backlog: bool,
    new: Vec<(Token, Stream)>,
    next: usize,
    registry: Registry,
    happened: VecDeque<LinkEvent>,
}

impl Tcp {
    /// Listens at the address of replica `id`, and starts to connect to the others.
    ///
    /// # Errors
    /// The address is in use, or is not an address of this machine.
    pub fn new(registry: &Registry, id: ReplicaId, addrs: &[SocketAddr]) -> Result<Self> {
        let mut listener = TcpListener::bind(addrs[id]).map_err(|error| crate::explain_bind(&error, addrs[id]))?;
        registry.register(&mut listener, Token(LISTENER), Interest::READABLE)?;
        let peer = |&addr| Peer { addr, stream: None, retry: Instant::now(), connections: 0, taken: 0 };
        let peers = addrs.iter().map(peer).collect();
        let (registry, happened) = (registry.try_clone()?, VecDeque::new());
        Ok(Tcp { id, peers, listener, has_backlog: false, new: Vec::new(), next: NEW, registry, happened })
    }

    fn close(&mut self, peer: ReplicaId) {
        let Some(mut stream) = self.peers[peer].stream.take() else { return };
        let _ = self.registry.deregister(&mut stream.tcp);
        if stream.greeted {
            self.happened.push_back(LinkEvent::Disconnected(peer));
        }
    }

    fn connected(&mut self, peer: ReplicaId) {
        self.peers[peer].connections += 1;
        self.happened.push_back(LinkEvent::Connected(peer));
    }

    fn accept(&mut self) {
        loop {
            let mut tcp = match self.listener.accept() {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    // After an error such as EMFILE the next turn tries again.
                    self.has_backlog = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            };
            let token = Token(self.next);
            self.next += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if tcp.set_nodelay(true).is_ok() && self.registry.register(&mut tcp, token, interest).is_ok() {
                if self.new.len() == UNGREETED {
                    self.new.remove(0);
                }
                self.new.push((token, Stream::new(tcp, self.id)));
            }
        }
    }

    /// Reads the greetings of new connections.
    fn greet(&mut self) {
        for (token, mut stream) in std::mem::take(&mut self.new) {
            // The end of a stream may follow its greeting.
            let read = stream.read().and_then(|()| stream.write());
            match stream.greeting() {
                Ok(None) if read.is_ok() => self.new.push((token, stream)),
                Ok(Some((VERSION, peer))) if peer < self.id => {
                    self.close(peer);
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if self.registry.reregister(&mut stream.tcp, Token(PEERS + peer), interest).is_ok() {
                        self.peers[peer].stream = Some(stream);
                        self.connected(peer);
                    }
                }
                _ => {}
            }
        }
    }

    fn connect(&mut self) {
        let now = Instant::now();
        for number in self.id + 1..self.peers.len() {
            let peer = &mut self.peers[number];
            if peer.retry > now || peer.stream.as_ref().is_some_and(|stream| stream.greeted) {
                continue;
            }
            peer.retry = now + RETRY;
            self.close(number);
            let peer = &mut self.peers[number];
            let Ok(mut tcp) = TcpStream::connect(peer.addr) else { continue };
            let interest = Interest::READABLE | Interest::WRITABLE;
            if tcp.set_nodelay(true).is_ok()
                && self.registry.register(&mut tcp, Token(PEERS + number), interest).is_ok()
            {
                peer.stream = Some(Stream::new(tcp, self.id));
            }
        }
    }

    /// Reads from a peer, and writes to it. Returns the version of a peer with another version.
    fn run(&mut self, peer: ReplicaId) -> io::Result<Option<u8>> {
        let Some(stream) = &mut self.peers[peer].stream else { return Ok(None) };
        let read = stream.read();
        if !stream.greeted {
            match stream.greeting()? {
                Some((VERSION, id)) if id == peer => self.connected(peer),
                Some((version, _)) => return Ok(Some(version)),
                None => {}
            }
        }
        let Some(stream) = &mut self.peers[peer].stream else { return Ok(None) };
        while stream.greeted {
            let Some(event) = stream.next(peer)? else { break };
            self.happened.push_back(event);
        }
        match read {
            // The connect is under way.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(None),
            read => read.and_then(|()| stream.write()).map(|()| None),
        }
    }

    fn put(&mut self, to: ReplicaId, kind: u8, bytes: &[u8]) {
        if let Some(stream) = self.peers[to].current() {
            stream.put(kind, bytes);
            // The next turn gets the error again.
            let _ = stream.write();
        }
    }
}

impl Polled for Tcp {
    fn before_poll(&mut self, at_most: Duration) -> Duration {
        let now = Instant::now();
        let open = self.peers[self.id + 1..].iter().filter(|peer| !peer.stream.as_ref().is_some_and(|it| it.greeted));
        let due = open.map(|peer| peer.retry).min().map_or(at_most, |retry| retry.saturating_duration_since(now));
        let is_unread = self.peers.iter().any(|peer| peer.stream.as_ref().is_some_and(|stream| stream.unread));
        if self.happened.is_empty() && !is_unread { due.min(at_most) } else { Duration::ZERO }
    }

    fn handle(&mut self, event: &mio::event::Event) -> bool {
        let Token(token) = event.token();
        if token == LISTENER {
            self.accept();
        }
        (LISTENER..PEERS + self.peers.len()).contains(&token) || (NEW..self.next).contains(&token)
    }
}

impl Links for Tcp {
    fn turn(&mut self) -> Result<()> {
        if self.has_backlog {
            self.accept();
        }
        self.connect();
        self.greet();
        for peer in 0..self.peers.len() {
            match self.run(peer) {
                Ok(None) => {}
                Ok(Some(version)) if version == VERSION => bail!("--replica {peer} is the address of another replica"),
                Ok(Some(version)) => {
                    bail!("replica {peer} has version {version}, this one {VERSION}: install one version everywhere")
                }
                Err(_) => self.close(peer),
            }
        }
        Ok(())
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        let event = self.happened.pop_front()?;
        if let LinkEvent::Connected(peer) = event {
            self.peers[peer].taken += 1;
        }
        Some(event)
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        if self.peers[to].current().is_some_and(|stream| stream.output.len() < UNSENT) {
            self.put(to, 0, &message.encode());
        }
    }

    fn write(&mut self, to: ReplicaId, _offset: u32, frame: Vec<u8>) {
        self.put(to, 1, &frame);
    }

    fn grant(&mut self, to: ReplicaId) {
        if let Some(stream) = self.peers[to].current() {
            stream.granted = true;
        }
    }

    fn fence(&mut self) {
        self.peers.iter_mut().filter_map(|peer| peer.stream.as_mut()).for_each(|stream| stream.granted = false);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::net::TcpStream as Client;
    use std::thread;

    use super::*;

    /// Replica 1 of two, and its address. Replica 0 connects to it.
    fn tcp() -> (mio::Poll, Tcp, SocketAddr) {
        let poll = mio::Poll::new().unwrap();
        let mut tcp = Tcp::new(poll.registry(), 1, &["127.0.0.1:0".parse().unwrap(); 2]).unwrap();
        let addr = tcp.listener.local_addr().unwrap();
        tcp.accept();
        (poll, tcp, addr)
    }

    #[test]
    fn a_peer_that_never_stops_writing_is_read_a_part_at_a_time() {
        const MESSAGE: [u8; 5] = [0, 0, 0, 0, 9];
        let (_poll, mut tcp, addr) = tcp();
        let flood = thread::spawn(move || {
            let mut client = Client::connect(addr).unwrap();
            client.write_all(&hello(0)).unwrap();
            let all = MESSAGE.repeat(1 << 20);
            while client.write_all(&all).is_ok() {}
        });
        while tcp.peers[0].stream.is_none() {
            tcp.accept();
            tcp.greet();
        }
        let stream = tcp.peers[0].stream.as_mut().unwrap();
        while !stream.unread {
            stream.read().unwrap();
        }
        assert!(stream.input.len() < UNHANDLED + (64 << 10), "{} bytes", stream.input.len());
        assert_eq!(tcp.before_poll(RETRY), Duration::ZERO, "the rest is read without an event");
        // The kind does not exist.
        tcp.turn().unwrap();
        assert!(tcp.peers[0].stream.is_none());
        flood.join().unwrap();
    }

    #[test]
    fn connections_without_a_greeting_make_room_for_a_peer() {
        let (_poll, mut tcp, addr) = tcp();
        let silent: Vec<_> = (0..2 * UNGREETED).map(|_| Client::connect(addr).unwrap()).collect();
        while tcp.next < NEW + silent.len() {
            tcp.accept();
        }
        assert_eq!(tcp.new.len(), UNGREETED);
        let mut peer = Client::connect(addr).unwrap();
        peer.write_all(&hello(0)).unwrap();
        while !matches!(tcp.next_event(), Some(LinkEvent::Connected(0))) {
            tcp.accept();
            tcp.turn().unwrap();
        }
        assert_eq!(tcp.new.len(), UNGREETED - 1);
    }
}
