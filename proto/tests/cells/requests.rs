//! The cells of requests.

use cmid_proto::table::{self, Ask};
use cmid_proto::{Acks, ChannelKey, CmOption, Ece, GroupKey, IdKey, Refused, Request, Service, State, Time, Verb, Why};

use crate::fixture::{BIND, LISTEN, REJECT, RESOLVE, Stage, TO_SYNC, accept, addr, connect, to};
use crate::places::{Place, SERVICES, datagram, destroying_with_qp, place, with_qp};

/// How a cell was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// It refuses, and so did the core.
    Refused,
    /// It goes, and so did the core.
    Gone,
    /// It goes, and there was nothing to do it with.
    LetThrough,
}

/// What a cell lets through and no id can have: a QP before there is a device; a membership in a state of connections, or
/// of the side that was asked.
fn cannot_have(state: State, verb: Verb) -> bool {
    match verb {
        Verb::DetachQp => state == State::Idle,
        Verb::Leave => place(state, Service::Datagram).is_none_or(|place| place.group.is_none()),
        _ => false,
    }
}

/// `None` for a release, which is no request of `submit`.
fn request_of(verb: Verb, there: ChannelKey, group: Option<GroupKey>) -> Option<Request<'static>> {
    Some(match verb {
        Verb::Bind => BIND,
        Verb::ResolveAddr => RESOLVE,
        Verb::ResolveRoute => Request::ResolveRoute,
        Verb::Listen => LISTEN,
        Verb::AttachQp => Request::AttachQp,
        Verb::DetachQp => Request::DetachQp,
        Verb::Connect => connect(),
        Verb::Accept => accept(),
        Verb::Reject => REJECT,
        Verb::Establish => Request::Establish,
        Verb::Disconnect => Request::Disconnect,
        Verb::Teardown => Request::Teardown,
        Verb::Notify => Request::Notify,
        Verb::GetRequest => Request::GetRequest,
        Verb::Join => Request::Join { addr: addr(99), send_only: false },
        Verb::Leave => Request::Leave { group: group.or(GroupKey::from_parts(0, 0, 1))? },
        Verb::SetTos => Request::SetOption { option: CmOption::Tos(4) },
        Verb::ReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(true) },
        Verb::NoReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(false) },
        Verb::SetAfOnly => Request::SetOption { option: CmOption::AfOnly(true) },
        Verb::SetAckTimeout => Request::SetOption { option: CmOption::AckTimeout(14) },
        Verb::SetEce => Request::SetEce { ece: Ece { vendor_id: 1, options: 2 } },
        Verb::Migrate => to(there),
        Verb::Release => return None,
        Verb::Destroy => Request::Destroy,
        Verb::DestroyNow => Request::DestroyNow,
    })
}

/// The place where a cell can be met, with what its guard wants.
fn place_for(state: State, verb: Verb, service: Service) -> Option<Place> {
    match verb {
        Verb::DetachQp | Verb::DestroyNow if state == State::Destroying => Some(destroying_with_qp()),
        Verb::DetachQp if service == Service::Connected => with_qp(state).or_else(|| place(state, service)),
        // A member of a group is not released.
        Verb::Release if service == Service::Datagram => datagram(state, false),
        // Resolving an address gives a device, but binding to one does before.
        Verb::AttachQp if state == State::AddrResolving && service == Service::Connected => {
            let mut place = place(State::Bound, service)?;
            place.stage.does(place.id, RESOLVE);
            Some(place)
        }
        Verb::GetRequest if state == State::Listening && service == Service::Connected => {
            let mut stage = Stage::new();
            let [here, there] = [(); 2].map(|()| stage.channel(Acks::OnDelivery));
            let id = stage.id(None);
            stage.does(id, LISTEN);
            Some(Place { stage, id, here, there, group: None })
        }
        _ => place(state, service),
    }
}

fn meet(state: State, verb: Verb, service: Service) -> Option<Met> {
    let mut place = place_for(state, verb, service)?;
    let cell = table::ask(state, verb, service);
    let (id, before) = (place.id, place.stage.core.clone());
    let Some(request) = request_of(verb, place.there, place.group) else {
        return Some(release(&mut place.stage, id, state, cell));
    };
    let result = place.stage.asks(id, request);
    match (cell, result) {
        (Err(why), result) => {
            assert_eq!(result, Err(Refused::Request { id, request: verb, state, why }), "{verb} while {state}");
            assert_eq!(place.stage.core, before, "{verb} while {state} was refused and changed something");
            Some(Met::Refused)
        }
        (Ok(next), Ok(())) => {
            assert_eq!(place.stage.state(id), next, "{verb} while {state}");
            Some(Met::Gone)
        }
        (Ok(_), Err(refused)) => {
            let Refused::Request { why, .. } = refused else { panic!("{refused}") };
            assert_ne!(why, Why::WrongState, "{verb} while {state}");
            Some(Met::LetThrough)
        }
    }
}

/// Only an id in synchronous mode is released.
fn release(stage: &mut Stage, id: IdKey, state: State, cell: Result<State, Why>) -> Met {
    match cell {
        Err(why) => {
            let refused = stage.core.release(id).map(drop).unwrap_err();
            assert_eq!(refused, Refused::Request { id, request: Verb::Release, state, why });
            Met::Refused
        }
        Ok(_) => {
            stage.does(id, TO_SYNC);
            match stage.core.release(id) {
                Ok((released, _)) => {
                    stage.core.check();
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
        for verb in Verb::ALL {
            let met = SERVICES.map(|service| meet(state, verb, service));
            let one = |wanted| met.iter().flatten().any(|met| *met == wanted);
            // One that depends on the service is met by both.
            if let Ask::By { .. } = table::REQUESTS[state.index()][verb.index()] {
                assert_eq!(met, [Some(Met::Gone); 2], "{verb} while {state}");
            }
            let met = if one(Met::Gone) {
                Met::Gone
            } else if one(Met::Refused) {
                Met::Refused
            } else {
                assert!(one(Met::LetThrough), "nothing has met the cell of {verb} while {state}");
                assert!(cannot_have(state, verb), "{verb} while {state} was never carried out");
                Met::LetThrough
            };
            counts[met as usize] += 1;
        }
    }
    let [refused, gone, let_through] = counts;
    println!("{refused} cells of requests refuse, {gone} go, {let_through} would if there were what they take away");
    assert_eq!(refused + gone + let_through, State::COUNT * Verb::COUNT);
    let refuse = State::ALL.iter().flat_map(|state| table::REQUESTS[state.index()]);
    assert_eq!(refuse.filter(|cell| matches!(cell, Ask::Refuse(_))).count(), refused);
}

#[test]
fn a_passed_deadline_is_refused_in_every_cell_that_goes_but_a_destruction() {
    for state in State::ALL {
        for verb in Verb::ALL {
            let Ok(_) = table::ask(state, verb, Service::Connected) else { continue };
            let Some(mut place) = place_for(state, verb, Service::Connected) else { continue };
            let Some(request) = request_of(verb, place.there, None) else { continue };
            let result = place.stage.asks_until(place.id, request, Time(1));
            if matches!(verb, Verb::Destroy | Verb::DestroyNow) {
                assert_eq!(result, Ok(()), "{state}");
            } else {
                let refused = Refused::Request { id: place.id, request: verb, state, why: Why::TooLate };
                assert_eq!(result, Err(refused), "{verb} while {state}");
            }
        }
    }
}
