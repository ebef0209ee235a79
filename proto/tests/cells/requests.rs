//! The cells of requests.

use std::collections::BTreeSet;

use cmid_proto::table::{self, RequestRule};
use cmid_proto::{Acks, Errno, IdKey, RefuseReason, Refused, RequestKind, Service, State, Time};

use super::ids::{IdInState, SERVICES, datagram, destroying_with_qp, id_in_state, with_qp};
use super::request_of::request_of;
use crate::fixture::{CoreFixture, LISTEN, OK, RESOLVE, TO_SYNC};

/// How a cell was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// The cell refuses the request, and so did the core.
    Refused,
    /// The cell allows the request, and the core carried it out.
    Gone,
    /// The cell allows the request, but the id lacks what the request needs.
    LetThrough,
}

/// Cells that allow a request which no id can make: to detach a QP before there is a device; to leave a group in a
/// state of connections, or on the passive side.
fn cannot_have(state: State, request_kind: RequestKind) -> bool {
    match request_kind {
        RequestKind::DetachQp => state == State::Idle,
        RequestKind::Leave => {
            id_in_state(state, Service::Datagram).is_none_or(|id_in_state| id_in_state.group.is_none())
        }
        _ => false,
    }
}

/// An id that meets the cell and fulfils its guard.
fn place_for(state: State, request_kind: RequestKind, service: Service) -> Option<IdInState> {
    match request_kind {
        RequestKind::DetachQp | RequestKind::DestroyNow if state == State::Destroying => Some(destroying_with_qp()),
        RequestKind::DetachQp if service == Service::Connected => {
            with_qp(state).or_else(|| id_in_state(state, service))
        }
        // A route of InfiniBand has the type of service already.
        RequestKind::SetTos if matches!(state, State::RouteResolving | State::RouteResolved) => {
            let mut id_in_state = id_in_state(state, Service::Connected)?;
            id_in_state.fixture.core.note_iwarp(id_in_state.id);
            Some(id_in_state)
        }
        // A member of a group is not released.
        RequestKind::Release if service == Service::Datagram => datagram(state, false),
        // During address resolution an id has a device only from an earlier bind.
        RequestKind::AttachQp if state == State::AddrResolving && service == Service::Connected => {
            let mut id_in_state = id_in_state(State::Bound, service)?;
            id_in_state.fixture.does(id_in_state.id, RESOLVE);
            Some(id_in_state)
        }
        RequestKind::GetRequest if state == State::Listening && service == Service::Connected => {
            let mut fixture = CoreFixture::new();
            let [here, there] = [(); 2].map(|()| fixture.channel(Acks::OnDelivery));
            let id = fixture.id(None);
            fixture.does(id, LISTEN);
            Some(IdInState::new(fixture, id, [here, there], None))
        }
        _ => id_in_state(state, service),
    }
}

fn meet(state: State, request_kind: RequestKind, service: Service) -> Option<Met> {
    let mut id_in_state = place_for(state, request_kind, service)?;
    let cell = table::request_rule(state, request_kind, service);
    let (id, before) = (id_in_state.id, id_in_state.fixture.core.clone());
    let Some(request) = request_of(request_kind, id_in_state.there, id_in_state.group) else {
        return Some(release(&mut id_in_state.fixture, id, state, cell));
    };
    let result = id_in_state.fixture.submit(id, request);
    match (cell, result) {
        (Err(reason), result) => {
            assert_eq!(
                result,
                Err(Refused::Request { id, request: request_kind, state, reason }),
                "{request_kind} while {state}"
            );
            assert_eq!(
                id_in_state.fixture.core, before,
                "{request_kind} while {state} was refused and changed something"
            );
            Some(Met::Refused)
        }
        (Ok(next), Ok(())) => {
            let made = if id_in_state.fixture.next_call().is_some() { state } else { next };
            assert_eq!(id_in_state.fixture.state(id), made, "{request_kind} while {state}, before the outcome");
            id_in_state.fixture.all_well();
            // A destruction that waits for nothing ends with its call.
            let gone = matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow);
            assert!(!gone || next == State::Destroying, "{request_kind} while {state}");
            let after = (!gone).then_some(next);
            assert_eq!(id_in_state.fixture.core.state(id), after, "{request_kind} while {state}");
            Some(Met::Gone)
        }
        (Ok(_), Err(refused)) => {
            let Refused::Request { reason, .. } = refused else { panic!("{refused}") };
            assert_ne!(reason, RefuseReason::WrongState, "{request_kind} while {state}");
            Some(Met::LetThrough)
        }
    }
}

/// Only an id in synchronous mode is released.
fn release(fixture: &mut CoreFixture, id: IdKey, state: State, cell: Result<State, RefuseReason>) -> Met {
    match cell {
        Err(reason) => {
            let refused = fixture.core.release(id).map(drop).unwrap_err();
            assert_eq!(refused, Refused::Request { id, request: RequestKind::Release, state, reason });
            Met::Refused
        }
        Ok(_) => {
            fixture.does(id, TO_SYNC);
            match fixture.core.release(id) {
                Ok((released, _)) => {
                    fixture.core.check();
                    assert_eq!(released.state(), state);
                    Met::Gone
                }
                Err(_) => Met::LetThrough,
            }
        }
    }
}

#[test]
fn every_cell_of_requests_is_met() {
    let mut counts = [0; 3];
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            let met = SERVICES.map(|service| meet(state, request_kind, service));
            let one = |wanted| met.iter().flatten().any(|met| *met == wanted);
            // A cell that depends on the service must be met by both.
            if let RequestRule::By { .. } = table::REQUESTS[state.index()][request_kind.index()] {
                assert_eq!(met, [Some(Met::Gone); 2], "{request_kind} while {state}");
            }
            let met = if one(Met::Gone) {
                Met::Gone
            } else if one(Met::Refused) {
                Met::Refused
            } else {
                assert!(one(Met::LetThrough), "nothing has met the cell of {request_kind} while {state}");
                assert!(cannot_have(state, request_kind), "{request_kind} while {state} was never carried out");
                Met::LetThrough
            };
            counts[met as usize] += 1;
        }
    }
    let [refused, gone, let_through] = counts;
    println!("{refused} cells of requests refuse, {gone} go, {let_through} would if there were what they take away");
    assert_eq!(refused + gone + let_through, State::COUNT * RequestKind::COUNT);
    let refuse = State::ALL.iter().flat_map(|state| table::REQUESTS[state.index()]);
    assert_eq!(refuse.filter(|cell| matches!(cell, RequestRule::Refuse(_))).count(), refused);
}

#[test]
fn every_call_that_fails_leaves_the_state_of_the_table() {
    use RequestKind::{
        Accept, AttachQp, Destroy, DestroyNow, DetachQp, GetRequest, Join, Leave, Listen, Migrate, Release,
    };
    // They make no call, or their dialogues have the state after each of several calls.
    let have_dialogues = [AttachQp, DetachQp, GetRequest, Join, Leave, Listen, Migrate, Release, Destroy, DestroyNow];
    let kinds = || RequestKind::ALL.into_iter().filter(|kind| !have_dialogues.contains(kind));
    let places = State::ALL.into_iter().flat_map(|state| SERVICES.map(|service| (state, service)));
    let (mut met, mut allowed) = (BTreeSet::new(), BTreeSet::new());
    for ((state, service), request_kind) in places.flat_map(|place| kinds().map(move |kind| (place, kind))) {
        let Ok(_) = table::request_rule(state, request_kind, service) else { continue };
        allowed.insert((state.index(), request_kind.index()));
        let Some(IdInState { fixture, id, there, .. }) = place_for(state, request_kind, service) else { continue };
        let Some(request) = request_of(request_kind, there, None) else { continue };
        let mut fixture = fixture.clone();
        if fixture.submit(id, request).is_err() {
            continue;
        }
        met.insert((state.index(), request_kind.index()));
        if request_kind == Accept {
            // The call that an accept begins with; `accepts` tests its failure.
            fixture.expect_call("migrate_id", OK);
        }
        let failure = fixture.answers(Err(Errno::EINVAL)).unwrap().result.unwrap_err();
        let after = table::after_failure(state, request_kind);
        assert_eq!(fixture.state(id), after, "{request_kind} while {state}");
        assert_eq!((failure.call, failure.state, failure.errno), (request_kind.name(), after, Errno::EINVAL));
        assert_eq!(fixture.core.poll_timeout(), None, "{request_kind} while {state} left a deadline");
    }
    assert_eq!(met, allowed, "a cell that allows a request has not seen it fail");
}

/// A member of a group for which an ack is owed.
fn member_that_owes() -> IdInState {
    let (mut fixture, here, there) = CoreFixture::on_two(Acks::Explicit);
    let (id, group, _) = fixture.member_that_owes(here);
    IdInState::new(fixture, id, [here, there], Some(group))
}

#[test]
fn a_request_that_is_begun_and_dropped_changes_nothing() {
    use RequestKind::{AttachQp, Destroy, DetachQp, GetRequest, Leave, Migrate, Release};
    let (mut called, mut uncalled) = (Vec::new(), Vec::new());
    for request_kind in RequestKind::ALL {
        let places = State::ALL.into_iter().flat_map(|state| SERVICES.map(|service| (state, service)));
        let places = places.filter_map(|(state, service)| place_for(state, request_kind, service));
        for IdInState { mut fixture, id, there, group, .. } in places.chain([member_that_owes()]) {
            let Some(request) = request_of(request_kind, there, group) else { continue };
            let before = fixture.core.clone();
            if let Ok(begun) = fixture.core.begin(fixture.now, id, &request, Time(9_000)) {
                let kinds = if begun.call().is_some() { &mut called } else { &mut uncalled };
                kinds.push(request_kind);
                assert_eq!(begun.core(), &before, "{request_kind} was begun and changed something");
            }
            assert_eq!(fixture.core, before, "{request_kind} was dropped and changed something");
        }
    }
    called.dedup();
    uncalled.dedup();
    let (never_calls, waits) = ([AttachQp, DetachQp, GetRequest], [Leave, Migrate, Destroy]);
    assert_eq!(uncalled, [never_calls, waits].concat());
    let no_request = RequestKind::ALL.into_iter().filter(|kind| ![&called[..], &never_calls].concat().contains(kind));
    assert_eq!(no_request.collect::<Vec<_>>(), [Release]);
}

#[test]
fn a_passed_deadline_is_refused_in_every_cell_that_goes_but_a_destruction() {
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            let Ok(_) = table::request_rule(state, request_kind, Service::Connected) else { continue };
            let Some(mut id_in_state) = place_for(state, request_kind, Service::Connected) else { continue };
            let Some(request) = request_of(request_kind, id_in_state.there, None) else { continue };
            let result = id_in_state.fixture.submit_until(id_in_state.id, request, Time(1));
            if matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow) {
                assert_eq!(result, Ok(()), "{state}");
            } else {
                let refused = Refused::Request {
                    id: id_in_state.id,
                    request: request_kind,
                    state,
                    reason: RefuseReason::TooLate,
                };
                assert_eq!(result, Err(refused), "{request_kind} while {state}");
            }
        }
    }
}
