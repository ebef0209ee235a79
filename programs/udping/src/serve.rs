//! The passive side: answers one lookup, then echoes every datagram.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use cmid_proto::Time;
use cmid_proto::datapath::DataPath;

use crate::driver::Driver;
use crate::peer::{PATIENCE, Peer};
use crate::port::{Arrived, Polled, Port};

/// The time after the last datagram during which repeated datagrams are echoed.
const LINGER: Duration = Duration::from_millis(500);

/// The Q_Key that librdmacm uses for datagram QPs (`RDMA_UDP_QKEY`).
pub(crate) const QKEY: u32 = 0x0123_4567;

/// Echoes datagrams until `count` different ones have arrived.
pub(crate) fn run<S: Driver>(
    driver: S,
    address: SocketAddr,
    count: u32,
    size: usize,
    ready: &Sender<()>,
) -> Result<()> {
    let mut peer = Peer::new(driver)?;
    let (listener, id, mut port) = peer.answer_lookup(address, size, ready)?;
    let (mut seen, mut last) = (BTreeSet::new(), Instant::now());
    while seen.len() < count as usize || last.elapsed() < LINGER {
        ensure!(last.elapsed() < PATIENCE, "{} of {count} datagrams arrived", seen.len());
        match port.poll()? {
            Polled::Arrived(arrived) => {
                seen.insert(answer(&mut port, arrived)?);
                last = Instant::now();
            }
            Polled::Sent => {}
            Polled::Failed(status) => bail!("a work request failed with status {status}"),
            Polled::Nothing => peer.rest()?,
        }
    }
    ensure!(seen.len() == count as usize, "{} different datagrams, {count} were sent", seen.len());
    say!("{count} datagrams answered")?;
    drop(port);
    peer.close(id)?;
    peer.drive().destroy(listener, Time::NEVER)?;
    Ok(())
}

/// Echoes a datagram and returns its number.
fn answer<D: DataPath>(port: &mut Port<D>, arrived: Arrived) -> Result<u32> {
    let bytes = port.read(arrived)?;
    let Some(number) = bytes.first_chunk::<4>() else { bail!("a datagram of {} bytes", bytes.len()) };
    let way = port.way_back(arrived)?;
    port.send(&bytes, &way, arrived.src_qp, QKEY)?;
    let began = Instant::now();
    // The address handle and the buffer are in use until the send has completed.
    loop {
        match port.poll()? {
            Polled::Sent => break,
            Polled::Nothing => {
                ensure!(began.elapsed() < PATIENCE, "an answer is not sent within {PATIENCE:?}");
                std::thread::yield_now();
            }
            // The peer sends the next datagram only after the echo, so this is a repetition of the same datagram.
            Polled::Arrived(again) => port.post_recv(again.slot)?,
            Polled::Failed(status) => bail!("the answer failed with status {status}"),
        }
    }
    port.post_recv(arrived.slot)?;
    Ok(u32::from_be_bytes(*number))
}
