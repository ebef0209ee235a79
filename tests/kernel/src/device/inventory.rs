//! Devices and names.

use std::net::SocketAddr;

use cmid_proto::{Call, CmEvent, Errno, PortSpace, Service};
use cmid_verbs::{AddrInfo, AddrInfoError, Family, Hints, addr_info};

use crate::env::{CLIENT, Side, param};

const EAI_NONAME: i32 = -2;
const EAI_SERVICE: i32 = -8;

pub(crate) fn devices() {
    let devices = cmid_verbs::devices().expect("there is an RDMA device");
    let device = devices.iter().find(|device| device.name == "rxe0").expect("rxe0");
    println!("             {device:?}");
    assert_eq!(device.ports, 1);
    assert_ne!(device.node_guid, 0);
    assert_eq!((device.max_responder_resources, device.max_initiator_depth), (128, 128));
    for _ in 0..20 {
        assert_eq!(cmid_verbs::devices().as_ref(), Ok(&devices));
    }
}

fn getaddrinfo(node: &str, service: &str, hints: Hints) -> Result<AddrInfo, AddrInfoError> {
    addr_info(Some(node), Some(service), &Hints { numeric_host: true, ..hints })
}

pub(crate) fn names() {
    let addr = SocketAddr::from(([10, 99, 0, 2], 7471));
    let active = getaddrinfo("10.99.0.2", "7471", Hints::default()).expect("an answer");
    assert_eq!((active.passive, active.src, active.dst), (false, None, Some(addr)));
    assert_eq!((active.port_space, active.service), (Some(PortSpace::Tcp), Some(Service::Connected)));
    assert!(active.route.is_empty() && active.connect.is_empty());
    assert_eq!(active.canonical_name, None);
    let src = Some(SocketAddr::from((CLIENT, 0)));
    assert_eq!(getaddrinfo("10.99.0.2", "7471", Hints { src, ..Hints::default() }).map(|info| info.src), Ok(src));

    let passive = getaddrinfo("10.99.0.2", "7471", Hints { passive: true, ..Hints::default() }).expect("an answer");
    assert_eq!((passive.passive, passive.src, passive.dst), (true, Some(addr), None));
    let any = addr_info(None, Some("7471"), &Hints { passive: true, family: Some(Family::Ipv4), ..Hints::default() });
    assert_eq!(any.map(|info| info.src), Ok(Some(SocketAddr::from(([0, 0, 0, 0], 7471)))));

    let kind = |info: AddrInfo| (info.port_space, info.service);
    let datagrams = (Some(PortSpace::Udp), Some(Service::Datagram));
    let udp = Hints { port_space: Some(PortSpace::Udp), ..Hints::default() };
    assert_eq!(getaddrinfo("10.99.0.2", "7471", udp).map(kind), Ok(datagrams));
    let by_service = Hints { service: Some(Service::Datagram), ..Hints::default() };
    assert_eq!(getaddrinfo("10.99.0.2", "7471", by_service).map(kind), Ok(datagrams));
    let v6 = getaddrinfo("fd99::2", "1", Hints::default()).expect("an answer");
    assert_eq!(v6.dst, Some("[fd99::2]:1".parse().expect("an address")));

    // Without a name and a service, the hints are returned.
    let given = Hints { src, dst: Some(addr), port_space: Some(PortSpace::Ib), ..Hints::default() };
    let back = addr_info(None, None, &given).expect("an answer");
    assert_eq!((back.src, back.dst, back.port_space), (src, Some(addr), Some(PortSpace::Ib)));

    let resolver = |result: Result<AddrInfo, AddrInfoError>| match result {
        Err(AddrInfoError::Resolver(code)) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(resolver(getaddrinfo("no.such.host", "1", Hints::default())), EAI_NONAME);
    assert_eq!(resolver(getaddrinfo("10.99.0.2", "no-such-service", Hints::default())), EAI_SERVICE);
    let nothing = addr_info(None, None, &Hints::default());
    assert_eq!(nothing, Err(AddrInfoError::System(Errno::EINVAL)));

    // Endpoints made from the results.
    let (mut client, mut server) = (Side::new(), Side::new());
    let listener = server.id_in(passive.port_space.expect("present"));
    server.ok(&Call::Bind { id: listener, addr: passive.src.expect("present") });
    server.ok(&Call::Listen { id: listener, backlog: 1 });
    let id = client.id_in(active.port_space.expect("present"));
    let (src, dst) = (active.src, active.dst.expect("present"));
    client.ok(&Call::ResolveAddr { id, src, dst, timeout_ms: 2_000 });
    client.expect(CmEvent::AddrResolved);
    client.ok(&Call::ResolveRoute { id, timeout_ms: 2_000 });
    client.expect(CmEvent::RouteResolved);
    client.ok_with(&Call::Connect { id, param: param() }, &active.connect);
    server.expect(CmEvent::ConnectRequest);
}
