//! The cells of events and of the deadline.

use std::time::Duration;

use cmid_proto::table::{self, Fact, Tell};
use cmid_proto::{Admission, CmEvent, EventKind, Fault, RawEvent, Request, Service, State, Time, Verb};

use crate::fixture::{RESOLVE, Stage, accept, cm, connect, raw};
use crate::places::{Place, SERVICES, place};

fn event_of(fact: Fact) -> Option<CmEvent> {
    Some(match fact {
        Fact::AddrResolved => CmEvent::AddrResolved,
        Fact::AddrError => CmEvent::AddrError,
        Fact::RouteResolved => CmEvent::RouteResolved,
        Fact::RouteError => CmEvent::RouteError,
        Fact::ConnectRequest => CmEvent::ConnectRequest,
        Fact::ConnectResponse => CmEvent::ConnectResponse,
        Fact::ConnectError => CmEvent::ConnectError,
        Fact::Unreachable => CmEvent::Unreachable,
        Fact::Rejected => CmEvent::Rejected,
        Fact::Established => CmEvent::Established,
        Fact::Disconnected => CmEvent::Disconnected,
        Fact::DeviceRemoval => CmEvent::DeviceRemoval,
        Fact::MulticastJoin => CmEvent::MulticastJoin,
        Fact::MulticastError => CmEvent::MulticastError,
        Fact::AddrChange => CmEvent::AddrChange,
        Fact::TimewaitExit => CmEvent::TimewaitExit,
        Fact::Other => CmEvent::Unknown(77),
        Fact::Deadline => return None,
    })
}

/// Tells the fact to an id in the state. Whether the cell itself was met: an event of a membership that the id does not have
/// is late whatever the cell says.
fn meet(state: State, kind: CmEvent, service: Service) -> bool {
    let Some(mut place) = place(state, service) else { return false };
    let cell = table::tell(state, Fact::of(kind));
    if kind == CmEvent::ConnectRequest {
        request(&mut place, state, cell);
        return true;
    }
    let (id, counters) = (place.id, place.stage.core.counters());
    let (on, event) = place.raw(kind);
    let result = place.stage.core.handle_event(on, event);
    place.stage.core.check();
    let of_group = matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
    match cell {
        Tell::Go(_) if of_group && place.group.is_none() => {
            assert_eq!(result, Ok(Admission::Late));
            return false;
        }
        Tell::Go(next) => {
            assert_eq!((result, place.stage.state(id)), (Ok(Admission::Known), next), "{kind} while {state}");
            place.stage.sees(place.here, id, cm(kind));
        }
        Tell::Late => {
            assert_eq!((result, place.stage.state(id)), (Ok(Admission::Late), state), "{kind} while {state}");
            assert_eq!(place.stage.core.counters().late, counters.late + 1);
        }
        Tell::Fault => {
            assert_eq!(result, Err(Fault::Event { id, state, event: kind }));
            assert_eq!((place.stage.state(id), place.stage.core.counters().faults), (state, counters.faults + 1));
        }
    }
    place.stage.no_event(place.here);
    true
}

fn request(place: &mut Place, state: State, cell: Tell) {
    let on = place.stage.core.line(place.id).unwrap();
    let child = place.stage.core.wants_event(on).unwrap();
    let event = RawEvent { listener: Some(place.id), ..raw(child, CmEvent::ConnectRequest, 0) };
    let result = place.stage.core.handle_event(on, event);
    place.stage.core.check();
    match cell {
        Tell::Go(_) => assert_eq!(result, Ok(Admission::Child(child)), "{state}"),
        Tell::Late => assert_eq!(result, Ok(Admission::Late), "{state}"),
        Tell::Fault => {
            assert_eq!(result, Err(Fault::Event { id: place.id, state, event: CmEvent::ConnectRequest }));
        }
    }
}

#[test]
fn every_cell_of_events_is_met() {
    let mut met = 0;
    for state in State::ALL {
        for kind in Fact::ALL.into_iter().filter_map(event_of) {
            let by = SERVICES.map(|service| meet(state, kind, service));
            assert!(by.contains(&true), "nothing has met the cell of {kind} while {state}");
            met += 1;
        }
    }
    println!("{met} cells of events are met");
    assert_eq!(met, State::COUNT * (Fact::COUNT - 1));
}

/// Begins what the state waits for, with a deadline.
fn waiting(state: State) -> Option<Place> {
    let (from, service, request) = match table::operation(state)? {
        Verb::ResolveAddr => (State::Idle, Service::Connected, RESOLVE),
        Verb::ResolveRoute => (State::AddrResolved, Service::Connected, Request::ResolveRoute),
        Verb::Connect if state == State::Asking => (State::RouteResolved, Service::Datagram, connect()),
        Verb::Connect => (State::RouteResolved, Service::Connected, connect()),
        Verb::Accept => (State::Requested, Service::Connected, accept()),
        Verb::Disconnect => (State::Connected, Service::Connected, Request::Disconnect),
        Verb::Teardown => (State::Connected, Service::Connected, Request::Teardown),
        verb => panic!("{verb} is no operation that a test knows"),
    };
    let mut place = place(from, service)?;
    place.stage.does_until(place.id, request, place.stage.within(Duration::from_secs(1)));
    assert_eq!(place.stage.state(place.id), state);
    Some(place)
}

#[test]
fn every_cell_of_the_deadline_is_met_where_one_can_pass() {
    let mut met = 0;
    for state in State::ALL {
        let cell = table::tell(state, Fact::Deadline);
        match table::operation(state) {
            // No state that waits for nothing has a deadline: `Core::check` looks at that after every step of every test.
            None => assert_eq!(cell, Tell::Late, "{state}"),
            Some(Verb::Destroy) => {
                destruction(cell);
                met += 1;
            }
            Some(verb) => {
                let Some(mut place) = waiting(state) else { panic!("no way to {state}") };
                place.stage.passes(Duration::from_millis(999));
                assert_eq!(place.stage.state(place.id), state);
                place.stage.passes(Duration::from_millis(1));
                assert_eq!(Tell::Go(place.stage.state(place.id)), cell, "{state}");
                place.stage.sees(place.here, place.id, EventKind::DeadlinePassed(verb));
                assert_eq!(place.stage.core.poll_timeout(), None);
                met += 1;
            }
        }
    }
    println!("{met} cells of the deadline are met; in the others there is none");
    assert_eq!(met, State::ALL.iter().filter(|state| table::operation(**state).is_some()).count());
}

/// Its deadline counts while acks are owed.
fn destruction(cell: Tell) {
    let mut stage = Stage::new();
    let on = stage.channel(cmid_proto::Acks::Explicit);
    let id = stage.id(Some(on));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(on, id, cm(CmEvent::AddrChange));
    stage.asks_until(id, Request::Destroy, stage.within(Duration::from_secs(1))).unwrap();
    stage.passes(Duration::from_secs(1));
    assert_eq!(Tell::Go(stage.state(id)), cell);
    let told = stage.expect_event(on, id, EventKind::Destroyed);
    assert_ne!(told.status, 0);
    stage.acks(event);
    stage.asks_until(id, Request::Destroy, Time::NEVER).unwrap();
    stage.all_well();
    assert_eq!(stage.core.state(id), None);
}
