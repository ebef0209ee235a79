//! The active side: resolves the server's QP, then sends datagrams and waits for the echo of each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use cmid_proto::Datagram;

use crate::driver::Driver;
use crate::peer::{PATIENCE, Peer};
use crate::port::Polled;

/// The time after which an unanswered datagram is sent again, because datagrams are unreliable.
const AGAIN: Duration = Duration::from_millis(250);

/// Sends `count` datagrams and checks that each echo has the same bytes.
pub(crate) fn run<S: Driver>(driver: S, address: SocketAddr, count: u32, size: usize) -> Result<()> {
    ensure!(size == 0 || size >= 4, "a datagram starts with its number: at least 4 bytes");
    let mut peer = Peer::new(driver)?;
    let (id, mut port, Datagram { qp_num, qkey, path }) = peer.look_up(address, size)?;
    let (way, size) = (port.way(&path)?, port.size());
    let (began, mut repeated) = (Instant::now(), 0);
    for number in 0..count {
        let bytes: Vec<u8> = number.to_be_bytes().into_iter().chain((4..size).map(|at| at as u8)).collect();
        let first = Instant::now();
        let mut sent = first;
        port.send(&bytes, &way, qp_num, qkey)?;
        loop {
            match port.poll()? {
                Polled::Arrived(arrived) => {
                    let came = port.read(arrived)?;
                    port.post_recv(arrived.slot)?;
                    if came == bytes {
                        break;
                    }
                    // Another echo is legal only if it is that of an earlier datagram, which was sent twice.
                    let earlier = came.first_chunk::<4>().is_some_and(|it| u32::from_be_bytes(*it) < number);
                    ensure!(earlier, "the echo of datagram {number} is {came:?}");
                }
                Polled::Sent => {}
                Polled::Failed(status) => bail!("datagram {number} failed with status {status}"),
                Polled::Nothing if sent.elapsed() > AGAIN => {
                    ensure!(first.elapsed() < PATIENCE, "datagram {number} was not answered within {PATIENCE:?}");
                    port.send(&bytes, &way, qp_num, qkey)?;
                    (sent, repeated) = (Instant::now(), repeated + 1);
                }
                Polled::Nothing => peer.rest()?,
            }
        }
    }
    say!("{count} datagrams of {size} bytes there and back in {:?}, {repeated} sent again", began.elapsed())?;
    drop((port, way));
    peer.close(id)
}
