//! The protocol: a replicated log as a state machine without I/O, after Raft.
//!
//! A leader of a *term* appends *records*, writes them into memory of the replicas, and commits a record once a
//! majority has stored it. [`Machine`] takes inputs and returns [`Action`]s, which the program performs in order:
//!
//! | input | when |
//! | --- | --- |
//! | [`Machine::tick`] | the time of [`Machine::deadline`] has come |
//! | [`Machine::receive`] | a message of a peer |
//! | [`Machine::receive_frame`] | a peer has written a frame into the memory of this replica |
//! | [`Machine::stored`] | a batch is on the disk |
//! | [`Machine::connected`], [`Machine::disconnected`] | a connection with a peer begins or ends |
//! | [`Machine::propose`] | a client appends a record |
//!
//! The transport of records differs from Raft. A replica *grants* the leader of its term the right to write into a
//! region of its memory. The leader writes frames of records there, one after the other. When the term changes, the
//! replica revokes the right ([`Action::Fence`]) before it sends anything in the new term. A deposed leader then cannot
//! write, even before it receives a message of the new term.
//!
//! Messages may be lost, repeated and reordered, but do not overtake frames. Frames of a connection arrive in order; if
//! one is lost, the connection ends. The machine reads no clock; its random numbers come from a seed.

mod codec;
mod election;
mod follower;
mod leader;
mod log;
mod machine;
mod message;
mod progress;
mod room;

pub use codec::Malformed;
pub use log::{Index, Position, Record, RequestId, Term};
pub use machine::{Action, Ballot, Batch, Config, Machine, ProposeError, ReplicaId, Role};
pub use message::{Frame, Message};
pub use room::Room;
