//! Venue and trader over UDP multicast and TCP, with the same receiver, strategy and messages. Both poll.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_epoll::proto::Time;
use socket2::{Domain, Socket, Type};
use ticker::driver::now;
use ticker::feed::Feed;
use ticker::quotes::Quotes;
use ticker::receiver::Receiver;
use ticker::strategy::Strategy;
use ticker::wire::{Entry, LEN, MarketMessage};

use crate::devices::On;
use crate::stream::Stream;
use crate::venue::{Venue, WINDOW};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 3);

/// A feed and an exchange, for one trader.
pub(crate) struct SocketVenue {
    feed: Feed,
    quotes: Quotes,
    multicast: UdpSocket,
    to: SocketAddr,
    replays: (TcpListener, Option<Stream>),
    orders: (TcpListener, Option<Stream>),
    last: u64,
}

fn v4(address: IpAddr) -> Result<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => bail!("{address}: only IPv4"),
    }
}

fn listener(address: IpAddr, port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((address, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept(listener: &TcpListener) -> Result<Option<Stream>> {
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(Stream::new(stream)?)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl SocketVenue {
    /// Starts on three ports from `first` on.
    pub(crate) fn start(on: &On, first: u16) -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_multicast_if_v4(&v4(on.venue)?)?;
        socket.bind(&SocketAddr::new(on.venue, 0).into())?;
        Ok(SocketVenue {
            feed: Feed::new(1, WINDOW, Duration::from_millis(100)),
            quotes: Quotes::new(1),
            multicast: socket.into(),
            to: SocketAddr::new(GROUP.into(), first),
            replays: (listener(on.venue, first + 1)?, None),
            orders: (listener(on.venue, first + 2)?, None),
            last: 0,
        })
    }
}

impl Venue for SocketVenue {
    fn is_ready(&self) -> bool {
        self.replays.1.is_some() && self.orders.1.is_some()
    }

    fn publish(&mut self) -> Result<u64> {
        let sequence = self.feed.next();
        let bytes = self.feed.publish(Time::ZERO, self.quotes.next_tick());
        self.multicast.send_to(&bytes, self.to)?;
        Ok(sequence)
    }

    fn poll(&mut self) -> Result<u64> {
        for (listener, stream) in [&mut self.replays, &mut self.orders] {
            if stream.is_none() {
                *stream = accept(listener)?;
            }
        }
        let (Some(replays), Some(orders)) = (&mut self.replays.1, &mut self.orders.1) else { return Ok(0) };
        while let Some(bytes) = orders.next_message()? {
            if let Entry::New(order) = Entry::decode(&bytes)? {
                self.last = order.tick;
                orders.send(&Entry::Accepted(order.number).encode())?;
            }
        }
        if let Some(bytes) = replays.next_message()? {
            self.feed.answer(MarketMessage::decode(&bytes)?, |bytes| replays.send(&bytes))?;
        }
        Ok(self.last)
    }
}

fn connect(on: &On, port: u16, stop: &AtomicBool) -> Result<Stream> {
    loop {
        match TcpStream::connect((on.venue, port)) {
            Ok(stream) => return Stream::new(stream),
            // The venue may not listen yet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && !stop.load(Ordering::Relaxed) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Trades until it is stopped.
pub(crate) fn trade(on: &On, first: u16, stop: &AtomicBool) -> Result<()> {
    let multicast = UdpSocket::bind((GROUP, first))?;
    multicast.join_multicast_v4(&GROUP, &v4(on.local)?)?;
    multicast.set_nonblocking(true)?;
    let (mut replays, mut orders) = (connect(on, first + 1, stop)?, connect(on, first + 2, stop)?);
    let (mut receiver, mut strategy) = (Receiver::new(WINDOW), Strategy::new(0));
    let mut bytes = [0; LEN];
    let mut sent = Ok(());
    while !stop.load(Ordering::Relaxed) {
        on.after_poll();
        let from_group = match multicast.recv(&mut bytes) {
            Ok(LEN) => Some(bytes),
            Ok(len) => bail!("a datagram of {len} bytes"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => return Err(error.into()),
        };
        // The end of the venue ends the connections.
        let Ok(from_feed) = replays.next_message() else { continue };
        for bytes in [from_group, from_feed].into_iter().flatten() {
            receiver.handle(Time::ZERO, MarketMessage::decode(&bytes)?, |update| {
                if let Some(order) = strategy.handle(update, true) {
                    sent = orders.send(&Entry::New(order).encode());
                }
            });
        }
        std::mem::replace(&mut sent, Ok(()))?;
        if let Some(request) = receiver.poll_request(now()) {
            replays.send(&request.encode())?;
        }
        while let Ok(Some(bytes)) = orders.next_message() {
            strategy.handle_answer(matches!(Entry::decode(&bytes)?, Entry::Accepted(_)));
        }
    }
    Ok(())
}
