//! What the drivers of cmid share: the clock, the waker, and the connects and accepts of those that wait. Applications use it
//! through a driver: `cmid_epoll::Waker`, `cmid_blocking::Options`.
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "an error may hold the event that ended the handshake; nothing is allocated"
)]

mod clock;
mod opening;
mod options;
mod waker;

pub use clock::now;
pub use opening::Opening;
pub use options::{ListenOptions, Options, set};
pub use waker::Waker;
