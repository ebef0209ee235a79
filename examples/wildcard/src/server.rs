//! The server: accepts connections on a wildcard address, each with the PD and the MR of its device.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::{Access, Caps, DataPath, Remote, prelude::*};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Errno, Event, IdKey};

/// The time limit of each step. Emulated machines are slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Size of the registered memory, which contains the name of its device, padded with zeros.
pub(crate) const SIZE: usize = 64;

/// The PD and the MR on a device. They live as long as the server, which keeps the device open.
struct Stock<D: DataPath> {
    nic: D::Nic,
    mr: D::Mr,
    // Dropped after the MR.
    pd: D::Pd,
}

/// A connection's part of the data path. Its PD and MR belong to all connections on the device.
struct End<D: DataPath> {
    id: IdKey,
    // Dropped in this order: the QP first.
    _qp: D::Qp,
    _cq: D::Cq,
}

/// The address and the key of the memory for the client, as private data of the accept.
pub(crate) fn encode(remote: Remote) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&remote.addr.to_be_bytes());
    bytes[8..].copy_from_slice(&remote.rkey.to_be_bytes());
    bytes
}

/// Returns the address and the key in the private data of the accept; `None` if the data is too short.
pub(crate) fn decode(bytes: &[u8]) -> Option<Remote> {
    let (addr, rest) = bytes.split_first_chunk()?;
    Some(Remote { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rest.first_chunk()?) })
}

/// Accepts `count` connections, and ends when all are disconnected. Sends to `ready` once it listens.
pub(crate) fn run<D: DataPath>(
    device: D,
    address: SocketAddr,
    count: usize,
    name: fn(&D::Nic) -> String,
    ready: &Sender<()>,
) -> Result<()> {
    // Dropped in this order: the QPs, the memory, the driver with the ids.
    let mut epoll = Epoll::new(device, Config::default())?;
    let mut stocks = Vec::<Stock<D>>::new();
    let mut ends: Vec<End<D>> = Vec::new();
    let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
    let listener = epoll.drive().create_id(Some(channel), cmid_proto::PortSpace::Tcp)?;
    epoll.drive().bind(listener, address)?;
    epoll.drive().listen(listener, 16)?;
    println!("server: listens on {address}");
    // The receiver may be gone, which is not an error.
    let _ = ready.send(());
    let mut ended = 0;
    while ended < count {
        let event = next(&mut epoll, channel)?;
        match event.cm() {
            Some(CmEvent::ConnectRequest) => {
                ends.push(accept(&mut epoll, &mut stocks, name, event.id).context("a connection request")?);
            }
            Some(CmEvent::Established) => {}
            Some(CmEvent::Disconnected) => {
                let deadline = epoll.drive().within(LIMIT);
                epoll.drive().disconnect(event.id, deadline)?;
                epoll.drive().detach_qp(event.id, |device, id| device.destroy_qp(id))?;
                ends.retain(|end| end.id != event.id);
                epoll.drive().destroy_now(event.id)?;
                ended += 1;
            }
            _ => bail!("unexpected: {event:?}"),
        }
    }
    epoll.drive().destroy_now(listener)?;
    println!("server: {count} connections, devices: {}", stocks.len());
    Ok(())
}

/// Creates a QP with the PD of the id's device, and accepts with the key of the MR there.
fn accept<D: DataPath>(
    epoll: &mut Epoll<D>,
    stocks: &mut Vec<Stock<D>>,
    name: fn(&D::Nic) -> String,
    id: IdKey,
) -> Result<End<D>> {
    let (qp, cq, remote) = epoll.drive().attach_qp(id, |device, attaching| {
        let nic = device.device_of(id)?;
        if !stocks.iter().any(|stock| stock.nic == nic) {
            stocks.push(stock(device, nic.clone(), name)?);
        }
        let stock = stocks.iter().find(|stock| stock.nic == nic).ok_or(Errno::ENODEV)?;
        let cq = device.create_cq(id, 8)?;
        let caps = Caps { max_send_wr: 4, max_recv_wr: 4, ..Caps::default() };
        let qp = device.create_qp(attaching, &stock.pd, &cq, &cq, caps)?;
        Ok((qp, cq, stock.mr.remote(0)))
    })?;
    let deadline = epoll.drive().within(LIMIT);
    epoll.drive().accept(id, ConnParam::default(), &encode(remote), deadline)?;
    Ok(End { id, _qp: qp, _cq: cq })
}

/// Allocates the PD on a device, and registers memory that contains the name of the device.
fn stock<D: DataPath>(device: &mut D, nic: D::Nic, name: fn(&D::Nic) -> String) -> Result<Stock<D>, Errno> {
    let pd = device.alloc_pd_on(&nic)?;
    let mut bytes = name(&nic).into_bytes();
    bytes.resize(SIZE, 0);
    let mr = pd.register(bytes, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    println!("server: memory on {} is registered, rkey {:#x}", name(&nic), mr.rkey());
    Ok(Stock { nic, mr, pd })
}

/// Returns the next event of the channel. Fails after [`LIMIT`].
fn next<D: DataPath>(epoll: &mut Epoll<D>, channel: ChannelKey) -> Result<Event> {
    let start = Instant::now();
    loop {
        if let Some(event) = epoll.drive().next_event(channel) {
            return Ok(event);
        }
        ensure!(start.elapsed() < LIMIT, "no event within {LIMIT:?}; a fault: {:?}", epoll.drive().next_fault());
        epoll.wait(Some(LIMIT))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_holds_address_and_key() {
        let remote = Remote { addr: 0x7f00_0102_0304_0506, rkey: 0xa1a2_a3a4 };
        let mut padded = encode(remote).to_vec();
        padded.resize(196, 0);
        assert_eq!(decode(&padded), Some(remote));
        assert_eq!(decode(&[0; 11]), None);
    }
}
