//! [`Messages`]: its table, its credits, its ends, and what it makes of hostile packets.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod credits;
mod ends;
mod hello;
mod hostile;
mod offers;
mod table;

use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::messages::{HEADER, Messages, MessagesConfig, Received};

const MS: Duration = Duration::from_millis(1);

const CONFIG: MessagesConfig = MessagesConfig {
    window: 8,
    packet: 100,
    keep_alive: Duration::from_millis(100),
    silence: Duration::from_millis(500),
};

fn ms(at: u32) -> Time {
    Time::ZERO.after(MS * at)
}

/// Both sides of a connection.
fn pair() -> [Messages; 2] {
    [(); 2].map(|()| Messages::new(CONFIG, &CONFIG.hello(), ms(0)).unwrap())
}

fn packet(header: [u8; HEADER], message: &[u8]) -> Vec<u8> {
    [&header, message].concat()
}

/// Sends a message from one side to the other one, whose program posts the receive again if it does not hold it.
fn deliver(from: &mut Messages, to: &mut Messages, message: &[u8], holds: bool) {
    let sent = packet(from.send(message.len(), ms(0)).unwrap(), message);
    assert_eq!(to.receive(&sent, ms(0)), Ok(Received::Message(message)));
    if !holds {
        to.posted(1);
    }
}

/// Delivers the packets without messages that one side wants to send. Returns their number.
fn controls(from: &mut Messages, to: &mut Messages, now: Time) -> usize {
    let mut count = 0;
    while let Some(header) = from.poll_control(now) {
        let received = to.receive(&header, now).unwrap();
        assert!(matches!(received, Received::Control | Received::Goodbye));
        count += 1;
    }
    count
}
