//! What a session connects with.

use std::time::Duration;

use cmid_proto::handshake::{Incoming, Options, Session};
use cmid_proto::{Acks, ConnParam, Drive, Limits, Transport};
use cmid_sim::{Config, Fabric};

use crate::world::{SOON, World, advance, within};

#[test]
fn the_peer_gets_the_parameters_and_the_private_data() {
    let mut world = World::unconnected(Transport::InfiniBand);
    let [client, _] = &mut world.sides;
    let param = ConnParam { initiator_depth: 3, ..ConnParam::default() };
    let options = Options { param, private_data: b"hello", ..within(SOON) };
    let address = "10.0.0.2:7471".parse().unwrap();
    client.session = Some(Session::connect_on(&mut client.drive, client.id, address, &options).unwrap());
    let request = loop {
        let World { fabric, sides: [client, server] } = &mut world;
        client.turn(fabric, SOON).unwrap();
        server.read(fabric);
        match server.drive.next_event(server.channel) {
            Some(event) => break Incoming::new(&mut server.drive, event).unwrap(),
            None => advance(fabric, &[client, server]),
        }
    };
    assert_eq!(request.private_data().get(..5), Some(&b"hello"[..]));
    // What one side begins, the other one answers.
    assert_eq!(request.param().responder_resources, 3);
}

#[test]
fn a_session_connects_from_the_source_of_its_options() {
    let fabric = Fabric::new(Config::default());
    let host = fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.3".parse().unwrap()]);
    let _peer = fabric.host(&["10.0.0.2".parse().unwrap()]);
    let mut drive = Drive::new(host.device(), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    for source in ["10.0.0.3:1234", "10.0.0.1:1235"].map(|source| source.parse().unwrap()) {
        let options = Options { source: Some(source), ..within(SOON) };
        let peer = "10.0.0.2:7471".parse().unwrap();
        let mut session = Session::<()>::connect(&mut drive, Some(channel), peer, &options).unwrap();
        // The address is known once the peer's is resolved.
        fabric.advance_to(fabric.now().after(Duration::from_millis(1)));
        drive.set_now(fabric.now());
        drive.readable_all();
        assert!(drive.next_event(channel).is_some_and(|event| event.id == session.id()));
        assert_eq!(drive.local_addr(session.id()), Ok(source));
        session.cancel(&mut drive).unwrap();
    }
}
