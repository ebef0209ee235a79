//! Messages over a reliable connection: framed, with credits, so that no send meets a missing receive.
//!
//! [`Messages`] makes no call. Given the bytes of a receive it returns the message in them; for a message to send it returns
//! the [header](HEADER) to put in front, if the peer has a receive for it. A peer that is dead is noticed by its silence,
//! and both sides end with a goodbye. Whatever the peer sends, the answer is a message or an [error](MessagesError) that
//! names the cause.
//!
//! Each message fits into one receive of the peer: [`Messages::message_max`]. A larger one is offered
//! ([`Messages::offer`]): the packet names memory that the peer may read, such as a block under a window
//! ([`post_bind_block`](crate::datapath::QueuePair::post_bind_block)). The peer reads it by RDMA into memory of its own, and says
//! that it is taken.
//!
//! # How to use it
//!
//! 1. Before it connects or accepts, each side posts [`MessagesConfig::window`] receives of [`MessagesConfig::packet`] bytes
//!    to its QP, and begins its private data with [`MessagesConfig::hello`].
//! 2. When the connection is established: [`Messages::new`], with the peer's private data.
//! 3. To send a message: [`Messages::send`] returns the header. Post a send of header and message, in one request. If there
//!    is no credit, try again after the next received packet. The QP also needs a free slot for the request.
//! 4. For each receive that has completed: [`Messages::receive`]. Post the receive again; after one of a message, call
//!    [`Messages::posted`]. A program that does not want more messages holds these receives back.
//! 5. After each step, and at [`Messages::timeout`] after [`Messages::handle_timeout`]: send what
//!    [`Messages::poll_control`] returns, in a request of its own, until it returns `None`.
//! 6. For [`Received::Offer`]: post an RDMA read. When it has completed, [`Messages::take`].
//! 7. To end: [`Messages::close`]. When [`Messages::is_over`], disconnect after the last send has completed.
//!
//! An event of the connection manager that ends the connection, and a failed completion, end it as well.
//!
//! ```
//! use cmid_proto::Time;
//! use cmid_proto::messages::{Messages, MessagesConfig, Received};
//!
//! let (config, now) = (MessagesConfig::default(), Time::ZERO);
//! let mut client = Messages::new(config, &config.hello(), now)?;
//! let mut server = Messages::new(config, &config.hello(), now)?;
//!
//! let mut packet = client.send(5, now)?.to_vec();
//! packet.extend(b"hello");
//! assert_eq!(server.receive(&packet, now)?, Received::Message(b"hello"));
//! server.posted(1); // its receive is posted again
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The protocol
//!
//! A packet is a header and, in one of kind 1, a message, in one of kind 4, the place of one. The header has a version, the number of the packet, and the number of
//! packets that its sender permits. A side has as many credits as the peer has receives of which it knows. Why the two
//! never wait for each other: `proto/src/messages/credits.rs`; the states: [`rules::MESSAGES`], rendered in
//! `docs/generated/messages.md`.

mod credits;
mod error;
mod header;
mod hello;
mod machine;
pub mod rules;

pub use error::{MessagesError, NotSent};
pub use header::{HEADER, OFFER};
pub use hello::{HELLO, HelloError, MessagesConfig, WINDOW_MIN};
pub use machine::{Messages, Received};
pub use rules::Stage;
