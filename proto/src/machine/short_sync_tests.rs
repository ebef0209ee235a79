//! Compares the short path of requests on synchronous ids with the long one, on every cell.

use super::short_tests::{DUE, LATER, NOW, finish, peer, requests};
use super::{Admission, Core};
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::event::{EventKind, RawEvent};
use crate::id::{Id, PendingCall, PendingMigrate, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::plain;
use crate::request::{Acks, PortSpace, Request};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table;
use crate::time::Time;

/// The end of the last request of an id.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    /// There was no request.
    Nothing,
    /// With an event that has private data.
    Event,
    /// At its deadline.
    Deadline,
}

const LAST: [Last; 3] = [Last::Nothing, Last::Event, Last::Deadline];

/// Returns a core with two ids, and the key of the first. The first is synchronous and in this state; its last request
/// has ended as `last` says. The second has the single event.
fn synchronous(state: State, port_space: PortSpace, last: Last) -> (Core, IdKey) {
    let mut core = Core::new(Limits::LARGE);
    let channel = core.open_channel(Acks::Explicit).unwrap();
    finish(&mut core);
    let [other, id] = [Some(channel), None].map(|channel| {
        let id = core.create_id(channel, PortSpace::Tcp).unwrap();
        finish(&mut core);
        id
    });
    let resolve = Request::ResolveAddr { src: None, dst: peer() };
    core.submit(NOW, other, resolve, LATER).unwrap();
    finish(&mut core);
    if last != Last::Nothing {
        core.submit(NOW, id, resolve, DUE).unwrap();
        finish(&mut core);
    }
    match last {
        Last::Nothing => {}
        Last::Event => {
            let raw = RawEvent { private_data: &[7; 56][..], ..RawEvent::new(id, CmEvent::AddrResolved) };
            let on = core.channel(id).unwrap();
            assert_eq!(core.handle_event(on, raw), Ok(Admission::Known));
            assert!(core.sync_event(id).is_some());
        }
        Last::Deadline => core.handle_timeout(DUE),
    }
    let it = core.ids.get_mut(id).unwrap();
    (it.state, it.port_space) = (state, port_space);
    let waits = table::operation(state).is_some();
    core.set_deadline(id, if waits { Time(DUE.0 + 1) } else { Time::NEVER });
    core.handle_event(channel, RawEvent::new(other, CmEvent::AddrResolved)).unwrap();
    assert!(core.single.is_some());
    (core, id)
}

fn every_synchronous() -> impl Iterator<Item = (State, PortSpace, Last)> {
    State::ALL.into_iter().flat_map(|state| {
        [PortSpace::Tcp, PortSpace::Udp]
            .into_iter()
            .flat_map(move |space| LAST.into_iter().map(move |last| (state, space, last)))
    })
}

#[test]
fn a_synchronous_request_its_call_and_its_outcome() {
    let mut short = 0;
    for (state, space, last) in every_synchronous() {
        let (core, id) = synchronous(state, space, last);
        for request in &requests() {
            let is_short = core.compare_request(LATER, id, request, Time(LATER.0 + 1));
            let request_kind = request.request_kind();
            let mut probe = core.clone();
            let is_allowed = probe.submit(LATER, id, *request, Time(LATER.0 + 1)).is_ok();
            let is_plain = plain::request(state, request_kind, space).is_some()
                || (request_kind == RequestKind::Destroy && core.ids.get(id).unwrap().due() == Time::NEVER);
            assert_eq!(is_short, is_plain && is_allowed, "{request:?} while {state} after {last:?}");
            short += usize::from(is_short);
        }
    }
    assert!(short > 430, "{short} of them");
}

/// A disconnect that waits for no event ends with the peer's DISCONNECTED, if that event is undelivered.
#[test]
fn a_synchronous_disconnect_after_the_peers() {
    for has_event in [true, false] {
        let (mut core, id) = synchronous(State::Connected, PortSpace::Tcp, Last::Event);
        if has_event {
            let on = core.channel(id).unwrap();
            core.handle_event(on, RawEvent::new(id, CmEvent::Disconnected)).unwrap();
        } else {
            core.ids.get_mut(id).unwrap().state = State::PeerClosed;
        }
        assert!(core.compare_request(LATER, id, &Request::Disconnect, Time::NEVER));
        assert_eq!(core.perform_sync(LATER, id, &Request::Disconnect, Time::NEVER, |_, _| Ok(())), Some(Ok(())));
        assert_eq!(
            core.sync_event(id).map(|event| event.kind == EventKind::Cm(CmEvent::Disconnected)),
            has_event.then_some(true)
        );
        core.check();
    }
}

/// The private channel closes with its id.
#[test]
fn a_synchronous_destruction() {
    for last in LAST {
        let (mut core, id) = synchronous(State::Connected, PortSpace::Tcp, last);
        for outcome in [Ok(()), Err(Errno::EINVAL)] {
            let mut done = core.clone();
            let result = done.perform_sync(LATER, id, &Request::Destroy, Time::NEVER, |_, _| outcome);
            assert_eq!(result.map(|result| result.is_ok()), Some(outcome.is_ok()), "{last:?}");
            assert_eq!((done.has_calls(), done.state(id).is_none()), (outcome.is_ok(), outcome.is_ok()), "{last:?}");
            done.check();
        }
        core.ids.get_mut(id).unwrap().owed = 1;
        assert!(!core.compare_request(LATER, id, &Request::Destroy, Time::NEVER), "{last:?}: an ack is owed");
    }
}

#[test]
fn there_is_no_short_path_for_a_synchronous_id_with_something_under_way() {
    type Unusual = (&'static str, fn(&mut Id, ChannelKey));
    let unusual: [Unusual; 9] = [
        ("a call", |id, _| id.pending_call = PendingCall::Answer),
        ("an open request", |id, _| id.sync_state = SyncState::For(RequestKind::Join)),
        ("a migration that waits", |id, to| id.pending_migrate = Some(PendingMigrate { to: Some(to) })),
        ("another device channel", |id, to| id.device_channel = to),
        ("waived acks", |id, _| id.waived = true),
        ("an overtaken call", |id, _| id.orphaned = true),
        ("an answer that is due", |id, _| id.answer_due = true),
        ("listening", |id, _| id.listens = true),
        ("on iWARP", |id, _| id.on_device.note_iwarp()),
    ];
    for (name, make) in unusual {
        for state in State::ALL {
            let (mut core, id) = synchronous(state, PortSpace::Tcp, Last::Nothing);
            let to = core.channel(core.id_keys().next().unwrap()).unwrap();
            make(core.ids.get_mut(id).unwrap(), to);
            for request in requests() {
                let mut made = 0;
                let performed = core.perform_sync(LATER, id, &request, Time(LATER.0 + 1), |_, _| {
                    made += 1;
                    Ok(())
                });
                assert_eq!((performed, made), (None, 0), "{name}: {request:?} while {state}");
            }
        }
    }
}

#[test]
fn there_is_no_short_path_for_a_synchronous_request_that_is_late_or_behind_another_call() {
    let (mut core, id) = synchronous(State::Connected, PortSpace::Tcp, Last::Nothing);
    let calls_nothing = |core: &mut Core, request: Request<'_>, deadline| {
        core.perform_sync(LATER, id, &request, deadline, |_, _| panic!("{request:?} was made")).is_none()
    };
    assert!(calls_nothing(&mut core, Request::Disconnect, LATER), "too late");
    core.open_channel(Acks::Explicit).unwrap();
    assert!(calls_nothing(&mut core, Request::Disconnect, Time::NEVER), "behind another call");
    assert!(calls_nothing(&mut core, Request::Destroy, Time::NEVER), "behind another call");
}
