//! No loop: a thread per side, with the interface like `std::net`.

use std::io;
use std::net::SocketAddr;
use std::thread;

use cmid_blocking::proto::datapath::{Completion, DataPath, QpParts, SendWr, prelude::*};
use cmid_blocking::{Connection, Listener, Options};

use crate::program::{MESSAGE, attach, options};

fn serve<D: DataPath>(mut listener: Listener<D>, options: &Options<'_>) -> io::Result<()> {
    let incoming = listener.accept(options.timeout)?;
    let (mut connection, (QpParts { mut cq, qp: _qp, .. }, mr)) = incoming.accept(options, attach::<D>)?;
    let (mut done, mut bytes) = ([Completion::default()], [0; MESSAGE.len()]);
    if connection.next_completions(&mut cq, &mut done, options.timeout)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    mr.read(0, &mut bytes)?;
    if !done[0].is_success() || bytes != MESSAGE {
        return Err(io::Error::other(format!("a receive ended with {}: {bytes:?}", done[0].status)));
    }
    Ok(connection.disconnect(options.timeout)?)
}

/// # Errors
/// A step failed or took too long.
pub fn run<D: DataPath + 'static>(device: D, address: SocketAddr) -> io::Result<()> {
    let options = options();
    let listener = Listener::bind(device.sibling(), address)?;
    let server = thread::spawn({
        let options = options.clone();
        move || serve(listener, &options)
    });
    let (mut connection, (mut parts, mr)) = Connection::connect(device, address, &options, attach::<D>)?;
    parts.qp.post_send(SendWr::send(2, mr.sge(0..MESSAGE.len())))?;
    connection.wait_closed(options.timeout)?;
    connection.disconnect(options.timeout)?;
    server.join().map_err(|_| io::Error::other("the server panicked"))?
}
