//! `c/work.c` on cmid: posts work requests and polls their completions, without empty polls.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use cmid_proto::datapath::{CompletionQueue, MemoryRegion, QueuePair, SendWr};
use cmid_verbs::{Completion, WcStatus};

use crate::connection::{BYTES, Connection};
use crate::mark::in_parts;

/// The number of work requests in a batch, as in C.
pub(crate) const AT_ONCE: u64 = 32;
/// As in C; the reason for its length is in `c/work.c`.
const PAUSE: Duration = Duration::from_millis(900);

/// The job with RDMA writes: this many batches in each part.
pub(crate) fn writes(to: SocketAddr, batches: u32) -> Result<()> {
    let mut connection = Connection::open(to)?;
    in_parts(|| {
        for _ in 0..batches {
            for number in 0..AT_ONCE {
                post_write(&mut connection, number)?;
            }
            sleep(PAUSE);
            for _ in 0..AT_ONCE {
                poll_one(&mut connection)?;
            }
        }
        Ok(())
    })
}

/// The job with sends, and receives for the echoes.
pub(crate) fn sends(to: SocketAddr, batches: u32) -> Result<()> {
    let mut connection = Connection::open(to)?;
    in_parts(|| {
        for _ in 0..batches {
            for number in 0..AT_ONCE {
                post_recv(&mut connection, number)?;
            }
            for number in 0..AT_ONCE {
                post_send(&mut connection, number)?;
            }
            sleep(PAUSE);
            for _ in 0..2 * AT_ONCE {
                poll_one(&mut connection)?;
            }
        }
        Ok(())
    })
}

// May be inlined, like C's static functions.

#[inline]
fn post_write(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_send(SendWr::write(number, connection.mr.sge(0..BYTES), connection.peer))?)
}

#[inline]
pub(crate) fn post_send(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_send(SendWr::send(number, connection.mr.sge(0..BYTES)))?)
}

#[inline]
pub(crate) fn post_recv(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_recv(number, connection.mr.sge(BYTES..2 * BYTES))?)
}

#[inline]
fn poll_one(connection: &mut Connection) -> Result<()> {
    let mut completions = [Completion::default()];
    let polled = connection.cq.poll(&mut completions)?;
    ensure!(polled == 1, "a poll in vain: the count would not be exact");
    let [completion] = completions;
    ensure!(completion.status == WcStatus::SUCCESS && completion.wr_id < AT_ONCE, "{completion:?}");
    Ok(())
}
