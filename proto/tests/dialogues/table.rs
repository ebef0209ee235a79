//! Every cell of both tables, against a core.

use cmid_proto::table::{self, Fact, Tell};
use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, CmOption, Ece, Fault, GroupKey, IdKey, RawEvent, Refused, Request, Service,
    State, Verb,
};

use crate::fixture::{BIND, LISTEN, OK, REJECT, RESOLVE, Stage, accept, addr, cm, connect, raw, to};

fn request_of(verb: Verb, elsewhere: ChannelKey) -> Option<Request<'static>> {
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
        Verb::Leave => Request::Leave { group: GroupKey::from_parts(0, 0, 1)? },
        Verb::SetTos => Request::SetOption { option: CmOption::Tos(4) },
        Verb::ReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(true) },
        Verb::NoReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(false) },
        Verb::SetAfOnly => Request::SetOption { option: CmOption::AfOnly(true) },
        Verb::SetAckTimeout => Request::SetOption { option: CmOption::AckTimeout(14) },
        Verb::SetEce => Request::SetEce { ece: Ece { vendor_id: 1, options: 2 } },
        Verb::Migrate => to(elsewhere),
        // Not a request of `submit`: it has its own tests.
        Verb::Release => return None,
        Verb::Destroy => Request::Destroy,
        Verb::DestroyNow => Request::DestroyNow,
    })
}

/// These need a membership, or synchronous mode.
fn has_own_tests(verb: Verb) -> bool {
    matches!(verb, Verb::Join | Verb::Leave | Verb::GetRequest)
}

fn service_of(state: State) -> Service {
    match state {
        State::Asking | State::Asked | State::Answered => Service::Datagram,
        _ => Service::Connected,
    }
}

/// Two channels and an id in a state; for a guard that would be in the way, what it wants.
fn set(state: State, verb: Option<Verb>) -> (Stage, IdKey, ChannelKey, ChannelKey) {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let mut from = state;
    if verb == Some(Verb::DetachQp) && state != State::Idle && state != State::Destroying {
        return with_qp(stage, here, there, state);
    }
    if verb == Some(Verb::AttachQp) && state == State::AddrResolving {
        from = State::Bound;
    }
    // The id of a lookup that was accepted takes no QP any more.
    if verb == Some(Verb::AttachQp) && state == State::Answered {
        let id = stage.in_state(here, State::Asking);
        stage.tells(id, CmEvent::Established);
        return (stage, id, here, there);
    }
    let id = stage.in_state(here, from);
    if from != state {
        stage.does(id, RESOLVE);
    }
    (stage, id, here, there)
}

/// The id gets a QP where that is allowed, on its way to the state.
fn with_qp(
    mut stage: Stage,
    here: ChannelKey,
    there: ChannelKey,
    state: State,
) -> (Stage, IdKey, ChannelKey, ChannelKey) {
    let from = match state {
        State::Requested | State::Accepting => State::Requested,
        State::Asked | State::Answered => State::Asked,
        State::Asking => State::Asking,
        _ => State::Bound,
    };
    let id = stage.in_state(here, from);
    stage.does(id, Request::AttachQp);
    let way: &[Step] = match state {
        State::Bound | State::Requested | State::Asked | State::Asking => &[],
        State::Listening => &[Step::Do(LISTEN)],
        State::Removed => &[Step::Tell(CmEvent::DeviceRemoval)],
        State::Accepting | State::Answered => &[Step::Accept],
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
            Step::Do(request) => stage.does(id, request),
            Step::Connect => stage.does(id, connect()),
            Step::Accept => stage.does(id, accept()),
            Step::Tell(kind) => stage.tells(id, kind),
        }
    }
    assert_eq!(stage.state(id), state);
    (stage, id, here, there)
}

#[derive(Clone, Copy)]
enum Step {
    Do(Request<'static>),
    Connect,
    Accept,
    Tell(CmEvent),
}

const WAY: [Step; 9] = [
    Step::Do(RESOLVE),
    Step::Tell(CmEvent::AddrResolved),
    Step::Do(Request::ResolveRoute),
    Step::Tell(CmEvent::RouteResolved),
    Step::Connect,
    Step::Tell(CmEvent::Established),
    Step::Do(Request::Disconnect),
    Step::Tell(CmEvent::Disconnected),
    Step::Tell(CmEvent::TimewaitExit),
];
const FAILS: [Step; 6] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], Step::Tell(CmEvent::Rejected)];
const LOSES: [Step; 7] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], WAY[5], Step::Tell(CmEvent::Disconnected)];
const CLOSES: [Step; 7] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], WAY[5], Step::Do(Request::Teardown)];
const ANSWERED: [Step; 6] = [WAY[0], WAY[1], WAY[2], WAY[3], WAY[4], Step::Tell(CmEvent::ConnectResponse)];

#[test]
fn every_cell_that_refuses_says_why_and_changes_nothing() {
    for state in State::ALL {
        for verb in Verb::ALL {
            let Err(why) = table::ask(state, verb, service_of(state)) else { continue };
            let (mut stage, id, _, there) = set(state, None);
            let Some(request) = request_of(verb, there) else { continue };
            let before = stage.core.clone();
            let refused = stage.asks(id, request).unwrap_err();
            assert_eq!(refused, Refused::Request { id, request: verb, state, why });
            assert_eq!(stage.core, before, "{verb} while {state} was refused and changed something");
        }
    }
}

#[test]
fn every_cell_that_goes_leads_where_the_table_says() {
    for state in State::ALL {
        for verb in Verb::ALL {
            let Ok(next) = table::ask(state, verb, service_of(state)) else { continue };
            if has_own_tests(verb) {
                continue;
            }
            // An idle id has no QP, and one that is destroyed cannot have lost it.
            if verb == Verb::DetachQp && matches!(state, State::Idle | State::Destroying) {
                continue;
            }
            // Without acks to wait for it is too late.
            if (state, verb) == (State::Destroying, Verb::DestroyNow) {
                continue;
            }
            let (mut stage, id, _, there) = set(state, Some(verb));
            let Some(request) = request_of(verb, there) else { continue };
            stage.asks(id, request).unwrap();
            assert_eq!(stage.state(id), next, "{verb} while {state}, before the call");
            stage.all_well();
            let gone = matches!(verb, Verb::Destroy | Verb::DestroyNow);
            assert_eq!(stage.core.state(id), (!gone).then_some(next), "{verb} while {state}");
        }
    }
}

#[test]
fn every_call_that_fails_leaves_the_state_that_the_table_says() {
    for state in State::ALL {
        for verb in Verb::ALL {
            let Ok(_) = table::ask(state, verb, service_of(state)) else { continue };
            if has_own_tests(verb)
                || matches!(verb, Verb::AttachQp | Verb::DetachQp | Verb::Listen | Verb::Migrate)
                || matches!(verb, Verb::Destroy | Verb::DestroyNow)
            {
                continue;
            }
            let (stage, id, _, there) = set(state, None);
            let Some(request) = request_of(verb, there) else { continue };
            for errno in [cmid_proto::Errno::EINVAL, cmid_proto::Errno::ENETUNREACH] {
                let mut stage = stage.clone();
                stage.asks(id, request).unwrap();
                if verb == Verb::Accept {
                    // What it begins with; `accepts` has tests of its failure.
                    stage.expect_call("migrate_id", OK);
                }
                let (token, call) = stage.core.poll_call().unwrap();
                let failure = stage.answers(token, Err(errno)).unwrap().result.unwrap_err();
                let after = table::after_failure(state, verb, errno);
                assert_eq!(stage.state(id), after, "{call:?} while {state}");
                assert_eq!((failure.call, failure.state, failure.errno), (verb.name(), after, errno));
                assert_eq!(stage.core.poll_timeout(), None, "{verb} while {state} left a deadline");
            }
            stage.core.check();
        }
    }
}

fn event_of(fact: Fact) -> Option<CmEvent> {
    Some(match fact {
        Fact::AddrResolved => CmEvent::AddrResolved,
        Fact::AddrError => CmEvent::AddrError,
        Fact::RouteResolved => CmEvent::RouteResolved,
        Fact::RouteError => CmEvent::RouteError,
        Fact::ConnectResponse => CmEvent::ConnectResponse,
        Fact::ConnectError => CmEvent::ConnectError,
        Fact::Unreachable => CmEvent::Unreachable,
        Fact::Rejected => CmEvent::Rejected,
        Fact::Established => CmEvent::Established,
        Fact::Disconnected => CmEvent::Disconnected,
        Fact::DeviceRemoval => CmEvent::DeviceRemoval,
        Fact::AddrChange => CmEvent::AddrChange,
        Fact::TimewaitExit => CmEvent::TimewaitExit,
        Fact::Other => CmEvent::Unknown(77),
        // They have tests of their own.
        Fact::ConnectRequest | Fact::MulticastJoin | Fact::MulticastError | Fact::Deadline => return None,
    })
}

#[test]
fn every_event_is_delivered_counted_or_a_fault_as_the_table_says() {
    for state in State::ALL {
        for fact in Fact::ALL {
            let Some(kind) = event_of(fact) else { continue };
            let (mut stage, id, here, _) = set(state, None);
            let (before, counters) = (stage.core.clone(), stage.core.counters());
            let result = stage.core.handle_event(here, raw(id, kind, 0));
            stage.core.check();
            match table::tell(state, fact) {
                Tell::Go(next) => {
                    assert_eq!((result, stage.state(id)), (Ok(Admission::Known), next), "{kind} while {state}");
                    stage.sees(here, id, cm(kind));
                    assert_eq!(stage.core.counters(), counters);
                }
                Tell::Late => {
                    assert_eq!((result, stage.state(id)), (Ok(Admission::Late), state), "{kind} while {state}");
                    assert_eq!(stage.core.counters().late, counters.late + 1);
                }
                Tell::Fault => {
                    assert_eq!(result, Err(Fault::Event { id, state, event: kind }));
                    assert_eq!(stage.core.counters().faults, counters.faults + 1);
                    assert_eq!(stage.state(id), before.state(id).unwrap());
                }
            }
            stage.no_event(here);
        }
    }
}

#[test]
fn a_request_for_what_does_not_listen_is_taken_in_and_destroyed() {
    for state in State::ALL {
        let (mut stage, id, here, _) = set(state, None);
        let child = stage.core.wants_event(here).unwrap();
        let request = RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) };
        let result = stage.core.handle_event(here, request);
        stage.core.check();
        match table::tell(state, Fact::ConnectRequest) {
            Tell::Go(_) => {
                assert_eq!((result, stage.state(child)), (Ok(Admission::Child(child)), State::Requested));
                continue;
            }
            Tell::Late => assert_eq!(result, Ok(Admission::Late), "{state}"),
            Tell::Fault => assert_eq!(result, Err(Fault::Event { id, state, event: CmEvent::ConnectRequest })),
        }
        if state == State::Destroying {
            stage.expect_call("destroy_id", OK);
        }
        assert_eq!(stage.expect_call("destroy_id", OK), None, "nobody asked for it");
        assert_eq!(stage.core.state(child), None);
        stage.no_event(here);
    }
}
