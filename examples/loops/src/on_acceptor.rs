//! Several reactors with one acceptor. The acceptor receives the connection requests and passes them to the reactors in
//! turn.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::Incoming;
use cmid_epoll::proto::{Acks, PortSpace};
use cmid_epoll::{Config, Epoll, Waker};

use crate::reactor::{CLIENTS, clients, react};

const REACTORS: usize = 2;

/// # Errors
/// The errors of the drivers and of the clients.
pub fn run<D: DataPath + 'static>(device: D, address: SocketAddr) -> io::Result<()> {
    let siblings: [D; REACTORS + 1] = std::array::from_fn(|_| device.sibling());
    let mut acceptor = Epoll::new(device, Config::default())?;
    let on = acceptor.drive().open_channel(Acks::OnDelivery)?;
    let listener = acceptor.drive().create_id(Some(on), PortSpace::Tcp)?;
    acceptor.drive().bind(listener, address)?;
    acceptor.drive().listen(listener, 16)?;
    let [client, reactors @ ..] = siblings;
    let client = thread::spawn(move || clients(&client, address));
    let (mut queues, mut threads) = (Vec::new(), Vec::new());
    for device in reactors {
        let ((queue, requests), (sender, receiver)) = (channel(), channel());
        threads.push(thread::spawn(move || react(device, &requests, &sender)));
        queues.push((queue, receiver.recv().map_err(io::Error::other)?));
    }
    let mut accepted = 0;
    while accepted < CLIENTS {
        acceptor.wait(None)?;
        while let Some(event) = acceptor.drive().next_event(on) {
            let Ok(incoming) = Incoming::new(acceptor.drive(), event) else { continue };
            let (queue, waker): &(Sender<_>, Waker) = &queues[accepted % REACTORS];
            let released = incoming.release(acceptor.drive())?;
            queue.send(released).map_err(|_| io::Error::other("a reactor has ended"))?;
            waker.wake();
            accepted += 1;
        }
    }
    queues.into_iter().for_each(|(queue, waker)| {
        drop(queue);
        waker.wake();
    });
    let panicked = |_| io::Error::other("a thread panicked");
    threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked)?)?;
    client.join().map_err(panicked)?
}
