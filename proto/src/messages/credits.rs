//! The account of receives, on both sides of a connection.
//!
//! Each packet takes a receive of the peer, so each takes a credit. Three rules keep the sides from waiting for each other;
//! `credits/tests.rs` visits all states of small windows:
//!
//! - Messages leave [`KEPT`] credits for control packets.
//! - The last credit is only for a packet that permits the peer at least one. So after its last packet the peer can answer.
//! - Every packet permits all receives that are free. A control packet is sent for them only if the peer has at most half of
//!   its credits, and if one was of a message, or [`ANSWERED`] were of control packets: a side that sends signs of life more
//!   often than the other one gets its credits back, and answers to answers come to an end.

use super::error::MessagesError;

/// The credits that messages leave.
pub(super) const KEPT: u32 = 2;

/// The control packets that are worth one in return: each answer is for at least two, so there are ever fewer.
const ANSWERED: u32 = 2;

#[derive(Clone, Debug)]
pub(super) struct Credits {
    /// The receives of this side and of the peer.
    own_window: u16,
    peer_window: u16,
    /// The packets that the peer has permitted beyond those sent.
    pub(super) credits: u32,
    pub(super) sent: u32,
    pub(super) received: u32,
    /// The packets that this side and the peer have permitted since the beginning, modulo 2^32.
    granted: u32,
    peer_granted: u32,
    /// The packets that the peer may still send.
    at_peer: u32,
    /// Receives that are posted, and of which the peer does not know.
    free: u32,
    /// Whether these are worth a control packet.
    has_news: bool,
    /// Messages whose receives are not posted again.
    held: u32,
}

impl Credits {
    pub(super) fn new(own_window: u16, peer_window: u16) -> Self {
        Credits {
            own_window,
            peer_window,
            credits: peer_window.into(),
            sent: 0,
            received: 0,
            granted: own_window.into(),
            peer_granted: peer_window.into(),
            at_peer: own_window.into(),
            free: 0,
            has_news: false,
            held: 0,
        }
    }

    /// The number of messages that can be sent.
    pub(super) fn for_messages(&self) -> u32 {
        self.credits.saturating_sub(KEPT)
    }

    /// Whether a packet without a message can be sent.
    pub(super) fn for_control(&self) -> bool {
        self.credits > 1 || (self.credits == 1 && self.free > 0)
    }

    /// Whether the peer has at most half of its credits.
    pub(super) fn are_low(&self) -> bool {
        self.at_peer <= u32::from(self.own_window / 2)
    }

    /// Whether the peer waits for credits, or soon will.
    pub(super) fn is_awaited(&self) -> bool {
        self.has_news && self.are_low()
    }

    /// Takes a credit for a packet. Returns its number, and what it permits.
    pub(super) fn send(&mut self) -> (u32, u32) {
        let number = self.sent;
        self.sent = number.wrapping_add(1);
        self.credits = self.credits.saturating_sub(1);
        self.granted = self.granted.wrapping_add(self.free);
        self.at_peer += self.free;
        self.free = 0;
        self.has_news = false;
        (number, self.granted)
    }

    /// A packet has arrived.
    pub(super) fn receive(&mut self, number: u32, granted: u32) -> Result<(), MessagesError> {
        if number != self.received {
            return Err(MessagesError::Number { expected: self.received, received: number });
        }
        let Some(at_peer) = self.at_peer.checked_sub(1) else { return Err(MessagesError::Overrun) };
        let more = granted.wrapping_sub(self.peer_granted);
        let window = self.peer_window;
        if more > u32::from(window).saturating_sub(self.credits) {
            return Err(MessagesError::Granted { granted: more, credits: self.credits, window });
        }
        self.received = number.wrapping_add(1);
        self.at_peer = at_peer;
        self.credits += more;
        self.peer_granted = granted;
        Ok(())
    }

    /// The receive of a packet without a message is posted again. The peer waits for that of one that answers an offer.
    pub(super) fn control_posted(&mut self, is_answer: bool) {
        self.free += 1;
        self.has_news |= is_answer || self.free >= ANSWERED;
    }

    /// The program has a message, and its receive.
    pub(super) fn hold(&mut self) {
        self.held += 1;
    }

    /// The receives of this many messages are posted again.
    pub(super) fn posted(&mut self, count: u32) {
        let count = count.min(self.held);
        self.held -= count;
        self.free += count;
        self.has_news |= count > 0;
    }
}

#[cfg(test)]
mod tests;
