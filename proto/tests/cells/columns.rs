//! The tables, stated a second time by column and from the rules of the kernel: an error in one of the two is found.

use cmid_proto::State::{
    Accepting, AddrResolved, AddrResolving, Bound, Closed, Closing, Connected, Connecting, Destroying, Disconnecting,
    Failed, Idle, Listening, PeerClosed, Removed, Requested, Responded, RouteResolved, RouteResolving, SidrReqReceived,
    SidrReqSent, SidrResolved, TimeWait,
};
use cmid_proto::table::{self, EventColumn, EventRule, RequestRule};
use cmid_proto::{RefuseReason, RequestKind, State};

/// Some states, and conditions that hold in them.
type In<T> = (&'static [State], T);
type Requests = [[RequestRule; RequestKind::COUNT]; State::COUNT];
type Events = [[EventRule; EventColumn::COUNT]; State::COUNT];
/// The next state; `None` if the state stays.
type Goes = Vec<In<Option<State>>>;

/// Before a connect, on the active side.
const EARLY: [State; 5] = [Bound, AddrResolving, AddrResolved, RouteResolving, RouteResolved];
/// From the end of a connection on.
const ENDING: [State; 5] = [Disconnecting, Closing, PeerClosed, TimeWait, Closed];
const LOOKUPS: [State; 3] = [SidrReqSent, SidrReqReceived, SidrResolved];

/// The states from which a request leads on; the states that refuse it, and why; the reason in all other states.
fn request(request_kind: RequestKind) -> (Goes, Vec<In<RefuseReason>>, RefuseReason) {
    use RefuseReason::{
        AlreadySent, Breaks, IsConnected, IsOver, NoDevice, NotConnected, NotForDatagrams, NumberSent, Stalls,
        WrongState,
    };
    /// The request or answer of this side is under way.
    const OPEN: &[State] = &[Connecting, Accepting];
    match request_kind {
        RequestKind::Bind => (vec![(&[Idle], Some(Bound))], vec![], WrongState),
        RequestKind::ResolveAddr => (vec![(&[Idle, Bound], Some(AddrResolving))], vec![], WrongState),
        RequestKind::ResolveRoute => {
            (vec![(&[AddrResolved], Some(RouteResolving))], vec![(&[Idle], NoDevice)], WrongState)
        }
        RequestKind::Listen => (vec![(&[Idle, Bound], Some(Listening))], vec![], WrongState),
        RequestKind::AttachQp => {
            let before_connecting = [(&EARLY[..], None), (&[Requested], None), (&LOOKUPS, None)];
            let sent = (&[Connecting, Responded, Accepting, Connected][..], NumberSent);
            (before_connecting.to_vec(), vec![(&[Idle], NoDevice), sent], WrongState)
        }
        RequestKind::DetachQp => (vec![(all_but(OPEN), None)], vec![], WrongState),
        // By the service: see below.
        RequestKind::Connect => (vec![], vec![(&[Idle], NoDevice)], WrongState),
        RequestKind::Accept => {
            let refused = vec![(&[Idle][..], NoDevice), (OPEN, Stalls), (&[Responded], Breaks)];
            (vec![(&[Requested], Some(Accepting)), (&[SidrReqReceived], Some(SidrResolved))], refused, WrongState)
        }
        RequestKind::Reject => {
            (vec![(&[Responded, Requested, SidrReqReceived], Some(Failed))], vec![(OPEN, Stalls)], WrongState)
        }
        RequestKind::Establish => {
            let refused = vec![(OPEN, Stalls), (&[Requested, SidrReqReceived][..], Breaks)];
            (vec![(&[Responded], Some(Connected))], refused, WrongState)
        }
        RequestKind::Disconnect => {
            let goes = vec![
                (&[Connected][..], Some(Disconnecting)),
                (&[PeerClosed], Some(TimeWait)),
                (&[Disconnecting, Closing, TimeWait, Closed, Failed], None),
            ];
            (goes, vec![], NotConnected)
        }
        RequestKind::Teardown => {
            let goes = vec![(&[Connected, Disconnecting, Closing, PeerClosed, TimeWait][..], Some(Closing))];
            (goes, vec![(&[Closed], IsOver)], NotConnected)
        }
        RequestKind::Notify => (vec![(&[Accepting], None)], vec![(&[Connected], IsConnected)], WrongState),
        RequestKind::GetRequest => (vec![(&[Listening], None)], vec![], WrongState),
        RequestKind::Join => (vec![(&[Bound, AddrResolved], None)], vec![], WrongState),
        RequestKind::Leave => (vec![(all_but(&[Removed, Destroying]), None)], vec![], WrongState),
        RequestKind::SetTos => (vec![(&[Idle], None), (&EARLY, None)], vec![], AlreadySent),
        RequestKind::ReuseAddr => (vec![(all_but(&[Listening, Removed, Destroying]), None)], vec![], WrongState),
        RequestKind::NoReuseAddr => (vec![(&[Idle], None)], vec![], WrongState),
        RequestKind::SetAfOnly => (vec![(&[Idle, Bound], None)], vec![], WrongState),
        RequestKind::SetAckTimeout => {
            let unmoved = vec![(&[Idle, Connecting, Responded, Requested][..], None), (&EARLY, None)];
            (unmoved, vec![(&LOOKUPS, NotForDatagrams)], AlreadySent)
        }
        RequestKind::SetEce => {
            let unsent = vec![(&[Idle, Requested][..], None), (&EARLY, None)];
            (unsent, vec![(&LOOKUPS, NotForDatagrams)], AlreadySent)
        }
        RequestKind::Migrate | RequestKind::Release => (vec![(all_but(&[Destroying]), None)], vec![], WrongState),
        RequestKind::Destroy => (vec![(all_but(&[Destroying]), Some(Destroying))], vec![], WrongState),
        RequestKind::DestroyNow => (vec![(all_but(&[]), Some(Destroying))], vec![], WrongState),
    }
}

fn all_but(states: &[State]) -> &'static [State] {
    Vec::leak(State::ALL.into_iter().filter(|state| !states.contains(state)).collect())
}

fn find<T: Copy>(ids: &[In<T>], state: State) -> Option<T> {
    let found: Vec<_> = ids.iter().filter(|(states, _)| states.contains(&state)).collect();
    assert!(found.len() < 2, "{state} stands twice");
    found.first().map(|(_, what)| *what)
}

/// The table of requests, built from its columns.
fn requests() -> Requests {
    let mut stated = table::REQUESTS;
    for request_kind in RequestKind::ALL {
        let (goes, refused, otherwise) = request(request_kind);
        for state in State::ALL {
            stated[state.index()][request_kind.index()] = match (find(&goes, state), find(&refused, state)) {
                (Some(next), None) => RequestRule::Go(next.unwrap_or(state)),
                (None, Some(reason)) => RequestRule::Refuse(reason),
                (None, None) if (state, request_kind) == (RouteResolved, RequestKind::Connect) => {
                    RequestRule::By { connected: Connecting, datagram: SidrReqSent }
                }
                (None, None) if state == Removed => RequestRule::Refuse(RefuseReason::DeviceGone),
                (None, None) if state == Destroying => RequestRule::Refuse(RefuseReason::WrongState),
                (None, None) => RequestRule::Refuse(otherwise),
                (Some(_), Some(_)) => panic!("{request_kind} while {state} goes and is refused"),
            };
        }
    }
    stated
}

/// The states from which an event leads on; the states in which it is late. In all other living states it is a fault.
fn event(column: EventColumn) -> (Goes, Vec<In<()>>) {
    /// This side has resolved no address, or not yet.
    const NEVER_RESOLVED: &[State] = &[Idle, Bound, AddrResolving, Requested, Accepting, SidrReqReceived, Listening];
    /// The answer to a request may still be under way.
    const ASKED_FOR: &[State] = &[Connecting, Accepting];
    const OVER: &[State] = &[Failed];
    let resolved = || all_but(&[NEVER_RESOLVED, &[AddrResolved, RouteResolving, Removed, Destroying]].concat());
    match column {
        EventColumn::AddrResolved => {
            let later = [(resolved(), ()), (&[AddrResolved, RouteResolving], ())];
            (vec![(&[AddrResolving], Some(AddrResolved))], later.to_vec())
        }
        EventColumn::AddrError => {
            let goes = vec![(&[AddrResolving][..], Some(Bound)), (&[SidrReqSent], Some(Failed))];
            let answered = all_but(&[NEVER_RESOLVED, &[SidrReqSent, Removed, Destroying]].concat());
            (goes, vec![(answered, ()), (&[Bound], ())])
        }
        EventColumn::RouteResolved => (vec![(&[RouteResolving], Some(RouteResolved))], vec![(resolved(), ())]),
        EventColumn::RouteError => {
            (vec![(&[RouteResolving], Some(AddrResolved))], vec![(resolved(), ()), (&[AddrResolved], ())])
        }
        // It may precede a late failure of the listen.
        EventColumn::ConnectRequest => (vec![(&[Listening], None)], vec![(&[Idle, Bound, Failed], ())]),
        EventColumn::ConnectResponse => {
            (vec![(&[Connecting], Some(Responded))], vec![(&[Responded, Connected], ()), (&ENDING, ()), (OVER, ())])
        }
        EventColumn::ConnectError => {
            let goes = vec![(ASKED_FOR, Some(Failed)), (&[Responded, Connected][..], Some(Failed))];
            (goes, vec![(&[Requested], ()), (&ENDING, ()), (OVER, ())])
        }
        // Without an open request it reports a changed link address.
        EventColumn::Unreachable => {
            let stays = vec![
                (&[AddrResolved, RouteResolving, RouteResolved, Responded, Connected, SidrResolved, Failed][..], None),
                (&ENDING, None),
                (ASKED_FOR, Some(Failed)),
                (&[SidrReqSent], Some(Failed)),
            ];
            (stays, vec![(&[Requested, SidrReqReceived], ())])
        }
        EventColumn::Rejected => {
            let goes = vec![
                (ASKED_FOR, Some(Failed)),
                (&[Responded, Connected, Disconnecting][..], Some(Failed)),
                (&[Closing], None),
            ];
            (goes, vec![(&[Requested, PeerClosed, TimeWait, Closed], ()), (OVER, ())])
        }
        EventColumn::Established => {
            let goes = vec![(ASKED_FOR, Some(Connected)), (&[SidrReqSent][..], Some(SidrResolved))];
            let late = vec![
                (&[Responded, Requested, Connected, SidrReqReceived, SidrResolved][..], ()),
                (&ENDING, ()),
                (OVER, ()),
            ];
            (goes, late)
        }
        EventColumn::Disconnected => {
            let goes = vec![
                (ASKED_FOR, Some(PeerClosed)),
                (&[Responded, Connected][..], Some(PeerClosed)),
                (&[Disconnecting], Some(TimeWait)),
                (&[Closing], None),
            ];
            (goes, vec![(&[Requested, PeerClosed, TimeWait, Closed], ()), (OVER, ())])
        }
        EventColumn::DeviceRemoval => (vec![(all_but(&[Removed, Destroying]), Some(Removed))], vec![]),
        EventColumn::MulticastJoin | EventColumn::MulticastError => {
            (vec![(&EARLY, None), (&[SidrReqSent, SidrResolved, Failed, Listening], None)], vec![])
        }
        EventColumn::AddrChange | EventColumn::Other => (vec![(all_but(&[Removed, Destroying]), None)], vec![]),
        EventColumn::TimewaitExit => {
            let goes = vec![(&[Disconnecting, Closing, PeerClosed, TimeWait][..], Some(Closed))];
            (goes, vec![(&[Connecting, Responded, Requested, Accepting, Connected, Closed], ()), (OVER, ())])
        }
        EventColumn::Deadline => {
            let goes = vec![
                (&[AddrResolving, RouteResolving, Connecting, Accepting, SidrReqSent, Destroying][..], Some(Failed)),
                (&[Disconnecting], Some(TimeWait)),
                (&[Closing], Some(Closed)),
            ];
            let waiting = [AddrResolving, RouteResolving, Connecting, Accepting, SidrReqSent, Disconnecting, Closing];
            (goes, vec![(all_but(&[&waiting[..], &[Removed, Destroying]].concat()), ())])
        }
    }
}

/// The table of events, built from its columns.
fn events() -> Events {
    let mut stated = table::EVENTS;
    for column in EventColumn::ALL {
        let (goes, late) = event(column);
        for state in State::ALL {
            stated[state.index()][column.index()] = match (find(&goes, state), find(&late, state)) {
                (Some(next), None) => EventRule::Go(next.unwrap_or(state)),
                (None, Some(())) => EventRule::Late,
                // Ids in these states deliver no further event.
                (None, None) if matches!(state, Removed | Destroying) => EventRule::Late,
                (None, None) => EventRule::Fault,
                (Some(_), Some(())) => panic!("{column} while {state} goes and is late"),
            };
        }
    }
    stated
}

/// The cells in which a table differs from its columns.
fn differences<C: PartialEq, F: Copy, const WIDTH: usize, const HEIGHT: usize>(
    table: &[[C; WIDTH]; HEIGHT],
    stated: &[[C; WIDTH]; HEIGHT],
    columns: [F; WIDTH],
) -> Vec<(State, F)> {
    let rows = State::ALL.into_iter().zip(table.iter().zip(stated)).filter(|(_, (row, stated))| row != stated);
    let cells = rows.flat_map(|(state, (row, stated))| {
        row.iter().zip(stated).zip(columns).map(move |((cell, stated), column)| ((state, column), cell != stated))
    });
    cells.filter(|(_, differs)| *differs).map(|(id_in_state, _)| id_in_state).collect()
}

#[test]
fn the_table_of_requests_is_what_its_columns_say() {
    assert_eq!(differences(&table::REQUESTS, &requests(), RequestKind::ALL), []);
}

#[test]
fn the_table_of_events_is_what_its_columns_say() {
    assert_eq!(differences(&table::EVENTS, &events(), EventColumn::ALL), []);
}
