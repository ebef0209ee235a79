//! A multicast group: several receivers and one sender.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_proto::datapath::DataPath;
use cmid_proto::{CmEvent, Datagram, GroupKey, IdKey, Progress};

use crate::driver::Driver;
use crate::peer::{PATIENCE, Peer};
use crate::port::{Polled, Port};

/// An id that is a member of the group.
struct Member<D: DataPath> {
    id: IdKey,
    group: GroupKey,
    port: Port<D>,
    at: Datagram,
}

fn join<S: Driver>(
    peer: &mut Peer<S>,
    group: IpAddr,
    bind: IpAddr,
    size: usize,
    send_only: bool,
) -> Result<Member<S::Path>> {
    let (id, address) = (peer.id()?, SocketAddr::new(group, 0));
    peer.drive().bind(id, SocketAddr::new(bind, 0))?;
    let port = peer.open_port(id, size)?;
    let deadline = peer.drive().within(PATIENCE);
    let key = peer.drive().join(id, address, send_only, deadline)?;
    let event = peer.expect(id, CmEvent::MulticastJoin)?;
    ensure!(event.group == Some(key), "joined {:?}, not {key}", event.group);
    let at = event.datagram.context("a membership without a destination")?;
    Ok(Member { id, group: key, port, at })
}

fn leave<S: Driver>(peer: &mut Peer<S>, member: Member<S::Path>) -> Result<()> {
    let progress = peer.drive().leave(member.id, member.group)?;
    ensure!(progress == Progress::Done, "the leave of the group waits for an ack");
    drop(member.port);
    peer.close(member.id)
}

/// Joins the group and counts messages until `count` have arrived.
pub(crate) fn receive<S: Driver>(
    driver: S,
    group: IpAddr,
    bind: IpAddr,
    count: u32,
    size: usize,
    ready: &Sender<()>,
) -> Result<()> {
    let mut peer = Peer::new(driver)?;
    let mut member = join(&mut peer, group, bind, size, false)?;
    say!("joined {group}")?;
    // The receiver may be gone, which is not an error.
    let _ = ready.send(());
    let (mut came, mut last) = (0, Instant::now());
    while came < count {
        match member.port.poll()? {
            Polled::Arrived(arrived) => {
                let size = member.port.size();
                ensure!(arrived.len == size, "a message of {} bytes, not {size}", arrived.len);
                member.port.post_recv(arrived.slot)?;
                (came, last) = (came + 1, Instant::now());
            }
            Polled::Sent => {}
            Polled::Failed(status) => bail!("a receive failed with status {status}"),
            Polled::Nothing => {
                ensure!(last.elapsed() < PATIENCE, "{came} of {count} messages arrived");
                peer.rest()?;
            }
        }
    }
    say!("{came} messages arrived")?;
    leave(&mut peer, member)
}

/// Joins the group and sends `count` messages.
pub(crate) fn send<S: Driver>(driver: S, group: IpAddr, bind: IpAddr, count: u32, size: usize) -> Result<()> {
    let mut peer = Peer::new(driver)?;
    let mut member = join(&mut peer, group, bind, size, true)?;
    let way = member.port.way(&member.at.path)?;
    for number in 0..count {
        let bytes: Vec<u8> = (0..member.port.size()).map(|at| at as u8 ^ number as u8).collect();
        member.port.send(&bytes, &way, member.at.qp_num, member.at.qkey)?;
        let began = Instant::now();
        loop {
            match member.port.poll()? {
                Polled::Sent => break,
                Polled::Arrived(arrived) => member.port.post_recv(arrived.slot)?,
                Polled::Failed(status) => bail!("message {number} failed with status {status}"),
                Polled::Nothing => {
                    ensure!(began.elapsed() < PATIENCE, "message {number} is not sent");
                    peer.rest()?;
                }
            }
        }
        // Limits the rate, so that a receiver with few posted receives can follow.
        peer.rest()?;
    }
    say!("{count} messages sent to {group}")?;
    drop(way);
    leave(&mut peer, member)
}
