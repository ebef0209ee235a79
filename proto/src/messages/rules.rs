//! The table of states of a [`Messages`](super::Messages): a row for each [`Stage`], a cell for each [`Input`].

use crate::columns::columns;

columns! {
    /// The state of a [`Messages`](super::Messages).
    pub enum Stage {
        /// Both sides send.
        Open = "open",
        /// This side sends no more messages; its goodbye waits for a credit.
        Closing = "closing",
        /// This side has said goodbye; the peer still sends.
        Closed = "closed",
        /// The peer has said goodbye; this side still sends.
        PeerClosed = "peer closed",
        /// The peer has said goodbye, and that of this side waits for a credit.
        Answering = "answering",
        /// Both have said goodbye.
        Over = "over",
        /// The connection has failed.
        Failed = "failed",
    }
}

columns! {
    /// What happens to a [`Messages`](super::Messages).
    pub enum Input {
        /// The application sends a message.
        Send = "send",
        /// The application closes.
        Close = "close",
        /// The goodbye of this side is sent.
        SendGoodbye = "send goodbye",
        /// A message of the peer arrives.
        Message = "message",
        /// A packet without a message arrives: credits, or a sign of life.
        Control = "control",
        /// The goodbye of the peer arrives.
        Goodbye = "goodbye",
        /// A packet is wrong, or a deadline has passed.
        Fault = "fault",
    }
}

/// The effect of an input in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The next state.
    Go(Stage),
    /// The application's request is refused; nothing changes.
    Refuse,
    /// The peer breaks the protocol, and the connection fails.
    Wrong,
    /// Nothing happens, or it cannot happen.
    Ignore,
}

/// The table: a row for each stage, a cell for each input, in the order of [`Input::ALL`].
#[rustfmt::skip]
pub const MESSAGES: [[Cell; Input::COUNT]; Stage::COUNT] = {
    use Cell::{Go, Ignore, Refuse, Wrong};
    use Stage::{Answering, Closed, Closing, Failed, Open, Over, PeerClosed};
    [
        // send, close, send goodbye, message, control, goodbye, fault
        [Go(Open), Go(Closing), Ignore, Go(Open), Go(Open), Go(PeerClosed), Go(Failed)],
        [Refuse, Ignore, Go(Closed), Go(Closing), Go(Closing), Go(Answering), Go(Failed)],
        [Refuse, Ignore, Ignore, Go(Closed), Go(Closed), Go(Over), Go(Failed)],
        [Go(PeerClosed), Go(Answering), Ignore, Wrong, Go(PeerClosed), Wrong, Go(Failed)],
        [Refuse, Ignore, Go(Over), Wrong, Go(Answering), Wrong, Go(Failed)],
        // The peer may send credits and signs of life until it has the goodbye.
        [Refuse, Ignore, Ignore, Wrong, Go(Over), Wrong, Go(Failed)],
        [Refuse, Ignore, Ignore, Ignore, Ignore, Ignore, Ignore],
    ]
};
