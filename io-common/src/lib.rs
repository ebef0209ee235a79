//! What the drivers of cmid share. Applications use it through a driver: `cmid_epoll::Waker`, `cmid_mio::Waker`.
#![forbid(unsafe_code)]

mod attach;
mod clock;
mod waker;

pub use attach::attach_with;
pub use clock::now;
pub use waker::Waker;
