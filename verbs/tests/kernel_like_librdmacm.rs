//! What the kernel backend takes from earlier calls on an id, as librdmacm does: found by random programs.
#![expect(clippy::expect_used, reason = "tests")]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use cmid_proto::{Call, ChannelKey, ConnParam, Device as _, Errno, IdKey, PortSpace};
use cmid_verbs::{KernelCm, with_kernel};

/// Numbers of commands (`rdma/rdma_user_cm.h`).
const CONNECT: u8 = 6;
const ACCEPT: u8 = 8;
const QUERY: u8 = 19;

/// Where `struct rdma_ucm_accept` has its depths, after the header.
const ACCEPT_DEPTHS: usize = 8 + 8 + 266;
/// Where `struct rdma_ucm_query_addr_resp` has the peer's address.
const PEER: usize = 144;

/// Runs calls on an id that is bound to 10.0.0.1. Its peer, in the kernel, is 10.0.0.2:7. Connects fail. Returns the
/// depths of the accepts.
fn bound(run: impl FnOnce(&mut KernelCm, IdKey)) -> Vec<[u8; 2]> {
    let accepted = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&accepted);
    let kernel = move |command: &[u8], into: &mut [u8]| {
        match command[0] {
            CONNECT => return Err(Errno::EINVAL),
            ACCEPT => seen.borrow_mut().push([command[ACCEPT_DEPTHS], command[ACCEPT_DEPTHS + 1]]),
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
        for call in [
            Call::OpenChannel { channel },
            Call::CreateId { id, channel, port_space: PortSpace::Tcp },
            Call::Bind { id, addr: ([10, 0, 0, 1], 0).into() },
        ] {
            device.call(&call, &[]).expect("the call");
        }
        run(&mut device, id);
    });
    accepted.take()
}

/// A lookup that failed leaves one in the kernel.
#[test]
fn a_bind_reads_the_peer_address() {
    let accepted = bound(|device, id| {
        assert_eq!(device.peer_addr(id), Ok(SocketAddr::from(([10, 0, 0, 2], 7))));
    });
    assert!(accepted.is_empty());
}

/// Also of a connect that fails.
#[test]
fn the_depths_of_a_connect_limit_those_of_an_accept() {
    let param = |depth| ConnParam { responder_resources: depth, initiator_depth: depth, ..ConnParam::default() };
    let accepted = bound(|device, id| {
        assert_eq!(device.call(&Call::Connect { id, param: param(3) }, &[]), Err(Errno::EINVAL));
        device.call(&Call::Accept { id, param: param(ConnParam::DEVICE_MAX) }, &[]).expect("an accept");
    });
    assert_eq!(accepted, [[3, 3]]);
}
