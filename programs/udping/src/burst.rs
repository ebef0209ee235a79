//! Bursts of datagrams with immediate data, and as many replies: the protocol of rdma-core's `udaddy`. The immediate
//! data of each datagram is the QP number of its sender. A reply goes to that QP.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_proto::datapath::{DataPath, GRH_LEN, To};
use cmid_proto::{Datagram, Time};

use crate::driver::Driver;
use crate::peer::{PATIENCE, Peer};
use crate::port::{Arrived, Polled, Port, SLOTS};
use crate::serve::QKEY;

/// The active side: posts `count` datagrams with one doorbell, and waits for `count` replies.
pub(crate) fn burst<S: Driver>(driver: S, address: SocketAddr, count: u32, size: usize) -> Result<()> {
    check(count)?;
    let mut peer = Peer::new(driver)?;
    let (id, mut port, Datagram { qp_num, qkey, path }) = peer.look_up(address, size)?;
    let way = port.way(&path)?;
    let (bytes, own) = ((0..port.size()).map(|at| at as u8).collect::<Vec<_>>(), port.num());
    port.send_burst(count, &bytes, To { ah: &way, qp_num, qkey }, own)?;
    for reply in completed(&mut peer, &mut port, count, count)? {
        ensure!(reply.imm == Some(qp_num), "immediate data {:?} in a reply of QP {qp_num}", reply.imm);
        ensure!(has_bytes_of(&port.read(reply)?, &bytes), "a reply does not have the bytes of the datagram");
    }
    say!("{count} datagrams sent, {count} replies")?;
    drop((port, way));
    peer.close(id)
}

/// The passive side: receives `count` datagrams, and then sends as many with the bytes of the first one.
pub(crate) fn reply<S: Driver>(
    driver: S,
    address: SocketAddr,
    count: u32,
    size: usize,
    ready: &Sender<()>,
) -> Result<()> {
    check(count)?;
    let mut peer = Peer::new(driver)?;
    let (listener, id, mut port) = peer.answer_lookup(address, size, ready)?;
    let arrived = completed(&mut peer, &mut port, count, 0)?;
    for datagram in &arrived {
        ensure!(datagram.imm == Some(datagram.src_qp), "immediate data {:?} of {datagram:?}", datagram.imm);
        ensure!(datagram.len == port.size(), "a datagram of {} bytes, not {}", datagram.len, port.size());
    }
    let first = *arrived.first().context("no datagram")?;
    let (bytes, way, own) = (port.read(first)?, port.way_back(first)?, port.num());
    port.send_burst(count, &bytes, To { ah: &way, qp_num: first.src_qp, qkey: QKEY }, own)?;
    completed(&mut peer, &mut port, 0, count)?;
    say!("{count} datagrams received, {count} replies sent")?;
    drop((port, way));
    peer.close(id)?;
    peer.drive().destroy(listener, Time::NEVER)?;
    Ok(())
}

/// Whether a reply has the bytes of a datagram. udaddy's server sends its receive buffer from the start, including the
/// GRH, so its replies lack the end of the datagram.
fn has_bytes_of(reply: &[u8], datagram: &[u8]) -> bool {
    let after_grh = reply.get(GRH_LEN..).filter(|bytes| !bytes.is_empty());
    reply.len() == datagram.len() && (reply == datagram || after_grh.is_some_and(|bytes| datagram.starts_with(bytes)))
}

/// A burst needs a posted receive for each datagram.
fn check(count: u32) -> Result<()> {
    ensure!((1..=SLOTS as u32).contains(&count), "a burst has 1 to {SLOTS} datagrams");
    Ok(())
}

/// Waits until `receives` datagrams have arrived and `sends` sends have completed. Returns the datagrams.
fn completed<S: Driver, D: DataPath>(
    peer: &mut Peer<S>,
    port: &mut Port<D>,
    receives: u32,
    sends: u32,
) -> Result<Vec<Arrived>> {
    let (mut arrived, mut sent, began) = (Vec::new(), 0, Instant::now());
    while arrived.len() < receives as usize || sent < sends {
        match port.poll()? {
            Polled::Arrived(datagram) => arrived.push(datagram),
            Polled::Sent => sent += 1,
            Polled::Failed(status) => bail!("a work request failed with status {status}"),
            Polled::Nothing => {
                ensure!(
                    began.elapsed() < PATIENCE,
                    "{} of {receives} datagrams arrived, {sent} of {sends} sent",
                    arrived.len()
                );
                peer.rest()?;
            }
        }
    }
    Ok(arrived)
}
