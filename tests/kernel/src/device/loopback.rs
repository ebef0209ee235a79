//! A listener on a loopback address, which the core refuses ([`cmid_proto::RefuseReason::OnLoopback`]).

use std::net::SocketAddr;

use cmid_proto::{Call, CmEvent, Device as _, PortSpace};

use crate::env::{SERVER, Side, param};

/// The kernel takes the address for the wildcard (`cma_any_addr`): the requests to all addresses of the host arrive.
pub(crate) fn open_to_all() {
    for (port_space, own) in
        [(PortSpace::Tcp, "127.0.0.1:0"), (PortSpace::Tcp, "127.9.9.9:0"), (PortSpace::Udp, "127.0.0.1:0")]
    {
        let (mut client, mut server) = (Side::new(), Side::new());
        let listener = server.id_in(port_space);
        server.ok(&Call::Bind { id: listener, addr: own.parse().expect("an address") });
        server.ok(&Call::Listen { id: listener, backlog: 10 });
        let bound = server.device.local_addr(listener).expect("bound");
        assert!(bound.ip().is_loopback(), "{bound}");
        let id = client.resolved_in(port_space, SocketAddr::from((SERVER, bound.port())));
        client.ok(&Call::Connect { id, param: param() });
        let request = server.expect(CmEvent::ConnectRequest);
        assert_eq!(request.listener, Some(listener));
    }
}
