//! Link addresses that change under ids.

use cmid_proto::{CmEvent, ConnParam, Errno, IdKey};
use cmid_sim::{Config, Fabric};

use crate::common::{SECOND, Seen, Side, ip};

/// The ids that got an event of this kind and status, in order.
fn told(mut side: impl FnMut() -> Option<Seen>, kind: CmEvent, status: i32) -> Vec<IdKey> {
    let mut told = Vec::new();
    while let Some(seen) = side() {
        assert_eq!((seen.kind, seen.status, seen.private_data.len()), (kind, status, 0));
        told.push(seen.id);
    }
    told
}

#[test]
fn the_peers_of_a_bond_see_another_neighbour() {
    let fabric = Fabric::new(Config::default());
    let near = fabric.host(&[ip("10.0.0.1")]);
    let far = fabric.host(&[ip("10.0.0.2")]);
    let (mut client, mut server) = (Side::new(&near), Side::new(&far));
    let (cc, cs) = (client.channel(), server.channel());
    let listener = server.listener(cs, "10.0.0.2:7");
    let c = client.resolved(cc, "10.0.0.2:7");
    let here = client.listener(cc, "10.0.0.1:7");
    client.connect(c, ConnParam { qp_num: 5, ..Default::default() }, &[]).unwrap();
    let s = server.requested(cs, listener);
    far.fail_over();
    // A connection that is not accepted gets no event.
    assert_eq!(told(|| server.fetch(cs), CmEvent::AddrChange, 0), [listener]);
    assert_eq!(told(|| client.fetch(cc), CmEvent::Unreachable, -110), [c]);
    server.accept(s, ConnParam { qp_num: 6, ..Default::default() }, &[]).unwrap();
    client.next(cc).is(c, CmEvent::ConnectResponse, 0);
    client.establish(c).unwrap();
    server.next(cs).is(s, CmEvent::Established, 0);
    // On the way back both sides know the link address, but ids that have come in between know the other one.
    let late = client.resolved(cc, "10.0.0.2:7");
    let between = server.bound(cs, "10.0.0.2:8");
    far.fail_over();
    assert_eq!(told(|| server.fetch(cs), CmEvent::AddrChange, 0), [between]);
    assert_eq!(told(|| client.fetch(cc), CmEvent::Unreachable, -110), [late]);
    far.fail_over();
    assert_eq!(told(|| server.fetch(cs), CmEvent::AddrChange, 0), [listener, s]);
    assert_eq!(told(|| client.fetch(cc), CmEvent::Unreachable, -110), [c]);
    // The passive side does not watch its neighbour.
    near.fail_over();
    assert_eq!(told(|| client.fetch(cc), CmEvent::AddrChange, 0), [c, here, late]);
    server.quiet(cs, SECOND);
}

/// The watched neighbours are in the order of the routes (`cma_add_id_to_tree`).
#[test]
fn neighbours_are_told_in_the_order_of_their_routes() {
    let fabric = Fabric::new(Config::default());
    let far = fabric.host(&[ip("10.0.0.2")]);
    let mut client = Side::new(&fabric.host(&[ip("10.0.0.1")]));
    let on = client.channel();
    let [first, second] = [0; 2].map(|_| {
        let id = client.looks_up(on, "10.0.0.2:7");
        client.next(on).is(id, CmEvent::AddrResolved, 0);
        id
    });
    for id in [second, first] {
        client.routed(id, on);
    }
    for _ in 0..2 {
        far.change_link_addr();
        assert_eq!(told(|| client.fetch(on), CmEvent::Unreachable, -110), [second, first]);
    }
}

/// A loopback destination has a device, and an interface only from an earlier attempt (`cma_netdev_change`).
#[test]
fn without_an_interface_no_failover_is_seen() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&[ip("10.0.0.1")]);
    let mut side = Side::new(&host);
    let on = side.channel();
    let taken = side.bound(on, "10.0.0.1:9");
    let confined = side.id(on);
    assert_eq!(side.bind(confined, "10.0.0.1:9"), Err(Errno::EADDRINUSE));
    side.resolve_addr(confined, None, "127.0.0.1:7", 2000).unwrap();
    side.next(on).is(confined, CmEvent::AddrResolved, 0);
    for dst in ["127.0.0.1:7", "0.0.0.0:7"] {
        let id = side.looks_up(on, dst);
        side.next(on).is(id, CmEvent::AddrResolved, 0);
    }
    host.fail_over();
    assert_eq!(told(|| side.fetch(on), CmEvent::AddrChange, 0), [taken, confined]);
}
