//! The counted jobs of `benches/vs-c/c/work.c`, for programs on other crates.
//!
//! Each program has one QP that is connected to itself, because not all of the crates have connection management. A
//! receive and a send are then those of the same QP, as in the C program, whose peer sends each message back.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The number of work requests that are posted before any of them is polled, as in C.
pub const AT_ONCE: u64 = 32;
/// The maximum number of concurrent work requests of a kind.
pub const DEPTH: u32 = 64;
/// The length of each message.
pub const BYTES: usize = 64;
/// As in C; the reason for its length is in `c/work.c`.
const PAUSE: Duration = Duration::from_millis(900);

/// The calls of one crate on a QP that is connected to itself. A call that the crate does not offer is an error.
pub trait Peer: Sized {
    /// Opens the device with the GID of this address, and connects a QP to itself. A call that polls asks for at most
    /// `polled` completions, where the crate decides that with the CQ.
    fn open(address: Ipv4Addr, polled: u32) -> Result<Self>;
    fn post_write(&mut self, number: u64) -> Result<()>;
    fn post_send(&mut self, number: u64) -> Result<()>;
    fn post_recv(&mut self, number: u64) -> Result<()>;
    /// Polls one completion: its `wr_id`, if it succeeded.
    fn poll_one(&mut self) -> Result<u64>;
    /// Posts [`AT_ONCE`] writes with one doorbell.
    fn post_writes(&mut self) -> Result<()> {
        not_offered("a batch")
    }
    /// Polls [`AT_ONCE`] completions in one call, or with one poller, and checks that they succeeded.
    fn poll_all(&mut self) -> Result<()> {
        not_offered("a batch")
    }
}

/// The error of a call that a crate does not offer.
pub fn not_offered<T>(what: &str) -> Result<T> {
    bail!("{what} is not offered")
}

/// The error of a completion that failed, or that is none of the job's.
#[cold]
pub fn unexpected(status: u32, wr_id: u64) -> anyhow::Error {
    anyhow::anyhow!("status {status}, wr_id {wr_id}")
}

/// The error of a poll without enough completions.
#[cold]
pub fn in_vain() -> anyhow::Error {
    anyhow::anyhow!("a poll in vain: the count would not be exact")
}

/// Does each job of the command line, such as `write:3`: its name and its number of rounds.
pub fn main(each: impl Fn(Ipv4Addr, &str, u32) -> Result<()>) -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("PROGRAM ADDRESS JOB...")?.parse()?;
    arguments.try_for_each(|text| {
        let (name, rounds) = text.split_once(':').context("a job is NAME:ROUNDS")?;
        each(address, name, rounds.parse()?).with_context(|| text.clone())
    })
}

/// Whether a GID is that of an address.
pub fn is_of(gid: [u8; 16], address: Ipv4Addr) -> bool {
    gid == address.to_ipv6_mapped().octets()
}

/// Runs a job on a new connection: `write`, `send` or `write-batch`.
pub fn run<P: Peer>(address: Ipv4Addr, name: &str, rounds: u32) -> Result<()> {
    let (round, polled): (fn(&mut P) -> Result<()>, _) = match name {
        "write" => (writes, 1),
        "send" => (sends, 1),
        "write-batch" => (write_batch, 2 * DEPTH),
        _ => bail!("no job is called \"{name}\""),
    };
    let mut peer = P::open(address, polled)?;
    for part in 0..parts() {
        if part > 0 {
            callgrind_mark();
        }
        for _ in 0..rounds {
            round(&mut peer)?;
        }
    }
    callgrind_mark();
    Ok(())
}

fn writes<P: Peer>(peer: &mut P) -> Result<()> {
    for number in 0..AT_ONCE {
        peer.post_write(number)?;
    }
    sleep(PAUSE);
    poll_each(peer, AT_ONCE)
}

fn sends<P: Peer>(peer: &mut P) -> Result<()> {
    for number in 0..AT_ONCE {
        peer.post_recv(number)?;
    }
    for number in 0..AT_ONCE {
        peer.post_send(number)?;
    }
    sleep(PAUSE);
    poll_each(peer, 2 * AT_ONCE)
}

#[inline(always)]
fn poll_each<P: Peer>(peer: &mut P, count: u64) -> Result<()> {
    for _ in 0..count {
        let wr_id = peer.poll_one()?;
        if wr_id >= AT_ONCE {
            return Err(unexpected(0, wr_id));
        }
    }
    Ok(())
}

fn write_batch<P: Peer>(peer: &mut P) -> Result<()> {
    peer.post_writes()?;
    sleep(PAUSE);
    peer.poll_all()
}

/// The number of equal parts of a job: VERSUS_PARTS, or 4. The first is for warming up.
fn parts() -> u32 {
    std::env::var("VERSUS_PARTS").ok().and_then(|given| given.parse().ok()).unwrap_or(4)
}

/// callgrind dumps its counts when this is called (`--dump-before`).
#[inline(never)]
pub fn callgrind_mark() {
    black_box(());
}
