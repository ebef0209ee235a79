//! No loop: a thread per side, with the interface like `std::net`.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use cmid_blocking::proto::datapath::{DataPath, SendWr, prelude::*};
use cmid_blocking::{Connection, Listener, Options, Ready};

use crate::program::{MESSAGE, PARAM, attach};

const LIMIT: Duration = Duration::from_secs(10);

fn serve<D: DataPath>(mut listener: Listener<D>, options: &Options<'_>) -> io::Result<()> {
    let incoming = listener.accept(LIMIT)?;
    let (mut connection, (_qp, mut cq, mr)) = incoming.accept(options, attach::<D>)?;
    let done = loop {
        if let Some(done) = cq.poll_one()? {
            break done;
        }
        // The event is the end of the connection.
        if let Ready::Event(event) = connection.wait_for(Some(cq.fd()), LIMIT)? {
            return Err(io::Error::other(event.to_string()));
        }
        cq.take_notifications()?;
        cq.arm()?;
    };
    let mut bytes = [0; MESSAGE.len()];
    mr.read(0, &mut bytes)?;
    if !done.is_success() || bytes != MESSAGE {
        return Err(io::Error::other(format!("a receive ended with {}: {bytes:?}", done.status)));
    }
    Ok(connection.disconnect(LIMIT)?)
}

/// # Errors
/// A step failed or took too long.
pub fn run<D: DataPath + 'static>(device: D, address: SocketAddr) -> io::Result<()> {
    let options = Options { param: PARAM, timeout: LIMIT, ..Options::default() };
    let listener = Listener::bind(device.sibling(), address)?;
    let server = thread::spawn({
        let options = options.clone();
        move || serve(listener, &options)
    });
    let (mut connection, (mut qp, _cq, mr)) = Connection::connect(device, address, &options, attach::<D>)?;
    qp.post_send(SendWr::send(2, mr.sge(0..MESSAGE.len())))?;
    connection.wait_closed(LIMIT)?;
    connection.disconnect(LIMIT)?;
    server.join().map_err(|_| io::Error::other("the server panicked"))?
}
