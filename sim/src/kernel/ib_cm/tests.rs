//! Tests every pair of protocol state and message, and of protocol state and call.

use std::net::SocketAddr;

use IbState::*;
use cmid_proto::{CmEvent, Ece, PortSpace};

use super::*;
use crate::fabric::config::{Config, Flavour};
use crate::index::{CommId, FileNo, HostNo, IdNo};
use crate::kernel::conn::Conn;
use crate::kernel::host::HostState;
use crate::kernel::id::Id;
use crate::kernel::wire::SidrAnswer;

const ALL: [IbState; 13] = [
    Idle,
    ReqSent,
    MraReqRcvd,
    MraReqSent,
    RepSent,
    MraRepRcvd,
    MraRepSent,
    Established,
    DreqSent,
    DreqRcvd,
    Timewait,
    SidrReqSent,
    SidrReqRcvd,
];

const HERE: HostNo = HostNo(0);
const PEER: HostNo = HostNo(1);
const MINE: CommId = CommId(1);
const THEIRS: CommId = CommId(2);

/// A world with one accepted id and a connection in `state`.
fn world(state: IbState) -> (World, FileNo, IdNo) {
    let mut world = World::new(Config::default());
    let (one, two) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    world.hosts.extend([HostState::new(&[one]), HostState::new(&[two])]);
    let file = world.open_file().unwrap();
    let mut id = Id::new(HERE, file, PortSpace::Tcp);
    id.state = match state {
        Timewait => CmState::Disconnect,
        Idle | ReqSent | MraReqRcvd | MraReqSent | RepSent | MraRepRcvd | MraRepSent | Established | DreqSent
        | DreqRcvd | SidrReqSent | SidrReqRcvd => CmState::Connect,
    };
    let mut conn = Conn::new(state, one, two, MINE, Flavour::Linux6_12.life_time().timeout());
    conn.local_qp_num = 7;
    if !matches!(state, ReqSent | MraReqRcvd | SidrReqSent) {
        conn.remote_comm = Some(THEIRS);
    }
    id.conn = Some(conn);
    (id.src, id.dst) = (Some(SocketAddr::new(one, 7)), Some(SocketAddr::new(two, 8)));
    let no = world.add_id(id);
    world.comms.insert(MINE, no);
    (world, file, no)
}

/// The states before, the state after, and the reported event.
type Row<'a> = (&'a [IbState], IbState, Option<(CmEvent, i32)>);

/// Checks the effect of a message in each state: the new state and the event. In states without a row there is none.
fn table(input: impl Fn(&mut World, IdNo), accepted: &[Row<'_>]) {
    for state in ALL {
        let (mut world, file, no) = world(state);
        input(&mut world, no);
        let seen = world.files.get_mut(&file).and_then(|file| file.pop());
        let row = accepted.iter().find(|(from, ..)| from.contains(&state));
        let expected = row.map_or((state, None), |&(_, to, event)| (to, event));
        assert_eq!(
            (world.ib_state(no), seen.map(|event| (event.kind, event.status))),
            (Some(expected.0), expected.1),
            "from {state:?}"
        );
    }
}

fn arrives(body: Body) -> impl Fn(&mut World, IdNo) {
    let (from_ip, to_ip) = ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    move |world, _| {
        let head = Head { from: PEER, from_ip, to_ip, from_comm: THEIRS, to_comm: Some(MINE) };
        world.receive(HERE, Message { head, body: body.clone() });
    }
}

#[test]
fn mra_counts_once() {
    table(arrives(Body::Mra), &[(&[ReqSent], MraReqRcvd, None), (&[RepSent], MraRepRcvd, None)]);
}

#[test]
fn rep_is_for_who_asked() {
    let param = ConnParam { qp_num: 9, ..ConnParam::default() };
    let rep = Rep { param, ece: Ece::default(), private_data: vec![0; 196] };
    let answered = Some((CmEvent::ConnectResponse, 0));
    table(arrives(Body::Rep(Box::new(rep))), &[(&[ReqSent, MraReqRcvd], MraRepSent, answered)]);
}

#[test]
fn rtu_is_for_who_answered() {
    table(arrives(Body::Rtu), &[(&[RepSent, MraRepRcvd], Established, Some((CmEvent::Established, 0)))]);
}

#[test]
fn rej_ends_what_is_not_ended() {
    let rej_of = |of_req, reason| arrives(Body::Rej { of_req, reason, private_data: vec![0; REJ_DATA] });
    let early = [RepSent, MraRepRcvd, MraReqSent];
    let late = [MraRepSent, DreqSent, Established];
    let asked = [ReqSent, MraReqRcvd];
    let reported = |reason| Some((CmEvent::Rejected, reason));
    table(rej_of(false, 28), &[(&early, Idle, reported(28)), (&late, Timewait, reported(28))]);
    table(rej_of(false, 10), &[(&early, Timewait, reported(10)), (&late, Timewait, reported(10))]);
    // Who has seen no REP has no id for anything but its REQ, and only such an id has one for that.
    table(rej_of(true, 28), &[(&asked, Idle, reported(28))]);
    table(rej_of(true, 10), &[(&asked, Timewait, reported(10))]);
}

#[test]
fn dreq_and_drep() {
    let reported = Some((CmEvent::Disconnected, 0));
    let open = [RepSent, MraRepRcvd, Established, DreqSent];
    table(arrives(Body::Dreq { qp_num: 7 }), &[(&open, DreqRcvd, reported)]);
    table(arrives(Body::Dreq { qp_num: 8 }), &[]);
    table(arrives(Body::Drep), &[(&[DreqSent, DreqRcvd], Timewait, reported)]);
}

#[test]
fn giving_up() {
    let unreachable = Some((CmEvent::Unreachable, TIMED_OUT));
    let waiting = [ReqSent, MraReqRcvd, RepSent, MraRepRcvd];
    let gave_up = |world: &mut World, no| world.gave_up(no);
    let disconnected = Some((CmEvent::Disconnected, TIMED_OUT));
    let rows: [Row<'_>; 3] =
        [(&waiting, Idle, unreachable), (&[SidrReqSent], Idle, unreachable), (&[DreqSent], Timewait, disconnected)];
    table(gave_up, &rows);
}

#[test]
fn a_lookup_is_answered_once() {
    let found = Body::SidrRep { answer: SidrAnswer::Found { qp_num: 9, qkey: 1 }, private_data: Vec::new() };
    table(arrives(found), &[(&[SidrReqSent], Idle, Some((CmEvent::Established, 0)))]);
    let refused = Body::SidrRep { answer: SidrAnswer::Refused(2), private_data: Vec::new() };
    table(arrives(refused), &[(&[SidrReqSent], Idle, Some((CmEvent::Unreachable, 2)))]);
    let answers = |world: &mut World, no| {
        let _ = world.send_sidr_rep(no, SidrAnswer::Refused(2), &[]);
    };
    table(answers, &[(&[SidrReqRcvd], Idle, None)]);
}

#[test]
fn data_stands_for_the_confirmation() {
    let notifies = |world: &mut World, no| {
        let _ = world.notify(no);
    };
    table(notifies, &[(&[RepSent, MraRepRcvd], Established, Some((CmEvent::Established, 0)))]);
    let (mut world, _, no) = world(Established);
    assert_eq!(world.notify(no), Err(Errno::EISCONN));
}

#[test]
fn time_wait_ends() {
    let over = |world: &mut World, no| world.time_wait_over(no);
    table(over, &[(&[Timewait], Idle, Some((CmEvent::TimewaitExit, 0)))]);
}

#[test]
fn what_the_application_may_do_in_each_state() {
    let rejects = |world: &mut World, no| {
        let _ = world.send_rej(no, 28, &[]);
    };
    let unanswered = [ReqSent, MraReqRcvd, MraReqSent, MraRepSent];
    table(rejects, &[(&unanswered, Idle, None), (&[RepSent, MraRepRcvd], Timewait, None)]);
    let disconnects = |world: &mut World, no| {
        if !world.send_dreq(no) {
            world.send_drep(no);
        }
    };
    table(disconnects, &[(&[Established], DreqSent, None), (&[DreqRcvd], Timewait, None)]);
}

#[test]
fn events_wait_for_acceptance() {
    let (mut world, file, no) = world(RepSent);
    world.ids.get_mut(&no).unwrap().uid = false;
    arrives(Body::Rtu)(&mut world, no);
    assert_eq!(world.ib_state(no), Some(Established));
    assert!(world.files.get_mut(&file).unwrap().pop().is_none());
    assert_eq!(world.counters.unaccepted, 1);
}

#[test]
fn a_strangers_disconnect_is_answered() {
    let (mut world, _, _) = world(Idle);
    world.comms.clear();
    arrives(Body::Dreq { qp_num: 7 })(&mut world, IdNo(0));
    assert_eq!(world.counters.sent, 1);
}

#[test]
fn a_message_of_another_connection_is_nobodys() {
    let (mut world, _, no) = world(RepSent);
    let (from_ip, to_ip) = ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    let head = Head { from: PEER, from_ip, to_ip, from_comm: CommId(3), to_comm: Some(MINE) };
    world.receive(HERE, Message { head, body: Body::Rtu });
    assert_eq!(world.ib_state(no), Some(RepSent));
}
