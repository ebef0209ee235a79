//! cmid in event loops. Each file `on_*` is one loop of at most 60 lines; a user copies one of them.
//!
//! The loops run the same [`Program`]: a server and a client on one driver. The client connects and sends a message;
//! the server receives it and disconnects. A loop waits for two descriptors: that of the driver, and that of the CQ
//! once the server is connected.

pub mod on_acceptor;
pub mod on_async_io;
pub mod on_blocking;
pub mod on_busy_polling;
pub mod on_calloop;
pub mod on_epoll;
pub mod on_io_uring;
pub mod on_mio;
mod program;
mod reactor;

pub use program::{Attached, MESSAGE, Program, Watch, attach};

use std::io;
use std::net::SocketAddr;

use cmid_epoll::proto::datapath::DataPath;

/// Runs a loop on a device until its program is done.
pub type Run<D> = fn(D, SocketAddr) -> io::Result<()>;

/// The loops, by name.
#[must_use]
pub fn loops<D: DataPath + 'static>() -> [(&'static str, Run<D>); 8] {
    [
        ("mio", on_mio::run),
        ("epoll", on_epoll::run),
        ("blocking", on_blocking::run),
        ("io-uring", on_io_uring::run),
        ("calloop", on_calloop::run),
        ("async-io", on_async_io::run),
        ("busy-polling", on_busy_polling::run),
        ("acceptor", on_acceptor::run),
    ]
}
