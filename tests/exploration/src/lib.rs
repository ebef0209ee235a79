//! Exhaustive model checking of small configurations of the real code, with [`stateright`].
//!
//! A world is the core on the kernel of `cmid_model`, and an application that keeps accounts. A [`connections::Scene`]
//! defines the contents of a world and the possible actions. Within these bounds all orders of actions are explored. An
//! action is made with its device calls, and each of these may fail.
//!
//! Memory regions and domains have no worlds here: `proto/tests/memory` visits every reachable region and domain with
//! every input, and the target `rereg` of `cmid_model` has several regions that share PDs and memory.
//!
//! Checks in every state:
//!
//! - the invariants, from the accounts: [`connections::Invariant`];
//! - the internal invariants, `Core::check`;
//! - a request that is refused, or whose call is not made, changes nothing;
//! - *the end is reachable*: from the state, without new external events, reported events are delivered. After all
//!   acks and destroys, in either order, nothing remains in the state machine or at the device.
//!
//! The last check replaces a liveness property. It is stronger than the checker's "eventually", which does not cover
//! cyclic paths. It needs no graph: each state is run to the end.
//!
//! A world that does not reach its target proves nothing. Each world therefore names
//! [witnesses](connections::Witness) that must occur.
//!
//! The bounds limit what exists at the same time (ids, unread and undelivered events, owed acks), not the length of a
//! path: an id may move to and fro without limit. Values that only grow are excluded from the comparison of states
//! (`connections/view.rs`). There are two bounds on a whole path: the number of requests to a listener, and the
//! number of channels that the core opens by itself, because keys are not reused.
//!
//! `cargo run --release -p cmid-exploration` prints each world with its number of states.
#![forbid(unsafe_code)]

pub mod connections;
mod search;

pub use search::{Report, search};
