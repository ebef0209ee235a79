//! `c/work.c` on cmid: posts work requests and polls their completions, without empty polls.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_proto::datapath::{Parts, SendWr, prelude::*};
use cmid_verbs::{Completion, WcStatus};

use crate::connection::{BYTES, Connection};
use crate::mark::in_parts;

/// The number of work requests that are posted before any of them is polled, as in C.
pub(crate) const AT_ONCE: u64 = 32;
/// As in C; the reason for its length is in `c/work.c`.
const PAUSE: Duration = Duration::from_millis(900);

type Completions = [Completion; 2 * AT_ONCE as usize];

/// What is posted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Sends, and receives for their echoes; otherwise writes.
    pub(crate) sends: bool,
    /// Writes with one doorbell, and one poll.
    pub(crate) in_one_call: bool,
    /// Receives are taken from a shared receive queue.
    pub(crate) shared: bool,
    /// From and into blocks, which are reclaimed after the poll.
    pub(crate) blocks: bool,
}

impl Work {
    /// The work of a job's name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let plain = Work { sends: false, in_one_call: false, shared: false, blocks: false };
        Some(match name {
            "write" => plain,
            "send" => Work { sends: true, ..plain },
            "write-batch" => Work { in_one_call: true, ..plain },
            "send-srq" => Work { sends: true, shared: true, ..plain },
            "write-block" => Work { blocks: true, ..plain },
            "write-block-batch" => Work { blocks: true, in_one_call: true, ..plain },
            "send-block" => Work { sends: true, blocks: true, ..plain },
            _ => return None,
        })
    }
}

/// The job: this many times [`AT_ONCE`] requests of a kind in each part.
pub(crate) fn run(to: SocketAddr, work: Work, rounds: u32) -> Result<()> {
    let mut connection = Connection::open(to, work.shared)?;
    // Filled again by each poll, as the array of C is.
    let mut completions = [Completion::default(); 2 * AT_ONCE as usize];
    in_parts(|| {
        for _ in 0..rounds {
            match work {
                Work { blocks: true, in_one_call: true, .. } => block_batch(&mut connection, &mut completions)?,
                Work { blocks: true, sends: true, .. } => block_sends(&mut connection, &mut completions)?,
                Work { blocks: true, .. } => block_writes(&mut connection, &mut completions)?,
                Work { shared: true, .. } => shared_sends(&mut connection, &mut completions)?,
                Work { in_one_call: true, .. } => write_batch(&mut connection, &mut completions)?,
                Work { sends: true, .. } => sends(&mut connection, &mut completions)?,
                Work { .. } => writes(&mut connection, &mut completions)?,
            }
        }
        Ok(())
    })
}

// Not inlined into one function with the drivers: C's is as small.

#[inline(never)]
fn writes(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for number in 0..AT_ONCE {
        post_write(connection, number)?;
    }
    sleep(PAUSE);
    for _ in 0..AT_ONCE {
        poll_one(connection, completions)?;
    }
    Ok(())
}

#[inline(never)]
fn sends(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for number in 0..AT_ONCE {
        post_recv(connection, number)?;
    }
    for number in 0..AT_ONCE {
        post_send(connection, number)?;
    }
    sleep(PAUSE);
    for _ in 0..2 * AT_ONCE {
        poll_one(connection, completions)?;
    }
    Ok(())
}

#[inline(never)]
fn shared_sends(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for number in 0..AT_ONCE {
        let srq = connection.srq.as_mut().context("no SRQ")?;
        srq.post_recv(number, connection.mr.sge(BYTES..2 * BYTES))?;
    }
    for number in 0..AT_ONCE {
        post_send(connection, number)?;
    }
    sleep(PAUSE);
    for _ in 0..2 * AT_ONCE {
        poll_one(connection, completions)?;
    }
    Ok(())
}

#[inline(never)]
fn write_batch(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    let (mr, peer) = (&connection.mr, connection.peer);
    connection.qp.post_sends((0..AT_ONCE).map(|number| SendWr::write(number, mr.sge(0..BYTES), peer)))?;
    sleep(PAUSE);
    poll_all::<{ AT_ONCE as usize }>(connection, completions)
}

#[inline(never)]
fn block_writes(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for number in 0..AT_ONCE {
        let block = connection.blocks.pop().context("no block")?;
        connection.qp.post_send_blocks(SendWr::write(number, block, connection.peer))?;
    }
    sleep(PAUSE);
    for _ in 0..AT_ONCE {
        poll_one(connection, completions)?;
        reclaim::<1>(connection, completions)?;
    }
    Ok(())
}

#[inline(never)]
fn block_sends(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for number in 0..AT_ONCE {
        let block = connection.blocks.pop().context("no block")?;
        connection.qp.post_recv_blocks(number, block)?;
    }
    for number in 0..AT_ONCE {
        let block = connection.blocks.pop().context("no block")?;
        connection.qp.post_send_blocks(SendWr::send(number, block))?;
    }
    sleep(PAUSE);
    for _ in 0..2 * AT_ONCE {
        poll_one(connection, completions)?;
        reclaim::<1>(connection, completions)?;
    }
    Ok(())
}

#[inline(never)]
fn block_batch(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    let (blocks, peer) = (&mut connection.blocks, connection.peer);
    let requests = blocks.drain(..AT_ONCE as usize).zip(0..).map(|(block, number)| SendWr::write(number, block, peer));
    connection.qp.post_sends_blocks(requests).map_err(|unposted| unposted.error)?;
    sleep(PAUSE);
    poll_all::<{ AT_ONCE as usize }>(connection, completions)?;
    reclaim::<{ AT_ONCE as usize }>(connection, completions)
}

#[inline(always)]
fn reclaim<const COUNT: usize>(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    for completion in &completions[..COUNT] {
        let block = connection.qp.reclaim(completion).and_then(Parts::into_block).context("no block")?;
        connection.blocks.push(block);
    }
    Ok(())
}

// Inlined, as C's static functions are.

#[inline(always)]
fn post_write(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_send(SendWr::write(number, connection.mr.sge(0..BYTES), connection.peer))?)
}

#[inline(always)]
pub(crate) fn post_send(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_send(SendWr::send(number, connection.mr.sge(0..BYTES)))?)
}

#[inline(always)]
pub(crate) fn post_recv(connection: &mut Connection, number: u64) -> Result<()> {
    Ok(connection.qp.post_recv(number, connection.mr.sge(BYTES..2 * BYTES))?)
}

#[inline(always)]
fn poll_one(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    poll_all::<1>(connection, completions)
}

#[inline(always)]
fn poll_all<const COUNT: usize>(connection: &mut Connection, completions: &mut Completions) -> Result<()> {
    let completions = &mut completions[..COUNT];
    let polled = connection.cq.poll(completions)?;
    ensure!(polled == COUNT, "a poll in vain: the count would not be exact");
    for completion in completions {
        if completion.status != WcStatus::SUCCESS || completion.wr_id >= AT_ONCE {
            return Err(unexpected(completion));
        }
    }
    Ok(())
}

#[cold]
fn unexpected(completion: &Completion) -> anyhow::Error {
    anyhow::anyhow!("{completion:?}")
}
