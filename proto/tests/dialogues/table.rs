//! Every cell of both tables, against a core.

use cmid_proto::table::{self, EventColumn, EventRule};
use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, EventKind, Fault, IdKey, RawEvent, Refused, Request, RequestKind, Service,
    State,
};

use crate::fixture::{CoreFixture, LISTEN, OK, RESOLVE, accept, cm, connect, raw};
use crate::request_of::request_of;

/// Requests that need a membership or synchronous mode.
fn has_own_tests(request_kind: RequestKind) -> bool {
    matches!(request_kind, RequestKind::Join | RequestKind::Leave | RequestKind::GetRequest)
}

/// On iWARP a type of service also counts after the route is resolved.
fn takes_tos(fixture: &mut CoreFixture, id: IdKey, request_kind: RequestKind) {
    if request_kind == RequestKind::SetTos {
        fixture.core.note_iwarp(id);
    }
}

fn service_of(state: State) -> Service {
    match state {
        State::SidrReqSent | State::SidrReqReceived | State::SidrResolved => Service::Datagram,
        _ => Service::Connected,
    }
}

/// Two channels, and an id in `state` that fulfils the guards of `request_kind`.
fn set(state: State, request_kind: Option<RequestKind>) -> (CoreFixture, IdKey, ChannelKey, ChannelKey) {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let there = fixture.channel(Acks::OnDelivery);
    let mut from = state;
    if request_kind == Some(RequestKind::DetachQp) && state != State::Idle && state != State::Destroying {
        return with_qp(fixture, here, there, state);
    }
    if request_kind == Some(RequestKind::AttachQp) && state == State::AddrResolving {
        from = State::Bound;
    }
    // An id that has accepted a lookup takes no QP. This id has made the lookup.
    if request_kind == Some(RequestKind::AttachQp) && state == State::SidrResolved {
        let id = fixture.in_state(here, State::SidrReqSent);
        fixture.report_and_take(id, CmEvent::Established);
        return (fixture, id, here, there);
    }
    let id = fixture.in_state(here, from);
    if from != state {
        fixture.does(id, RESOLVE);
    }
    (fixture, id, here, there)
}

/// Leads an id to `state`, and attaches a QP on the way in a state that allows it.
fn with_qp(
    mut fixture: CoreFixture,
    here: ChannelKey,
    there: ChannelKey,
    state: State,
) -> (CoreFixture, IdKey, ChannelKey, ChannelKey) {
    let from = match state {
        State::Requested | State::Accepting => State::Requested,
        State::SidrReqReceived | State::SidrResolved => State::SidrReqReceived,
        State::SidrReqSent => State::SidrReqSent,
        _ => State::Bound,
    };
    let id = fixture.in_state(here, from);
    fixture.does(id, Request::AttachQp);
    let way: &[Step] = match state {
        State::Bound | State::Requested | State::SidrReqReceived | State::SidrReqSent => &[],
        State::Listening => &[Step::Do(LISTEN)],
        State::Removed => &[Step::EventRule(CmEvent::DeviceRemoval)],
        State::Accepting | State::SidrResolved => &[Step::Accept],
        State::AddrResolving => &WAY[..1],
        State::AddrResolved => &WAY[..2],
        State::RouteResolving => &WAY[..3],
        State::RouteResolved => &WAY[..4],
        State::Connecting => &WAY[..5],
        State::Connected => &WAY[..6],
        State::Disconnecting => &WAY[..7],
        State::Closing => &CLOSES,
        State::TimeWait => &WAY[..8],
        State::Closed => &WAY[..9],
        State::Failed => &FAILS,
        State::PeerClosed => &LOSES,
        State::Responded => &ANSWERED,
        State::Idle | State::Destroying => unreachable!("no QP there"),
    };
    for step in way {
        match *step {
            Step::Do(request) => fixture.does(id, request),
            Step::Connect => fixture.does(id, connect()),
            Step::Accept => fixture.does(id, accept()),
            Step::EventRule(kind) => fixture.report_and_take(id, kind),
        }
    }
    assert_eq!(fixture.state(id), state);
    (fixture, id, here, there)
}

#[derive(Clone, Copy)]
enum Step {
    Do(Request<'static>),
    Connect,
    Accept,
    EventRule(CmEvent),
}

const WAY: [Step; 9] = [
    Step::Do(RESOLVE),
    Step::EventRule(CmEvent::AddrResolved),
    Step::Do(Request::ResolveRoute),
    Step::EventRule(CmEvent::RouteResolved),
    Step::Connect,
    Step::EventRule(CmEvent::Established),
    Step::Do(Request::Disconnect),
    Step::EventRule(CmEvent::Disconnected),
    Step::EventRule(CmEvent::TimewaitExit),
];
const FAILS: [Step; 6] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], Step::EventRule(CmEvent::Rejected)];
const LOSES: [Step; 7] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], WAY[5], Step::EventRule(CmEvent::Disconnected)];
const CLOSES: [Step; 7] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], WAY[5], Step::Do(Request::Teardown)];
const ANSWERED: [Step; 6] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], Step::EventRule(CmEvent::ConnectResponse)];

#[test]
fn every_cell_that_refuses_returns_its_reason_and_changes_nothing() {
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            let Err(reason) = table::request_rule(state, request_kind, service_of(state)) else { continue };
            let (mut fixture, id, _, there) = set(state, None);
            let Some(request) = request_of(request_kind, there, None) else { continue };
            let before = fixture.core.clone();
            let refused = fixture.submit(id, request).unwrap_err();
            assert_eq!(refused, Refused::Request { id, request: request_kind, state, reason });
            assert_eq!(fixture.core, before, "{request_kind} while {state} was refused and changed something");
        }
    }
}

#[test]
fn every_legal_cell_leads_to_the_state_of_the_table() {
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            let Ok(next) = table::request_rule(state, request_kind, service_of(state)) else { continue };
            if has_own_tests(request_kind) {
                continue;
            }
            // An idle id has no QP, and one that is destroyed cannot have lost it.
            if request_kind == RequestKind::DetachQp && matches!(state, State::Idle | State::Destroying) {
                continue;
            }
            // No ack is owed here, so it comes too late.
            if (state, request_kind) == (State::Destroying, RequestKind::DestroyNow) {
                continue;
            }
            let (mut fixture, id, _, there) = set(state, Some(request_kind));
            takes_tos(&mut fixture, id, request_kind);
            let Some(request) = request_of(request_kind, there, None) else { continue };
            fixture.submit(id, request).unwrap();
            let made = if fixture.next_call().is_some() { state } else { next };
            assert_eq!(fixture.state(id), made, "{request_kind} while {state}, before the outcome");
            fixture.all_well();
            let gone = matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow);
            assert_eq!(fixture.core.state(id), (!gone).then_some(next), "{request_kind} while {state}");
        }
    }
}

#[test]
fn every_call_that_fails_leaves_the_state_of_the_table() {
    for state in State::ALL {
        for request_kind in RequestKind::ALL {
            let Ok(_) = table::request_rule(state, request_kind, service_of(state)) else { continue };
            if has_own_tests(request_kind)
                || matches!(
                    request_kind,
                    RequestKind::AttachQp | RequestKind::DetachQp | RequestKind::Listen | RequestKind::Migrate
                )
                || matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow)
            {
                continue;
            }
            let (mut fixture, id, _, there) = set(state, None);
            takes_tos(&mut fixture, id, request_kind);
            let Some(request) = request_of(request_kind, there, None) else { continue };
            for errno in [cmid_proto::Errno::EINVAL, cmid_proto::Errno::ENETUNREACH] {
                let mut fixture = fixture.clone();
                fixture.submit(id, request).unwrap();
                if request_kind == RequestKind::Accept {
                    // The call that an accept begins with; `accepts` tests its failure.
                    fixture.expect_call("migrate_id", OK);
                }
                let call = fixture.next_call().unwrap();
                let failure = fixture.answers(Err(errno)).unwrap().result.unwrap_err();
                let after = table::after_failure(state, request_kind, errno);
                assert_eq!(fixture.state(id), after, "{call:?} while {state}");
                assert_eq!((failure.call, failure.state, failure.errno), (request_kind.name(), after, errno));
                assert_eq!(fixture.core.poll_timeout(), None, "{request_kind} while {state} left a deadline");
            }
            fixture.core.check();
        }
    }
}

fn event_of(column: EventColumn) -> Option<CmEvent> {
    Some(match column {
        EventColumn::AddrResolved => CmEvent::AddrResolved,
        EventColumn::AddrError => CmEvent::AddrError,
        EventColumn::RouteResolved => CmEvent::RouteResolved,
        EventColumn::RouteError => CmEvent::RouteError,
        EventColumn::ConnectResponse => CmEvent::ConnectResponse,
        EventColumn::ConnectError => CmEvent::ConnectError,
        EventColumn::Unreachable => CmEvent::Unreachable,
        EventColumn::Rejected => CmEvent::Rejected,
        EventColumn::Established => CmEvent::Established,
        EventColumn::Disconnected => CmEvent::Disconnected,
        EventColumn::DeviceRemoval => CmEvent::DeviceRemoval,
        EventColumn::AddrChange => CmEvent::AddrChange,
        EventColumn::TimewaitExit => CmEvent::TimewaitExit,
        EventColumn::Other => CmEvent::Unknown(77),
        // These have their own tests.
        EventColumn::ConnectRequest
        | EventColumn::MulticastJoin
        | EventColumn::MulticastError
        | EventColumn::Deadline => return None,
    })
}

#[test]
fn every_event_is_delivered_counted_or_a_fault_as_in_the_table() {
    for state in State::ALL {
        for column in EventColumn::ALL {
            let Some(kind) = event_of(column) else { continue };
            let (mut fixture, id, here, _) = set(state, None);
            let (before, counters) = (fixture.core.clone(), fixture.core.summary().counters);
            let result = fixture.core.handle_event(here, raw(id, kind, 0));
            fixture.core.check();
            match table::event_rule(state, column) {
                EventRule::Go(next) => {
                    assert_eq!((result, fixture.state(id)), (Ok(Admission::Known), next), "{kind} while {state}");
                    fixture.sees(here, id, cm(kind));
                    assert_eq!(fixture.core.summary().counters, counters);
                }
                EventRule::Late => {
                    assert_eq!((result, fixture.state(id)), (Ok(Admission::Late), state), "{kind} while {state}");
                    assert_eq!(fixture.core.summary().counters.late, counters.late + 1);
                }
                EventRule::Fault => {
                    assert_eq!(result, Err(Fault::Event { id, state, event: kind }));
                    assert_eq!(fixture.core.summary().counters.faults, counters.faults + 1);
                    assert_eq!(fixture.state(id), before.state(id).unwrap());
                }
            }
            fixture.no_event(here);
        }
    }
}

#[test]
fn a_request_for_what_does_not_listen_is_taken_in_and_destroyed() {
    for state in State::ALL {
        let (mut fixture, id, here, _) = set(state, None);
        let child = fixture.core.wants_event(here).unwrap();
        let request = RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) };
        let result = fixture.core.handle_event(here, request);
        fixture.core.check();
        match table::event_rule(state, EventColumn::ConnectRequest) {
            EventRule::Go(_) => {
                assert_eq!((result, fixture.state(child)), (Ok(Admission::Child(child)), State::Requested));
                continue;
            }
            EventRule::Late => assert_eq!(result, Ok(Admission::Late), "{state}"),
            EventRule::Fault => assert_eq!(result, Err(Fault::Event { id, state, event: CmEvent::ConnectRequest })),
        }
        if state == State::Destroying {
            assert_eq!(fixture.expect_call("destroy_id", OK), None);
            fixture.sees(here, id, EventKind::Destroyed);
        }
        assert_eq!(fixture.expect_call("destroy_id", OK), None, "the destroy was not requested");
        assert_eq!(fixture.core.state(child), None);
        fixture.no_event(here);
    }
}
