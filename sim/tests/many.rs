//! Many connections in one world: ten hosts connect to a server, a thousand connections at a time each, and disconnect.
//!
//! `CMID_CONNECTIONS=1000000 cargo test --release -p cmid-sim --test many` makes a million. `cargo xtask step "what a world
//! costs"` checks that each costs the same, however many there are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Error, Event, PortSpace, Time};
use cmid_sim::{Config, Node, SimDevice, Turn, World, turn};

const PORT: u16 = 7471;
const HOSTS: u32 = 10;
const AT_ONCE: u32 = 1000;

/// The beginning of each side: a drive and a channel.
fn begin(node: &Node) -> (Drive<SimDevice>, ChannelKey) {
    let mut drive = node.drive();
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    (drive, channel)
}

/// Makes a turn, with a function that handles each event.
fn turn_with(
    drive: &mut Drive<SimDevice>,
    channel: ChannelKey,
    now: Time,
    mut handle: impl FnMut(&mut Drive<SimDevice>, Event) -> Result<(), Error>,
) -> Turn {
    turn(drive, now);
    while let Some(event) = drive.next_event(channel) {
        handle(drive, event).unwrap();
    }
    drive.next_action().into()
}

/// No QPs, but their numbers: a number is used again once its connection has left the time wait.
fn param(number: u32) -> ConnParam {
    ConnParam { qp_num: 1 + number % 0xff_fffe, ..ConnParam::default() }
}

/// Accepts all connections. Counts those that have ended.
fn server(node: &Node, ended: &Rc<Cell<u32>>) -> impl FnMut(Time) -> Turn + use<> {
    let ((mut drive, channel), ended, mut accepted) = (begin(node), Rc::clone(ended), 0);
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let backlog = (HOSTS * AT_ONCE) as i32;
    drive.bind(id, node.addr(PORT)).and_then(|()| drive.listen(id, backlog)).unwrap();
    move |now| {
        turn_with(&mut drive, channel, now, |drive, event| match event.cm() {
            Some(CmEvent::ConnectRequest) => {
                accepted += 1;
                drive.accept(event.id, param(accepted), &[], Time::NEVER)
            }
            Some(CmEvent::Disconnected) => {
                ended.set(ended.get() + 1);
                drive.disconnect(event.id, Time::NEVER)?;
                drive.destroy_now(event.id)
            }
            Some(CmEvent::Established) => Ok(()),
            _ => panic!("{event:?}"),
        })
    }
}

/// Makes so many connections.
fn client(node: &Node, to: SocketAddr, count: u32) -> impl FnMut(Time) -> Turn + use<> {
    let ((mut drive, channel), mut begun, mut routed, mut ended) = (begin(node), 0, 0, 0);
    move |now| {
        let next = turn_with(&mut drive, channel, now, |drive, event| match event.cm() {
            Some(CmEvent::AddrResolved) => drive.resolve_route(event.id, Time::NEVER),
            Some(CmEvent::RouteResolved) => {
                routed += 1;
                drive.connect(event.id, param(routed), &[], Time::NEVER)
            }
            Some(CmEvent::ConnectResponse) => {
                drive.establish(event.id)?;
                drive.disconnect(event.id, Time::NEVER)
            }
            Some(CmEvent::Disconnected) => {
                ended += 1;
                drive.destroy_now(event.id)
            }
            _ => panic!("{event:?}"),
        });
        if ended == count {
            return Turn::Done;
        }
        let had_begun = begun;
        while begun < count && begun - ended < AT_ONCE {
            begun += 1;
            let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
            drive.resolve_addr(id, None, to, Time::NEVER).unwrap();
        }
        if begun > had_begun { Turn::Again } else { next }
    }
}

#[test]
fn all_connections_are_made_and_end() {
    let count: u32 = std::env::var("CMID_CONNECTIONS").map_or(20_000, |count| count.parse().unwrap());
    let mut world = World::new(&Config { max_backlog: HOSTS * AT_ONCE, ..Config::default() });
    let ended = Rc::new(Cell::new(0));
    let of_server = Rc::clone(&ended);
    world.host("server", move |node| server(node, &of_server));
    for host in 0..HOSTS {
        let share = count / HOSTS + u32::from(host < count % HOSTS);
        world.client(&format!("client {host}"), move |node| client(node, node.addr_of("server", PORT), share));
    }
    world.run(Duration::from_secs(3600));
    world.run_for(Duration::from_secs(1));
    assert_eq!(ended.get(), count);
}
