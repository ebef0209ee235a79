//! The tables once more, by column and from the rules of the kernel: a cell that is wrong in one of the two is noticed.

use cmid_proto::State::{
    Accepting, AddrResolved, AddrResolving, Answered, Asked, Asking, Bound, Closed, Closing, Connected, Connecting,
    Destroying, Disconnecting, Failed, Idle, Listening, PeerClosed, Removed, Requested, Responded, RouteResolved,
    RouteResolving, TimeWait,
};
use cmid_proto::table::{self, Ask, Fact, Tell};
use cmid_proto::{State, Verb, Why};

use crate::kinds::{asks, tells};

/// Some states, and what is so in them.
type In<T> = (&'static [State], T);
type Requests = [[Ask; Verb::COUNT]; State::COUNT];
type Events = [[Tell; Fact::COUNT]; State::COUNT];
/// Where it goes: to a state, or stays (`None`).
type Goes = Vec<In<Option<State>>>;

/// Before a connection is asked for, on the active side.
const EARLY: [State; 5] = [Bound, AddrResolving, AddrResolved, RouteResolving, RouteResolved];
/// From its end on.
const ENDING: [State; 5] = [Disconnecting, Closing, PeerClosed, TimeWait, Closed];
const LOOKUPS: [State; 3] = [Asking, Asked, Answered];

/// Where a request goes; where it is refused, and why; why it is refused everywhere else.
fn request(verb: Verb) -> (Goes, Vec<In<Why>>, Why) {
    use Why::{
        AlreadySent, Breaks, IsConnected, IsOver, NoDevice, NotConnected, NotForDatagrams, NumberSent, Stalls,
        WrongState,
    };
    /// One's own request or answer is under way.
    const OPEN: &[State] = &[Connecting, Accepting];
    match verb {
        Verb::Bind => (vec![(&[Idle], Some(Bound))], vec![], WrongState),
        Verb::ResolveAddr => (vec![(&[Idle, Bound], Some(AddrResolving))], vec![], WrongState),
        Verb::ResolveRoute => (vec![(&[AddrResolved], Some(RouteResolving))], vec![(&[Idle], NoDevice)], WrongState),
        Verb::Listen => (vec![(&[Idle, Bound], Some(Listening))], vec![], WrongState),
        Verb::AttachQp => {
            let before_connecting = [(&EARLY[..], None), (&[Requested], None), (&LOOKUPS, None)];
            let sent = (&[Connecting, Responded, Accepting, Connected][..], NumberSent);
            (before_connecting.to_vec(), vec![(&[Idle], NoDevice), sent], WrongState)
        }
        Verb::DetachQp => (vec![(all_but(OPEN), None)], vec![], WrongState),
        // By the service: see below.
        Verb::Connect => (vec![], vec![(&[Idle], NoDevice)], WrongState),
        Verb::Accept => {
            let refused = vec![(&[Idle][..], NoDevice), (OPEN, Stalls), (&[Responded], Breaks)];
            (vec![(&[Requested], Some(Accepting)), (&[Asked], Some(Answered))], refused, WrongState)
        }
        Verb::Reject => (vec![(&[Responded, Requested, Asked], Some(Failed))], vec![(OPEN, Stalls)], WrongState),
        Verb::Establish => {
            let refused = vec![(OPEN, Stalls), (&[Requested, Asked][..], Breaks)];
            (vec![(&[Responded], Some(Connected))], refused, WrongState)
        }
        Verb::Disconnect => {
            let goes = vec![
                (&[Connected][..], Some(Disconnecting)),
                (&[PeerClosed], Some(TimeWait)),
                (&[Disconnecting, Closing, TimeWait, Closed, Failed], None),
            ];
            (goes, vec![], NotConnected)
        }
        Verb::Teardown => {
            let goes = vec![(&[Connected, Disconnecting, Closing, PeerClosed, TimeWait][..], Some(Closing))];
            (goes, vec![(&[Closed], IsOver)], NotConnected)
        }
        Verb::Notify => (vec![(&[Accepting], None)], vec![(&[Connected], IsConnected)], WrongState),
        Verb::GetRequest => (vec![(&[Listening], None)], vec![], WrongState),
        Verb::Join => (vec![(&[Bound, AddrResolved], None)], vec![], WrongState),
        Verb::Leave | Verb::SetTos => (vec![(all_but(&[Removed, Destroying]), None)], vec![], WrongState),
        Verb::ReuseAddr => (vec![(all_but(&[Listening, Removed, Destroying]), None)], vec![], WrongState),
        Verb::NoReuseAddr => (vec![(&[Idle], None)], vec![], WrongState),
        Verb::SetAfOnly => (vec![(&[Idle, Bound], None)], vec![], WrongState),
        Verb::SetAckTimeout => {
            let goes = vec![(all_but(&[Asking, Asked, Answered, Removed, Destroying]), None)];
            (goes, vec![(&LOOKUPS, NotForDatagrams)], WrongState)
        }
        Verb::SetEce => {
            let unsent = vec![(&[Idle, Requested][..], None), (&EARLY, None)];
            (unsent, vec![(&LOOKUPS, NotForDatagrams)], AlreadySent)
        }
        Verb::Migrate | Verb::Release => (vec![(all_but(&[Destroying]), None)], vec![], WrongState),
        Verb::Destroy => (vec![(all_but(&[Destroying]), Some(Destroying))], vec![], WrongState),
        Verb::DestroyNow => (vec![(all_but(&[]), Some(Destroying))], vec![], WrongState),
    }
}

fn all_but(states: &[State]) -> &'static [State] {
    Vec::leak(State::ALL.into_iter().filter(|state| !states.contains(state)).collect())
}

fn find<T: Copy>(places: &[In<T>], state: State) -> Option<T> {
    let found: Vec<_> = places.iter().filter(|(states, _)| states.contains(&state)).collect();
    assert!(found.len() < 2, "{state} stands twice");
    found.first().map(|(_, what)| *what)
}

/// The table of requests as its columns say it.
fn requests() -> Requests {
    let mut stated = table::REQUESTS;
    for verb in Verb::ALL {
        let (goes, refused, otherwise) = request(verb);
        for state in State::ALL {
            stated[state.index()][verb.index()] = match (find(&goes, state), find(&refused, state)) {
                (Some(next), None) => Ask::Go(next.unwrap_or(state)),
                (None, Some(why)) => Ask::Refuse(why),
                (None, None) if (state, verb) == (RouteResolved, Verb::Connect) => {
                    Ask::By { connected: Connecting, datagram: Asking }
                }
                (None, None) if state == Removed => Ask::Refuse(Why::DeviceGone),
                (None, None) if state == Destroying => Ask::Refuse(Why::WrongState),
                (None, None) => Ask::Refuse(otherwise),
                (Some(_), Some(_)) => panic!("{verb} while {state} goes and is refused"),
            };
        }
    }
    stated
}

/// Where an event goes; where it is late. Everywhere else the device cannot mean it.
fn event(fact: Fact) -> (Goes, Vec<In<()>>) {
    /// No address was resolved on this side, or not yet.
    const NEVER_RESOLVED: &[State] = &[Idle, Bound, AddrResolving, Requested, Accepting, Asked, Listening];
    /// The answer to a request may still be under way.
    const ASKED_FOR: &[State] = &[Connecting, Accepting];
    const OVER: &[State] = &[Failed];
    let resolved = || all_but(&[NEVER_RESOLVED, &[AddrResolved, RouteResolving, Removed, Destroying]].concat());
    match fact {
        Fact::AddrResolved => {
            let later = [(resolved(), ()), (&[AddrResolved, RouteResolving], ())];
            (vec![(&[AddrResolving], Some(AddrResolved))], later.to_vec())
        }
        Fact::AddrError => {
            let goes = vec![(&[AddrResolving][..], Some(Bound)), (&[Asking], Some(Failed))];
            let answered = all_but(&[NEVER_RESOLVED, &[Asking, Removed, Destroying]].concat());
            (goes, vec![(answered, ()), (&[Bound], ())])
        }
        Fact::RouteResolved => (vec![(&[RouteResolving], Some(RouteResolved))], vec![(resolved(), ())]),
        Fact::RouteError => {
            (vec![(&[RouteResolving], Some(AddrResolved))], vec![(resolved(), ()), (&[AddrResolved], ())])
        }
        // It may come before a listen fails late.
        Fact::ConnectRequest => (vec![(&[Listening], None)], vec![(&[Idle, Bound, Failed], ())]),
        Fact::ConnectResponse => {
            (vec![(&[Connecting], Some(Responded))], vec![(&[Responded, Connected], ()), (&ENDING, ()), (OVER, ())])
        }
        Fact::ConnectError => {
            let goes = vec![(ASKED_FOR, Some(Failed)), (&[Responded, Connected][..], Some(Failed))];
            (goes, vec![(&[Requested], ()), (&ENDING, ()), (OVER, ())])
        }
        // Where no answer is waited for it tells of a changed link address.
        Fact::Unreachable => {
            let stays = vec![
                (&[AddrResolved, RouteResolving, RouteResolved, Responded, Connected, Answered, Failed][..], None),
                (&ENDING, None),
                (ASKED_FOR, Some(Failed)),
                (&[Asking], Some(Failed)),
            ];
            (stays, vec![(&[Requested, Asked], ())])
        }
        Fact::Rejected => {
            let goes = vec![
                (ASKED_FOR, Some(Failed)),
                (&[Responded, Connected, Disconnecting][..], Some(Failed)),
                (&[Closing], None),
            ];
            (goes, vec![(&[Requested, PeerClosed, TimeWait, Closed], ()), (OVER, ())])
        }
        Fact::Established => {
            let goes = vec![(ASKED_FOR, Some(Connected)), (&[Asking][..], Some(Answered))];
            let late = vec![(&[Responded, Requested, Connected, Asked, Answered][..], ()), (&ENDING, ()), (OVER, ())];
            (goes, late)
        }
        Fact::Disconnected => {
            let goes = vec![
                (ASKED_FOR, Some(PeerClosed)),
                (&[Responded, Connected][..], Some(PeerClosed)),
                (&[Disconnecting], Some(TimeWait)),
                (&[Closing], None),
            ];
            (goes, vec![(&[Requested, PeerClosed, TimeWait, Closed], ()), (OVER, ())])
        }
        Fact::DeviceRemoval => (vec![(all_but(&[Removed, Destroying]), Some(Removed))], vec![]),
        Fact::MulticastJoin | Fact::MulticastError => {
            (vec![(&EARLY, None), (&[Asking, Answered, Failed, Listening], None)], vec![])
        }
        Fact::AddrChange | Fact::Other => (vec![(all_but(&[Removed, Destroying]), None)], vec![]),
        Fact::TimewaitExit => {
            let goes = vec![(&[Disconnecting, Closing, PeerClosed, TimeWait][..], Some(Closed))];
            (goes, vec![(&[Connecting, Responded, Requested, Accepting, Connected, Closed], ()), (OVER, ())])
        }
        Fact::Deadline => {
            let goes = vec![
                (&[AddrResolving, RouteResolving, Connecting, Accepting, Asking, Destroying][..], Some(Failed)),
                (&[Disconnecting], Some(TimeWait)),
                (&[Closing], Some(Closed)),
            ];
            let waiting = [AddrResolving, RouteResolving, Connecting, Accepting, Asking, Disconnecting, Closing];
            (goes, vec![(all_but(&[&waiting[..], &[Removed, Destroying]].concat()), ())])
        }
    }
}

/// The table of events as its columns say it.
fn events() -> Events {
    let mut stated = table::EVENTS;
    for fact in Fact::ALL {
        let (goes, late) = event(fact);
        for state in State::ALL {
            stated[state.index()][fact.index()] = match (find(&goes, state), find(&late, state)) {
                (Some(next), None) => Tell::Go(next.unwrap_or(state)),
                (None, Some(())) => Tell::Late,
                // Nothing more is told of these.
                (None, None) if matches!(state, Removed | Destroying) => Tell::Late,
                (None, None) => Tell::Fault,
                (Some(_), Some(())) => panic!("{fact} while {state} goes and is late"),
            };
        }
    }
    stated
}

/// The cells in which a table is not what its columns say.
fn differences<C: PartialEq, F: Copy, const WIDTH: usize, const HEIGHT: usize>(
    table: &[[C; WIDTH]; HEIGHT],
    stated: &[[C; WIDTH]; HEIGHT],
    columns: [F; WIDTH],
) -> Vec<(State, F)> {
    let rows = State::ALL.into_iter().zip(table.iter().zip(stated)).filter(|(_, (row, stated))| row != stated);
    let cells = rows.flat_map(|(state, (row, stated))| {
        row.iter().zip(stated).zip(columns).map(move |((cell, stated), column)| ((state, column), cell != stated))
    });
    cells.filter(|(_, differs)| *differs).map(|(place, _)| place).collect()
}

#[test]
fn the_table_of_requests_is_what_its_columns_say() {
    assert_eq!(differences(&table::REQUESTS, &requests(), Verb::ALL), []);
}

#[test]
fn the_table_of_events_is_what_its_columns_say() {
    assert_eq!(differences(&table::EVENTS, &events(), Fact::ALL), []);
}

#[test]
fn a_change_of_any_cell_of_requests_differs_from_its_column() {
    let (stated, mut table) = (requests(), table::REQUESTS);
    let mut changes = 0;
    for state in State::ALL {
        for verb in Verb::ALL {
            let own = table[state.index()][verb.index()];
            for other in asks().into_iter().filter(|other| *other != own) {
                table[state.index()][verb.index()] = other;
                assert_eq!(differences(&table, &stated, Verb::ALL), [(state, verb)], "{other:?}");
                changes += 1;
            }
            table[state.index()][verb.index()] = own;
        }
    }
    println!("{changes} changes of a cell of requests are noticed");
    assert_eq!(changes, State::COUNT * Verb::COUNT * (asks().len() - 1));
}

#[test]
fn a_change_of_any_cell_of_events_differs_from_its_column() {
    let (stated, mut table) = (events(), table::EVENTS);
    let mut changes = 0;
    for state in State::ALL {
        for fact in Fact::ALL {
            let own = table[state.index()][fact.index()];
            for other in tells().into_iter().filter(|other| *other != own) {
                table[state.index()][fact.index()] = other;
                assert_eq!(differences(&table, &stated, Fact::ALL), [(state, fact)], "{other:?}");
                changes += 1;
            }
            table[state.index()][fact.index()] = own;
        }
    }
    println!("{changes} changes of a cell of events are noticed");
    assert_eq!(changes, State::COUNT * Fact::COUNT * (tells().len() - 1));
}
