//! What the drivers of cmid share: the clock, the waker, the process, and options of the listeners of those that wait. Applications use it
//! through a driver: `cmid_epoll::Waker`, `cmid_blocking::ListenOptions`.
#![forbid(unsafe_code)]

mod clock;
mod options;
mod process;
mod waker;

pub use clock::now;
pub use options::ListenOptions;
pub use process::Process;
pub use waker::Waker;
