//! The server: echoes the messages of one client after the other.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use cmid_blocking::{Connection, Error, Listener, Options};
use cmid_proto::datapath::{CompletionQueue as _, DataPath};
use cmid_proto::messages::Messages;

use crate::link::{CONFIG, Link, param};

/// Echoes until a client says goodbye, or until `left` messages are echoed: it then ends without a goodbye.
pub(crate) fn serve<D: DataPath>(device: D, address: SocketAddr, mut left: Option<u64>) -> Result<()> {
    let mut listener = Listener::bind(device, address)?;
    loop {
        let options = Options { param: param(), private_data: &CONFIG.hello(), ..Options::default() };
        let accepted = listener.accept(Duration::from_secs(30))?.accept(&options, Link::attach);
        // A client whose connection has failed calls again.
        if accepted.is_ok_and(|(connection, link)| echo(connection, link, &mut left).is_ok()) {
            return Ok(());
        }
    }
}

fn echo<D: DataPath>(mut connection: Connection<D>, mut link: Link<D>, left: &mut Option<u64>) -> Result<()> {
    let now = connection.parts().1.drive().within(Duration::ZERO);
    link.messages = Some(Messages::new(CONFIG, connection.private_data(), now)?);
    let mut to_echo = VecDeque::new();
    loop {
        let now = connection.parts().1.drive().within(Duration::ZERO);
        to_echo.extend(link.turn(now)?);
        while let Some(message) = to_echo.front() {
            if *left == Some(0) {
                return Ok(());
            }
            if !link.send(message, now)? {
                break;
            }
            to_echo.pop_front();
            *left = left.map(|left| left - 1);
        }
        if link.is_over() {
            return Ok(());
        }
        let timeout =
            link.messages.as_ref().and_then(Messages::timeout).map_or(CONFIG.keep_alive, |due| due.since(now));
        match connection.wait_for(Some(link.cq.fd()), timeout) {
            Ok(_) | Err(Error::TimedOut { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
