//! The table of states of a [`Redial`](super::Redial): a row for each [`Stage`], a cell for each [`Input`].

use crate::columns::columns;

columns! {
    /// The state of a [`Redial`](super::Redial).
    pub enum Stage {
        /// No connection and no handshake: waits until the next attempt is due.
        Waiting = "waiting",
        /// This side calls.
        Calling = "calling",
        /// A call of the peer is being accepted.
        Answering = "answering",
        /// There is a connection.
        Connected = "connected",
        /// There is a connection, and a new call of the peer is being accepted.
        Replacing = "replacing",
        /// No attempt follows. Calls of the peer are rejected.
        GivenUp = "given up",
    }
}

columns! {
    /// What happens to a [`Redial`](super::Redial).
    pub enum Input {
        /// The wait is over.
        Due = "due",
        /// The handshake has ended with a connection.
        Established = "established",
        /// The handshake has failed, and another attempt may follow.
        Failed = "failed",
        /// The handshake has failed, and no other attempt can succeed.
        Refused = "refused",
        /// The deadline of the handshake has passed, and another attempt may follow.
        Late = "late",
        /// The limits permit no other attempt.
        Spent = "spent",
        /// The peer calls, and its call is taken.
        Called = "call, taken",
        /// The peer calls, and its call is rejected.
        Crossed = "call, rejected",
        /// The connection has ended.
        Lost = "lost",
        /// The application wants no connection any more.
        Stop = "stop",
    }
}

columns! {
    /// What the program has to do; [`Todo`](super::Todo) without its contents.
    pub enum Effect {
        /// Nothing.
        Nothing = "nothing",
        /// Wait for the next attempt.
        Wait = "wait",
        /// Call the peer.
        Dial = "dial",
        /// Accept the peer's call.
        Accept = "accept",
        /// Cancel the handshake under way, then accept the peer's call.
        AcceptInstead = "cancel, accept",
        /// Reject the peer's call.
        Reject = "reject",
        /// Cancel the handshake under way.
        Cancel = "cancel",
        /// Use the new connection.
        Use = "use",
        /// Close the old connection, then use the new one.
        UseInstead = "close, use",
        /// End the handshake and the connection, if there are any.
        GiveUp = "give up",
    }
}

/// The next state, and what to do. The same state with [`Effect::Nothing`] is an input that is ignored.
pub type Cell = (Stage, Effect);

const fn ignored(stage: Stage) -> Cell {
    (stage, Effect::Nothing)
}

const GIVE_UP: Cell = (Stage::GivenUp, Effect::GiveUp);

/// The table: a row for each stage, a cell for each input, in the order of [`Input::ALL`].
#[rustfmt::skip]
pub const REDIAL: [[Cell; Input::COUNT]; Stage::COUNT] = {
    use Effect as E;
    use Stage::{Answering, Calling, Connected, GivenUp, Replacing, Waiting};
    [
        [ // waiting
            (Calling, E::Dial), ignored(Waiting), ignored(Waiting), ignored(Waiting), ignored(Waiting), GIVE_UP,
            (Answering, E::Accept), ignored(Waiting), ignored(Waiting), GIVE_UP,
        ],
        [ // calling
            ignored(Calling), (Connected, E::Use), (Waiting, E::Wait), GIVE_UP, (Waiting, E::Cancel), GIVE_UP,
            (Answering, E::AcceptInstead), (Calling, E::Reject), ignored(Calling), GIVE_UP,
        ],
        [ // answering
            ignored(Answering), (Connected, E::Use), (Waiting, E::Wait), GIVE_UP, (Waiting, E::Cancel), GIVE_UP,
            (Answering, E::AcceptInstead), ignored(Answering), ignored(Answering), GIVE_UP,
        ],
        [ // connected
            ignored(Connected), ignored(Connected), ignored(Connected), ignored(Connected), ignored(Connected), GIVE_UP,
            (Replacing, E::Accept), ignored(Connected), (Waiting, E::Wait), GIVE_UP,
        ],
        [ // replacing: a new call that fails changes nothing
            ignored(Replacing), (Connected, E::UseInstead), (Connected, E::Nothing), (Connected, E::Nothing),
            (Connected, E::Cancel), ignored(Replacing),
            (Replacing, E::AcceptInstead), ignored(Replacing), (Answering, E::Nothing), GIVE_UP,
        ],
        [ // given up
            ignored(GivenUp), ignored(GivenUp), ignored(GivenUp), ignored(GivenUp), ignored(GivenUp), ignored(GivenUp),
            (GivenUp, E::Reject), (GivenUp, E::Reject), ignored(GivenUp), ignored(GivenUp),
        ],
    ]
};
