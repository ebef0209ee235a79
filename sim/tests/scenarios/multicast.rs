//! Multicast groups.

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_proto::{ChannelKey, CmEvent, CmOption, Errno, GroupKey, IdKey, PortSpace};
use cmid_sim::{Access, Fabric, GRH_LEN, To, WcStatus};

use crate::common::{EINVAL, Env, Equipment, SECOND, Seen, Side, completions, ip, only};

const GROUP: &str = "239.1.2.3:0";
const OTHER: &str = "239.1.2.4:0";

impl Seen {
    #[track_caller]
    fn of_group(self, id: IdKey, kind: CmEvent, status: i32, group: GroupKey) -> Seen {
        let seen = self.is(id, kind, status).carries(0, &[]);
        assert_eq!(seen.group, Some(group));
        seen
    }
}

fn member(env: &mut Env) -> IdKey {
    let id = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.bind(id, "10.0.0.1:0").unwrap();
    id
}

#[test]
fn there_is_no_group_without_an_interface() {
    let mut env = Env::new();
    let id = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.resolve_addr(id, None, "127.0.0.1:7", 2000).unwrap();
    env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
    assert_eq!(env.client.join(id, GROUP, false), Err(Errno::ENODEV));
}

/// An id whose bind has failed at its port, which leaves it the interface.
fn on_the_interface_of(env: &mut Env, addr: &str) -> IdKey {
    let [taken, id] = [(); 2].map(|()| env.client.id_in(PortSpace::Udp, env.cc));
    env.client.bind(taken, addr).unwrap();
    assert_eq!(env.client.bind(id, addr), Err(Errno::EADDRINUSE));
    id
}

/// The interface is that of a bind that has failed at its port, the source the loopback address (`cma_make_mc_event`).
#[test]
fn from_the_loopback_address_no_group_is_joined() {
    let mut env = Env::new();
    let id = on_the_interface_of(&mut env, "10.0.0.1:9");
    env.client.resolve_addr(id, None, "127.0.0.1:7", 2000).unwrap();
    env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
    let group = env.client.join(id, GROUP, false).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastError, 0, group);
}

/// A mapped source has the GID of its IPv4 address.
#[test]
fn a_mapped_source_has_its_place_among_the_gids() {
    let mut env = Env::new();
    let id = on_the_interface_of(&mut env, "10.0.0.2:9");
    env.client.bind(id, "[::ffff:10.0.0.2]:0").unwrap();
    let group = env.client.join(id, GROUP, false).unwrap();
    let datagram = env.client.next(env.cc).of_group(id, CmEvent::MulticastJoin, 0, group).datagram.unwrap();
    assert_eq!(datagram.path.grh.unwrap().sgid_index, 1);
}

#[test]
fn behaviour_75_leaving_drops_what_was_not_read_and_cancels_what_was_not_done() {
    let mut env = Env::new();
    let id = member(&mut env);
    let unread = env.client.join(id, GROUP, false).unwrap();
    let kept = env.client.join(id, OTHER, false).unwrap();
    env.fabric.advance_by(SECOND);
    env.client.leave(id, unread, GROUP).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastJoin, 0, kept);
    let early = env.client.join(id, GROUP, false).unwrap();
    env.client.leave(id, early, GROUP).unwrap();
    env.client.quiet(env.cc, SECOND);
    // The destruction of the id ends all its memberships.
    env.client.join(id, GROUP, false).unwrap();
    env.client.destroy(id).unwrap();
    env.client.quiet(env.cc, SECOND);
    assert_eq!(env.fabric.next_due(), None);
}

#[test]
fn behaviour_75_addresses_and_states() {
    let mut env = Env::new();
    let id = member(&mut env);
    let mut join = |id, addr| env.client.join(id, addr, false).map(drop);
    assert_eq!(join(id, "0.0.0.0:0"), EINVAL);
    assert_eq!(join(id, "[ff0e::1]:0"), Err(Errno::ENOTSUPP));
    let idle = env.client.id_in(PortSpace::Udp, env.cc);
    assert_eq!(env.client.join(idle, GROUP, false).map(drop), EINVAL);
    env.client.bind(idle, "0.0.0.0:0").unwrap();
    assert_eq!(env.client.join(idle, GROUP, false).map(drop), EINVAL);
    let connected = env.client.bound(env.cc, "10.0.0.1:0");
    assert_eq!(env.client.join(connected, GROUP, false).map(drop), EINVAL);
    // An id may have resolved the group itself. After the route is resolved a join is too late.
    let id = env.client.id_in(PortSpace::Udp, env.cc);
    env.client.resolve_addr(id, Some("10.0.0.1:0"), GROUP, 100).unwrap();
    env.client.next(env.cc).is(id, CmEvent::AddrResolved, 0);
    assert_eq!(env.client.local(id).ip(), ip("10.0.0.1"));
    let group = env.client.join(id, GROUP, false).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastJoin, 0, group);
    env.client.routed(id, env.cc);
    assert_eq!(env.client.join(id, OTHER, false).map(drop), EINVAL);
    assert_eq!(env.client.leave(id, group, OTHER), Err(Errno::EADDRNOTAVAIL));
    env.client.leave(id, group, GROUP).unwrap();
    assert_eq!(env.client.leave(id, group, GROUP), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn a_failing_join_and_a_lost_group() {
    let mut env = Env::new();
    let id = member(&mut env);
    env.host.fail_next_join(-110);
    let group = env.client.join(id, GROUP, false).unwrap();
    let seen = env.client.next(env.cc).of_group(id, CmEvent::MulticastError, -110, group);
    assert_eq!(seen.datagram, None);
    env.client.leave(id, group, GROUP).unwrap();
    // The fault struck only that join.
    let group = env.client.join(id, GROUP, false).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastJoin, 0, group);
    env.host.lose_group(ip("239.1.2.4"));
    env.client.quiet(env.cc, SECOND);
    env.host.lose_group(ip("239.1.2.3"));
    env.client.next(env.cc).of_group(id, CmEvent::MulticastError, -102, group);
    env.client.leave(id, group, GROUP).unwrap();
}

#[test]
fn what_is_no_group_cannot_be_attached_to() {
    let mut env = Env::new();
    let id = member(&mut env);
    let _qp = env.client.qp(id);
    let group = env.client.join(id, "10.1.2.3:0", false).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastError, -22, group);
    env.client.leave(id, group, "10.1.2.3:0").unwrap();
    let group = env.client.join(id, "10.1.2.3:0", true).unwrap();
    env.client.next(env.cc).of_group(id, CmEvent::MulticastJoin, 0, group);
}

/// A process on its own host, with a datagram QP.
struct Peer {
    side: Side,
    on: ChannelKey,
    id: IdKey,
    tools: Equipment,
    mr: cmid_sim::Mr,
}

impl Peer {
    fn new(fabric: &Fabric, address: &str) -> Peer {
        let mut side = Side::new(&fabric.host(&[ip(address)]));
        let on = side.channel();
        let id = side.id_in(PortSpace::Udp, on);
        side.bind(id, &format!("{address}:0")).unwrap();
        let tools = side.qp(id);
        let mr = tools.pd.register(vec![7; 200], Access::LOCAL_WRITE).unwrap();
        Peer { side, on, id, tools, mr }
    }

    fn listens(&mut self) {
        self.tools.qp.post_recv(1, self.mr.sge(0..100)).unwrap();
    }

    fn record(&mut self) -> usize {
        let all = completions(&mut self.tools.recv_cq);
        assert!(all.iter().all(|done| done.status == WcStatus::SUCCESS));
        all.len()
    }
}

#[test]
fn a_datagram_to_a_group_reaches_its_members() {
    let fabric = Fabric::new(cmid_sim::Config::default());
    let mut stations = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"].map(|address| Peer::new(&fabric, address));
    let mut joins = stations.each_mut().map(|station| {
        let group = station.side.join(station.id, GROUP, false).unwrap();
        station.listens();
        group
    });
    // The last member only sends.
    let [_, _, _, sender] = &mut stations;
    sender.side.leave(sender.id, joins[3], GROUP).unwrap();
    joins[3] = sender.side.join(sender.id, GROUP, true).unwrap();
    let to = sender.side.next(sender.on).datagram.unwrap();
    let ah = sender.tools.pd.create_ah(&to.path).unwrap();
    let send = |station: &mut Peer| {
        let to = To { ah: &ah, qp_num: to.qp_num, qkey: to.qkey };
        station.tools.qp.post_send(SendWr::send_to(2, station.mr.sge(100..110), to)).unwrap();
        fabric.advance_by(SECOND);
        only(&mut station.tools.send_cq);
    };
    // No QP is attached before the event is read.
    send(sender);
    assert_eq!(stations.each_mut().map(Peer::record), [0, 0, 0, 0]);
    let [first, second, third, sender] = &mut stations;
    first.side.next(first.on);
    second.side.next(second.on);
    third.side.next(third.on);
    send(sender);
    let mut payload = [0; 12];
    first.mr.read(GRH_LEN - 1, &mut payload).unwrap();
    assert_eq!(payload[1..11], [7; 10]);
    assert_eq!(stations.each_mut().map(Peer::record), [1, 1, 1, 0]);
    // One member has left, and one has no receive posted.
    let [first, second, _, sender] = &mut stations;
    first.listens();
    second.listens();
    second.side.leave(second.id, joins[1], GROUP).unwrap();
    send(sender);
    assert_eq!(stations.each_mut().map(Peer::record), [1, 0, 0, 0]);
}

#[test]
fn a_qp_is_attached_once_and_taken_off_once() {
    let fabric = Fabric::new(cmid_sim::Config::default());
    let mut station = Peer::new(&fabric, "10.0.0.1");
    let [first, second, unread] = [0; 3].map(|_| station.side.join(station.id, GROUP, false).unwrap());
    let to = station.side.next(station.on).datagram.unwrap();
    station.side.next(station.on);
    let ah = station.tools.pd.create_ah(&to.path).unwrap();
    let speak = |station: &mut Peer| {
        station.listens();
        let to = To { ah: &ah, qp_num: to.qp_num, qkey: to.qkey };
        station.tools.qp.post_send(SendWr::send_to(2, station.mr.sge(100..110), to)).unwrap();
        fabric.advance_by(SECOND);
        station.record()
    };
    // The library does not know the group of a membership with an unread event.
    station.side.leave(station.id, unread, GROUP).unwrap();
    assert_eq!(speak(&mut station), 1);
    station.side.leave(station.id, second, GROUP).unwrap();
    assert_eq!(speak(&mut station), 0);
    station.side.leave(station.id, first, GROUP).unwrap();
}

#[test]
fn a_member_hears_itself() {
    // As with rxe: the packet returns from the host's own IP stack, without a check of its sender.
    let fabric = Fabric::new(cmid_sim::Config::default());
    let mut station = Peer::new(&fabric, "10.0.0.1");
    station.side.join(station.id, GROUP, false).unwrap();
    let to = station.side.next(station.on).datagram.unwrap();
    station.listens();
    let ah = station.tools.pd.create_ah(&to.path).unwrap();
    let to = To { ah: &ah, qp_num: to.qp_num, qkey: to.qkey };
    station.tools.qp.post_send(SendWr::send_to(2, station.mr.sge(100..110), to)).unwrap();
    fabric.advance_by(SECOND);
    let done = only(&mut station.tools.recv_cq);
    assert_eq!((done.byte_len as usize, done.src_qp), (GRH_LEN + 10, station.tools.qp.num()));
    // A group is no address to answer from.
    assert_eq!(
        station.tools.pd.create_ah_from(&done, &station.mr, 0).map(drop).map_err(|error| error.errno()),
        Err(Errno::EINVAL)
    );
    assert_eq!(station.side.set(station.id, CmOption::AckTimeout(14)), EINVAL);
}
