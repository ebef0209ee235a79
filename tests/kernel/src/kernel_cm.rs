//! What forked children do to connections on the kernel's own interface, and the scope of a link-local peer.
//!
//! Run it by `cargo xtask softroce -- target/debug/kernel-cm`. It needs a device with the address 10.99.0.1.
#![expect(unsafe_code, reason = "fork(2)")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Device as _, Drive, Event, EventKind, IdKey, Limits, Next, PortSpace, State,
    Time,
};
use cmid_verbs::KernelCm;

type Done<T = ()> = Result<T, Box<dyn Error>>;
type Device = Drive<KernelCm>;

const FAR: Time = Time(3_600_000_000_000);

fn main() -> Done {
    let took = dropped_while_a_child_lives()?;
    println!(
        "with the descriptors in a forked child: a dropped device ends its connection after {took:?}, and its listener"
    );
    dropped_in_a_child()?;
    println!("a forked child drops a device: its parent's connection and listener stay");
    link_local()?;
    println!("the address of a link-local peer has a scope");
    Ok(())
}

/// The link-local address of the VM's first interface with an RDMA device.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 0x9901);

/// The index of its interface, once the kernel has checked that the address is unique (proc_pid_net(5)).
fn link() -> Done<u32> {
    let address = format!("{:032x}", u128::from(LINK_LOCAL));
    for _ in 0..100 {
        let all = std::fs::read_to_string("/proc/net/if_inet6")?;
        let mut lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[0] == address).ok_or("no interface has the address")?;
        // `IFA_F_TENTATIVE`
        if u32::from_str_radix(line[4], 16)? & 0x40 == 0 {
            return Ok(u32::from_str_radix(line[1], 16)?);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the address stays tentative".into())
}

fn link_local() -> Done {
    let peer = SocketAddr::from(SocketAddrV6::new(LINK_LOCAL, 7996, 0, link()?));
    let Connected { mut server, client, id, .. } = connected(peer, 430_000)?;
    let child = server.core().ids().find(|id| server.core().state(*id) == Some(State::Connected));
    let child = child.ok_or("an id is connected")?;
    let (own, from) = (client.device().local_addr(id)?, server.device().peer_addr(child)?);
    assert_eq!((from, server.device().local_addr(child)?), (own, peer));
    // So the server can connect back.
    let on = server.open_channel(Acks::OnDelivery)?;
    let _ = resolved(&mut server, on, from)?;
    Ok(())
}

/// A forked child; dropping it ends it.
struct Child(libc::pid_t);

impl Child {
    /// Forks. The child runs `work` and exits.
    fn fork(work: impl FnOnce()) -> Self {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                work();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) }
            }
            child => {
                assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
                Child(child)
            }
        }
    }

    /// Waits for the end of the child, which must be a success.
    fn wait(self) {
        let mut status = 0;
        // SAFETY: `status` is a place for the result.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "the child");
    }
}

/// A device with a listener, another one with a client, and their connection.
struct Connected {
    server: Device,
    client: Device,
    /// The channel of the client's events.
    channel: ChannelKey,
    id: IdKey,
}

fn connected(peer: SocketAddr, qp_num: u32) -> Done<Connected> {
    let new = || -> Done<Device> { Ok(Drive::new(KernelCm::open(16)?, Limits::default())) };
    let (mut server, mut client) = (new()?, new()?);
    let (on, channel) = (server.open_channel(Acks::OnDelivery)?, client.open_channel(Acks::OnDelivery)?);
    let listener = server.create_id(Some(on), PortSpace::Tcp)?;
    server.bind(listener, peer)?;
    server.listen(listener, 16)?;
    let id = resolved(&mut client, channel, peer)?;
    let param = |qp_num| ConnParam { qp_num, ..ConnParam::default() };
    client.connect(id, param(qp_num), &[], FAR)?;
    let request = expect(&mut server, on, CmEvent::ConnectRequest)?;
    server.accept(request.id, param(qp_num + 1), &[], FAR)?;
    let _ = expect(&mut client, channel, CmEvent::ConnectResponse)?;
    client.establish(id)?;
    let _ = expect(&mut server, on, CmEvent::Established)?;
    Ok(Connected { server, client, channel, id })
}

/// A child that lives keeps the descriptors open, so closing them ends no id.
fn dropped_while_a_child_lives() -> Done<Duration> {
    let peer = SocketAddr::from(([10, 99, 0, 1], 7998));
    let Connected { server, mut client, channel, .. } = connected(peer, 400_000)?;
    let child = Child::fork(|| std::thread::sleep(Duration::from_secs(4)));
    let start = Instant::now();
    drop(server);
    let _ = expect(&mut client, channel, CmEvent::Disconnected)?;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    // The address is free again.
    let again = connected(peer, 410_000)?;
    drop(again);
    child.wait();
    Ok(took)
}

fn dropped_in_a_child() -> Done {
    let peer = SocketAddr::from(([10, 99, 0, 1], 7997));
    let Connected { server, mut client, channel, id } = connected(peer, 420_000)?;
    let mut inherited = Some(server);
    Child::fork(|| drop(inherited.take())).wait();
    std::thread::sleep(Duration::from_millis(300));
    client.readable(channel);
    let _ = client.run(16);
    assert_eq!(client.next_event(channel), None, "the parent's connection has ended");
    // The listener still answers.
    let second = resolved(&mut client, channel, peer)?;
    client.connect(second, ConnParam { qp_num: 420_002, ..ConnParam::default() }, &[], FAR)?;
    let mut server = inherited.take().ok_or("the parent has it")?;
    let on = server.core().channels().next().ok_or("it has a channel")?;
    let _ = expect(&mut server, on, CmEvent::ConnectRequest)?;
    client.destroy_now(second)?;
    client.disconnect(id, FAR)?;
    let _ = expect(&mut server, on, CmEvent::Disconnected)?;
    Ok(())
}

/// The next event of a channel, which must be of this kind.
fn expect(drive: &mut Device, on: ChannelKey, kind: CmEvent) -> Done<Event> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        // A listener has a channel of its own.
        let channels: Vec<_> = drive.core().channels().collect();
        channels.into_iter().for_each(|channel| drive.readable(channel));
        while drive.run(16) == Next::Again {}
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
    assert_eq!(drive.device().peer_addr(id)?, peer);
    Ok(id)
}
