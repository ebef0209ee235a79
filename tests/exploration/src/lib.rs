//! Model checking: every state of small worlds around the real code, visited with [`stateright`].
//!
//! A world is a machine of `cmid_proto` with the least of an environment that is faithful: [`connections`] has the core, with a
//! device that keeps the kernel's rules and an application that keeps books; [`memory`] has regions and domains, with a device
//! that knows what it refers to. A [`connections::Scene`] or [`memory::Scene`] says what is in a world and what may happen.
//! Within these bounds everything happens in every order.
//!
//! What is checked in every state:
//!
//! - the laws, by the books: [`connections::Invariant`], [`memory::Invariant`];
//! - the machines' own invariants, `Core::check`;
//! - that what is refused changes nothing;
//! - that *the end can be reached*: from there, without luck, what was reported is delivered, and when all is acked and
//!   destroyed, in either order, nothing is left, neither in the machine nor at the device.
//!
//! The last stands in the place of a liveness property. It is stronger than "eventually" on the paths of a checker, which says
//! nothing of paths that go round in circles, and it needs no graph: the way to the end is walked from each state.
//!
//! A world that cannot show what it is about proves nothing, so each names [witnesses](connections::Witness) that must turn
//! up.
//!
//! The bounds are on what is there at the same time (ids, unread and undelivered events, acks that are owed), not on how long
//! things go on: an id may move to and fro for ever. What only grows is left out of a state when states are compared
//! (`connections/view.rs`). Bounds on the whole are two: how many requests may reach a listener, and how many channels the core
//! may open by itself, because keys are never used again.
//!
//! `cargo run --release -p cmid-exploration` prints each world with its number of states.
#![forbid(unsafe_code)]

pub mod connections;
pub mod memory;
mod search;
mod witness;

pub use search::{Report, Searched, search};
