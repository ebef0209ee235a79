//! Whole connections on the kernel's own interface, without librdmacm: connect, accept, reject, disconnect.
//!
//! Run it by `cargo xtask softroce -- target/debug/kernel-cm`. It needs a device with the address 10.99.0.1.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, EventKind, IdKey, Limits, PortSpace, Time};
use cmid_verbs::KernelCm;

type Done<T = ()> = Result<T, Box<dyn Error>>;
type Device = Drive<KernelCm>;

const FAR: Time = Time(3_600_000_000_000);

fn main() -> Done {
    let mut drive = Drive::new(KernelCm::open(16)?, Limits::default());
    let (server, client) = (drive.open_channel(Acks::OnDelivery)?, drive.open_channel(Acks::OnDelivery)?);
    let peer = SocketAddr::from(([10, 99, 0, 1], 7999));
    let listener = drive.create_id(Some(server), PortSpace::Tcp)?;
    drive.bind(listener, peer)?;
    drive.listen(listener, 16)?;
    for round in 0..100 {
        connection(&mut drive, server, client, peer, round)?;
    }
    rejection(&mut drive, server, client, peer)?;
    drive.destroy_now(listener)?;
    println!("100 connections and 1 rejection");
    Ok(())
}

/// The next event of a channel, which must be of this kind.
fn expect(drive: &mut Device, on: ChannelKey, kind: CmEvent) -> Done<Event> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        // A listener has a channel of its own.
        let channels: Vec<_> = drive.core().channel_keys().collect();
        channels.into_iter().for_each(|channel| drive.readable(channel));
        while drive.has_work() {
            let _ = drive.turn(16);
        }
        if let Some(event) = drive.next_event(on) {
            assert_eq!(event.kind, EventKind::Cm(kind), "status {}", event.status);
            return Ok(event);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("no {kind} within 5 seconds; a fault: {:?}", drive.next_fault()).into())
}

fn resolved(drive: &mut Device, client: ChannelKey, peer: SocketAddr) -> Done<IdKey> {
    let id = drive.create_id(Some(client), PortSpace::Tcp)?;
    drive.resolve_addr(id, None, peer, FAR)?;
    let _ = expect(drive, client, CmEvent::AddrResolved)?;
    drive.resolve_route(id, FAR)?;
    let _ = expect(drive, client, CmEvent::RouteResolved)?;
    assert_eq!(cmid_proto::Device::peer_addr(drive.device(), id)?, peer);
    Ok(id)
}

fn connection(drive: &mut Device, server: ChannelKey, client: ChannelKey, peer: SocketAddr, round: u32) -> Done {
    let id = resolved(drive, client, peer)?;
    let param = |qp_num| ConnParam { qp_num, ..ConnParam::default() };
    drive.connect(id, param(100_000 + round), b"hello", FAR)?;
    let request = expect(drive, server, CmEvent::ConnectRequest).map_err(|e| format!("connection {round}: {e}"))?;
    assert_eq!(&request.private_data[..5], b"hello");
    assert_eq!((request.param.0.qp_num, request.param.0.initiator_depth), (100_000 + round, 16));
    let child = request.id;
    drive.accept(child, param(200_000 + round), b"welcome", FAR)?;
    let response = expect(drive, client, CmEvent::ConnectResponse)?;
    assert_eq!(&response.private_data[..7], b"welcome");
    drive.establish(id)?;
    let _ = expect(drive, server, CmEvent::Established)?;
    drive.disconnect(id, FAR)?;
    let _ = expect(drive, server, CmEvent::Disconnected)?;
    drive.disconnect(child, FAR)?;
    let _ = expect(drive, client, CmEvent::Disconnected)?;
    drive.destroy_now(id)?;
    drive.destroy_now(child)?;
    Ok(())
}

fn rejection(drive: &mut Device, server: ChannelKey, client: ChannelKey, peer: SocketAddr) -> Done {
    let id = resolved(drive, client, peer)?;
    drive.connect(id, ConnParam { qp_num: 300_000, ..ConnParam::default() }, &[], FAR)?;
    let child = expect(drive, server, CmEvent::ConnectRequest)?.id;
    drive.reject(child, b"no")?;
    let rejected = expect(drive, client, CmEvent::Rejected)?;
    assert_eq!((rejected.status, &rejected.private_data[..2]), (28, &b"no"[..]));
    drive.destroy_now(id)?;
    drive.destroy_now(child)?;
    Ok(())
}
