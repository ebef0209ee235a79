//! State that the kernel backend keeps from earlier calls on an id, as librdmacm does. Random programs found these
//! cases.
#![expect(clippy::expect_used, reason = "tests")]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use cmid_proto::{Call, ChannelKey, ConnParam, Device as _, Errno, IdKey, PortSpace};
use cmid_verbs::{KernelCm, with_kernel};

/// Numbers of commands (`rdma/rdma_user_cm.h`).
const RESOLVE_IP: u8 = 3;
const CONNECT: u8 = 6;
const ACCEPT: u8 = 8;
const QUERY: u8 = 19;

/// The offset of the depths of `struct rdma_ucm_accept`, with the header.
const ACCEPT_DEPTHS: usize = 8 + 8 + 266;
/// The offset of the peer's address in `struct rdma_ucm_query_addr_resp`.
const PEER: usize = 144;

/// The commands that these tests check.
#[derive(Default)]
struct Seen {
    connects: usize,
    /// The depths of the accepts.
    accepted: Vec<[u8; 2]>,
}

/// Runs calls on a new id. Its peer, in the kernel, is 10.0.0.2:7. Lookups and connects are refused.
fn created(run: impl FnOnce(&mut KernelCm, IdKey)) -> Seen {
    let all = Rc::new(RefCell::new(Seen::default()));
    let seen = Rc::clone(&all);
    let kernel = move |command: &[u8], into: &mut [u8]| {
        match command[0] {
            RESOLVE_IP => return Err(Errno::EINVAL),
            CONNECT => {
                seen.borrow_mut().connects += 1;
                return Err(Errno::EINVAL);
            }
            ACCEPT => seen.borrow_mut().accepted.push([command[ACCEPT_DEPTHS], command[ACCEPT_DEPTHS + 1]]),
            QUERY => {
                // The GUID and the port of the device.
                into[..9].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 1]);
                into[PEER..PEER + 8].copy_from_slice(&[libc::AF_INET as u8, 0, 0, 7, 10, 0, 0, 2]);
            }
            _ => {}
        }
        Ok(())
    };
    with_kernel(kernel, || {
        let (id, channel) = (IdKey::from_bits(1).expect("a key"), ChannelKey::from_bits(1).expect("a key"));
        let mut device = KernelCm::open(16).expect("the scripted kernel");
        for call in [Call::OpenChannel { channel }, Call::CreateId { id, channel, port_space: PortSpace::Tcp }] {
            device.call(&call, &[]).expect("the call");
        }
        run(&mut device, id);
    });
    all.take()
}

fn bind(device: &mut KernelCm, id: IdKey) {
    device.call(&Call::Bind { id, addr: ([10, 0, 0, 1], 0).into() }, &[]).expect("a bind");
}

fn refused_lookup(device: &mut KernelCm, id: IdKey) {
    let lookup = Call::ResolveAddr { id, src: None, dst: ([10, 0, 0, 2], 7).into(), timeout_ms: 1 };
    assert_eq!(device.call(&lookup, &[]), Err(Errno::EINVAL));
}

/// A refused lookup leaves a peer address in the kernel.
#[test]
fn a_bind_reads_the_peer_address() {
    created(|device, id| {
        refused_lookup(device, id);
        assert_eq!(device.peer_addr(id), Err(Errno(libc::EADDRNOTAVAIL)));
        bind(device, id);
        assert_eq!(device.peer_addr(id), Ok(SocketAddr::from(([10, 0, 0, 2], 7))));
    });
}

/// librdmacm reads it only at the bind.
#[test]
fn a_refused_lookup_leaves_the_peer_address_of_the_bind() {
    created(|device, id| {
        bind(device, id);
        refused_lookup(device, id);
        assert_eq!(device.peer_addr(id), Err(Errno(libc::EADDRNOTAVAIL)));
    });
}

/// A failed lookup may have bound the id. The connect is then passed to the kernel.
#[test]
fn a_listen_reads_the_device() {
    let connect = |id| Call::Connect { id, param: ConnParam::default() };
    let seen = created(|device, id| {
        assert_eq!(device.call(&connect(id), &[]), Err(Errno::EINVAL));
        device.call(&Call::Listen { id, backlog: 1 }, &[]).expect("a listen");
        assert_eq!(device.call(&connect(id), &[]), Err(Errno::EINVAL));
    });
    assert_eq!(seen.connects, 1);
}

/// Even the depths of a failed connect.
#[test]
fn the_depths_of_a_connect_limit_those_of_an_accept() {
    let param = |depth| ConnParam { responder_resources: depth, initiator_depth: depth, ..ConnParam::default() };
    let seen = created(|device, id| {
        bind(device, id);
        assert_eq!(device.call(&Call::Connect { id, param: param(3) }, &[]), Err(Errno::EINVAL));
        device.call(&Call::Accept { id, param: param(ConnParam::DEVICE_MAX) }, &[]).expect("an accept");
    });
    assert_eq!(seen.accepted, [[3, 3]]);
}
