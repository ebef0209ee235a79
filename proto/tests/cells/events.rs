//! The cells of events and of the deadline.

use std::time::Duration;

use cmid_proto::table::{self, EventColumn, EventRule};
use cmid_proto::{
    Acks, Admission, CmEvent, Errno, EventKind, Fault, RawEvent, Request, RequestKind, Service, State, Time,
};

use super::ids::{IdInState, SERVICES, id_in_state};
use crate::fixture::{CoreFixture, RESOLVE, accept, cm, connect, raw};

fn event_of(column: EventColumn) -> Option<CmEvent> {
    Some(match column {
        EventColumn::AddrResolved => CmEvent::AddrResolved,
        EventColumn::AddrError => CmEvent::AddrError,
        EventColumn::RouteResolved => CmEvent::RouteResolved,
        EventColumn::RouteError => CmEvent::RouteError,
        EventColumn::ConnectRequest => CmEvent::ConnectRequest,
        EventColumn::ConnectResponse => CmEvent::ConnectResponse,
        EventColumn::ConnectError => CmEvent::ConnectError,
        EventColumn::Unreachable => CmEvent::Unreachable,
        EventColumn::Rejected => CmEvent::Rejected,
        EventColumn::Established => CmEvent::Established,
        EventColumn::Disconnected => CmEvent::Disconnected,
        EventColumn::DeviceRemoval => CmEvent::DeviceRemoval,
        EventColumn::MulticastJoin => CmEvent::MulticastJoin,
        EventColumn::MulticastError => CmEvent::MulticastError,
        EventColumn::AddrChange => CmEvent::AddrChange,
        EventColumn::TimewaitExit => CmEvent::TimewaitExit,
        EventColumn::Other => CmEvent::Unknown(77),
        EventColumn::Deadline => return None,
    })
}

/// Reports the event to an id in `state`. Returns whether the cell was met: an event of a membership that the id does
/// not have is late, whatever the cell.
fn meet(state: State, kind: CmEvent, service: Service) -> bool {
    let Some(mut id_in_state) = id_in_state(state, service) else { return false };
    let cell = table::event_rule(state, EventColumn::of(kind));
    if kind == CmEvent::ConnectRequest {
        request(&mut id_in_state, state, cell);
        return true;
    }
    let (id, counters) = (id_in_state.id, id_in_state.fixture.core.summary().counters);
    let (on, event) = id_in_state.raw(kind);
    let result = id_in_state.fixture.core.handle_event(on, event);
    id_in_state.fixture.core.check();
    let of_group = matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
    match cell {
        EventRule::Go(_) if of_group && id_in_state.group.is_none() => {
            assert_eq!(result, Ok(Admission::Late));
            return false;
        }
        EventRule::Go(next) => {
            assert_eq!((result, id_in_state.fixture.state(id)), (Ok(Admission::Known), next), "{kind} while {state}");
            id_in_state.fixture.sees(id_in_state.here, id, cm(kind));
        }
        EventRule::Late => {
            assert_eq!((result, id_in_state.fixture.state(id)), (Ok(Admission::Late), state), "{kind} while {state}");
            assert_eq!(id_in_state.fixture.core.summary().counters.late, counters.late + 1);
        }
        EventRule::Fault => {
            assert_eq!(result, Err(Fault::Event { id, state, event: kind }));
            assert_eq!(
                (id_in_state.fixture.state(id), id_in_state.fixture.core.summary().counters.faults),
                (state, counters.faults + 1)
            );
        }
    }
    id_in_state.fixture.no_event(id_in_state.here);
    true
}

fn request(id_in_state: &mut IdInState, state: State, cell: EventRule) {
    let on = id_in_state.fixture.core.device_channel(id_in_state.id).unwrap();
    let child = id_in_state.fixture.core.wants_event(on).unwrap();
    let event = RawEvent { listener: Some(id_in_state.id), ..raw(child, CmEvent::ConnectRequest, 0) };
    let result = id_in_state.fixture.core.handle_event(on, event);
    id_in_state.fixture.core.check();
    match cell {
        EventRule::Go(_) => return assert_eq!(result, Ok(Admission::Child(child)), "{state}"),
        EventRule::Late => assert_eq!(result, Ok(Admission::Late), "{state}"),
        EventRule::Fault => {
            assert_eq!(result, Err(Fault::Event { id: id_in_state.id, state, event: CmEvent::ConnectRequest }));
        }
    }
    // It is taken in and destroyed.
    id_in_state.fixture.all_well();
    assert_eq!(id_in_state.fixture.core.state(child), None, "{state}");
}

#[test]
fn every_cell_of_events_is_met() {
    let mut met = 0;
    for state in State::ALL {
        for kind in EventColumn::ALL.into_iter().filter_map(event_of) {
            let by = SERVICES.map(|service| meet(state, kind, service));
            assert!(by.contains(&true), "nothing has met the cell of {kind} while {state}");
            met += 1;
        }
    }
    println!("{met} cells of events are met");
    assert_eq!(met, State::COUNT * (EventColumn::COUNT - 1));
}

/// Begins the operation that the state waits for, with a deadline.
fn waiting(state: State) -> Option<IdInState> {
    let (from, service, request) = match table::operation(state)? {
        RequestKind::ResolveAddr => (State::Idle, Service::Connected, RESOLVE),
        RequestKind::ResolveRoute => (State::AddrResolved, Service::Connected, Request::ResolveRoute),
        RequestKind::Connect if state == State::SidrReqSent => (State::RouteResolved, Service::Datagram, connect()),
        RequestKind::Connect => (State::RouteResolved, Service::Connected, connect()),
        RequestKind::Accept => (State::Requested, Service::Connected, accept()),
        RequestKind::Disconnect => (State::Connected, Service::Connected, Request::Disconnect),
        RequestKind::Teardown => (State::Connected, Service::Connected, Request::Teardown),
        request_kind => panic!("{request_kind} is not an operation of these tests"),
    };
    let mut id_in_state = id_in_state(from, service)?;
    id_in_state.fixture.does_until(id_in_state.id, request, id_in_state.fixture.within(Duration::from_secs(1)));
    assert_eq!(id_in_state.fixture.state(id_in_state.id), state);
    Some(id_in_state)
}

#[test]
fn every_cell_of_the_deadline_is_met_where_one_can_pass() {
    let mut met = 0;
    for state in State::ALL {
        let cell = table::event_rule(state, EventColumn::Deadline);
        match table::operation(state) {
            // A state without an operation has no deadline: `Core::check` asserts this after every step of every
            // test.
            None => assert_eq!(cell, EventRule::Late, "{state}"),
            Some(RequestKind::Destroy) => {
                destruction(cell);
                met += 1;
            }
            Some(request_kind) => {
                let Some(IdInState { mut fixture, id, here, .. }) = waiting(state) else { panic!("no way to {state}") };
                let deadline = fixture.within(Duration::from_secs(1));
                assert_eq!(fixture.core.poll_timeout(), Some((deadline, id)));
                fixture.passes(Duration::from_millis(999));
                assert_eq!(fixture.state(id), state);
                fixture.no_event(here);
                fixture.passes(Duration::from_millis(1));
                assert_eq!(EventRule::Go(fixture.state(id)), cell, "{state}");
                let event = fixture.expect_event(here, id, EventKind::DeadlinePassed(request_kind));
                assert_eq!(event.result(), Err(Errno::ETIMEDOUT));
                assert_eq!(fixture.core.poll_timeout(), None);
                met += 1;
            }
        }
    }
    println!("{met} cells of the deadline are met; in the others there is none");
    assert_eq!(met, State::ALL.iter().filter(|state| table::operation(**state).is_some()).count());
}

/// The deadline of a destroy passes while an ack is owed.
fn destruction(cell: EventRule) {
    let mut fixture = CoreFixture::new();
    let on = fixture.channel(Acks::Explicit);
    let id = fixture.id(Some(on));
    let event = fixture.owes(on, id);
    fixture.submit_until(id, Request::Destroy, fixture.within(Duration::from_secs(1))).unwrap();
    fixture.passes(Duration::from_secs(1));
    assert_eq!(EventRule::Go(fixture.state(id)), cell);
    let destroyed = fixture.expect_event(on, id, EventKind::Destroyed);
    assert_ne!(destroyed.status, 0);
    fixture.acks(event);
    fixture.submit_until(id, Request::Destroy, Time::NEVER).unwrap();
    fixture.all_well();
    assert_eq!(fixture.core.state(id), None);
}
