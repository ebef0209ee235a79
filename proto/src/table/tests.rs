//! Properties of all cells of the tables.

use super::*;
use alloc::vec;

/// The states that a run of requests and events can reach.
fn reachable(from: State, service: Service) -> [bool; State::COUNT] {
    let mut seen = [false; State::COUNT];
    let mut open = vec![from];
    while let Some(state) = open.pop() {
        if core::mem::replace(&mut seen[state.index()], true) {
            continue;
        }
        for request_kind in RequestKind::ALL {
            if let Ok(next) = request_rule(state, request_kind, service) {
                open.push(next);
            }
        }
        for column in EventColumn::ALL {
            if let EventRule::Go(next) = event_rule(state, column) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn every_state_is_reached_from_a_new_id_or_a_request() {
    let connected = [State::Idle, State::Requested].map(|from| reachable(from, Service::Connected));
    let datagram = [State::Idle, State::SidrReqReceived].map(|from| reachable(from, Service::Datagram));
    for state in State::ALL {
        let with = |way: &[[bool; State::COUNT]; 2]| way.iter().any(|seen| seen[state.index()]);
        assert!(with(&connected) || with(&datagram), "{state} is never reached");
        let of_datagrams = matches!(state, State::SidrReqSent | State::SidrReqReceived | State::SidrResolved);
        assert_eq!(with(&connected), !of_datagrams, "{state} of a connected service");
    }
}

#[test]
fn the_rows_stand_in_the_order_of_the_states() {
    // A release and an unknown event leave every state as it is, so they identify the row.
    for state in State::ALL {
        match request_rule(state, RequestKind::Release, Service::Connected) {
            Ok(same) => assert_eq!(same, state),
            Err(_) => assert_eq!(state, State::Destroying),
        }
        match event_rule(state, EventColumn::Other) {
            EventRule::Go(same) => assert_eq!(same, state),
            EventRule::Late | EventRule::Fault => assert!(matches!(state, State::Removed | State::Destroying)),
        }
    }
}

#[test]
fn destroy_is_never_refused_while_an_id_lives_and_removal_is_never_a_fault() {
    for state in State::ALL {
        assert_eq!(request_rule(state, RequestKind::DestroyNow, Service::Connected), Ok(State::Destroying));
        if state != State::Destroying {
            assert_eq!(request_rule(state, RequestKind::Destroy, Service::Connected), Ok(State::Destroying));
        }
        assert_ne!(event_rule(state, EventColumn::DeviceRemoval), EventRule::Fault, "{state}");
    }
}

#[test]
fn a_deadline_ends_an_operation_and_nothing_else() {
    for state in State::ALL {
        let ends = matches!(event_rule(state, EventColumn::Deadline), EventRule::Go(next) if next != state);
        assert_eq!(ends, operation(state).is_some(), "{state}");
    }
}

#[test]
fn the_operation_that_a_state_awaits_is_a_request_that_leads_to_it() {
    for state in State::ALL {
        let Some(request_kind) = operation(state) else { continue };
        let leads_here = |from| {
            [Service::Connected, Service::Datagram]
                .iter()
                .any(|&service| request_rule(from, request_kind, service) == Ok(state))
        };
        assert!(State::ALL.into_iter().any(leads_here), "{request_kind} never leads to {state}");
    }
}

#[test]
fn there_is_no_way_back_from_connecting() {
    // In the kernel no call leads from CONNECT or DISCONNECT back to a state that can connect.
    for start in [
        State::Connecting,
        State::Requested,
        State::Failed,
        State::TimeWait,
        State::SidrReqSent,
        State::SidrReqReceived,
    ] {
        let seen = reachable(start, Service::Connected);
        for state in [State::Idle, State::Bound, State::AddrResolved, State::RouteResolved, State::Listening] {
            assert!(!seen[state.index()], "{start} leads to {state}");
        }
    }
}
