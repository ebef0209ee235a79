//! TCP with poll(2) and sockets that do not block, as a program in an event loop uses it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::Arguments;

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let mut stream = if arguments.server {
        TcpListener::bind(arguments.address)?.accept()?.0
    } else {
        TcpStream::connect(arguments.address)?
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; arguments.size * arguments.window as usize];
    if arguments.server {
        loop {
            match read(&mut stream, &mut buffer)? {
                0 => return Ok(()),
                len => write(&mut stream, &buffer[..len])?,
            }
        }
    }
    let message = vec![1; arguments.size];
    let (begin, mut sent, mut received) = (Instant::now(), 0, 0);
    while received < arguments.bytes() {
        while sent < arguments.due_of_bytes(received) {
            write(&mut stream, &message)?;
            sent += 1;
        }
        let len = read(&mut stream, &mut buffer)?;
        ensure!(len > 0, "the server has ended the connection");
        received += len;
    }
    arguments.print(begin);
    Ok(())
}

/// Waits, and reads what is there.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize> {
    loop {
        wait(stream, PollFlags::IN)?;
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return Ok(read?),
        }
    }
}

/// Writes all. Waits only if there is no room.
fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(stream, PollFlags::OUT)?,
            written => bytes = bytes.get(written?..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn wait(stream: &TcpStream, flags: PollFlags) -> Result<()> {
    retry_on_intr(|| poll(&mut [PollFd::new(stream, flags)], None))?;
    Ok(())
}
