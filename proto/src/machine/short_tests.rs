//! Each short path against its long path: on every cell, and on ids for which there is no short path.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Core;
use crate::device::{Call, Outcome};
use crate::errno::Errno;
use crate::error::Failure;
use crate::event::{CmEvent, ConnParam, Ece, RawEvent};
use crate::id::{Doing, Id, Quiesce, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::plain;
use crate::request::{Acks, CmOption, PortSpace, RejectReason, Request, Verb};
use crate::state::State;
use crate::table::{self, Fact};
use crate::time::Time;

const NOW: Time = Time(1000);
const DUE: Time = Time(5000);
const LATER: Time = Time(9000);

/// Two channels, and on the first an id of which nothing is known but its state. Another id has a deadline after `DUE`.
struct Stage {
    core: Core,
    on: ChannelKey,
    to: ChannelKey,
    id: IdKey,
}

impl Stage {
    fn new(acks: Acks) -> Self {
        let mut core = Core::new(Limits::LARGE);
        let [on, to] = [acks, Acks::Explicit].map(|acks| {
            let channel = core.open_channel(acks).unwrap();
            finish(&mut core);
            channel
        });
        let [id, other] = [(); 2].map(|()| {
            let id = core.create_id(Some(on), PortSpace::Tcp).unwrap();
            finish(&mut core);
            id
        });
        let resolve = Request::ResolveAddr { src: None, dst: peer() };
        core.submit(NOW, other, resolve, LATER).unwrap();
        finish(&mut core);
        Stage { core, on, to, id }
    }

    /// With the id in this state, and with a deadline where it waits for something.
    fn in_state(state: State, port_space: PortSpace, acks: Acks) -> Self {
        let mut stage = Stage::new(acks);
        let id = stage.core.ids.get_mut(stage.id).unwrap();
        (id.state, id.port_space) = (state, port_space);
        // An ACK that was owed before is none of the next event's.
        id.owed = 1;
        if table::operation(state).is_some() {
            stage.core.set_deadline(stage.id, DUE);
        }
        stage
    }

    fn every_state() -> impl Iterator<Item = (State, PortSpace, Acks)> {
        State::ALL.into_iter().flat_map(|state| {
            [PortSpace::Tcp, PortSpace::Udp]
                .into_iter()
                .flat_map(move |space| [Acks::Explicit, Acks::OnDelivery].map(|acks| (state, space, acks)))
        })
    }
}

/// Makes all calls; they succeed.
fn finish(core: &mut Core) {
    while let Some((token, _)) = core.poll_call() {
        core.take_outcome(token, Ok(())).unwrap();
    }
}

fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7471)
}

/// The same in every respect, the deadlines included.
fn assert_same(short: &Core, long: &Core, what: &str) {
    assert_eq!(short, long, "{what}");
    assert_eq!(short.poll_timeout(), long.poll_timeout(), "{what}");
    let keys: Vec<_> = short.id_keys().collect();
    for key in keys {
        let [ours, theirs] = [short, long].map(|core| core.ids.get(key).unwrap());
        assert_eq!((ours.armed.at(), ours.due()), (theirs.armed.at(), theirs.due()), "{what}: {key}");
        assert!(ours.is_known_rightly(), "{what}: {key}");
    }
}

#[test]
fn an_event_in_out_and_acked() {
    let mut plain_cells = 0;
    for (state, space, acks) in Stage::every_state() {
        for (code, data) in (0..=20).flat_map(|code| [(code, &[][..]), (code, &[7; 56][..])]) {
            let stage = Stage::in_state(state, space, acks);
            let kind = CmEvent::from_code(code);
            let raw = RawEvent { status: -1, private_data: data, ..RawEvent::new(stage.id, kind) };
            let what = alloc::format!("{kind} while {state}, {space:?}, {acks:?}");
            let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
            if !short.admit_short(stage.on, &raw) {
                assert_same(&short, &stage.core, &what);
                assert!(plain::event(state, Fact::of(kind)).is_none() || state == State::Destroying, "{what}");
                continue;
            }
            plain_cells += 1;
            long.take_any_event(stage.on, &raw).unwrap();
            assert!(short.single.is_some() && long.single.is_none(), "{what}");
            assert_same(&short, &long, &what);
            assert_eq!(short.wants_event(stage.on), long.wants_event(stage.on), "{what}");
            let linked = short.linked().unwrap();
            assert_same(&linked, &long, &what);
            let [ours, theirs] = [&mut short, &mut long].map(|core| core.poll_event(stage.on).unwrap());
            assert_eq!(ours, theirs, "{what}");
            assert_same(&short, &long, &what);
            if let (Some(ours), Some(theirs)) = (ours.receipt, theirs.receipt) {
                short.ack(ours).unwrap();
                long.ids.get_mut(theirs.owner).unwrap().owed -= 1;
                assert_same(&short, &long, &what);
            }
            assert!(short.poll_event(stage.on).is_none() && long.poll_event(stage.on).is_none(), "{what}");
        }
    }
    assert!(plain_cells > 800, "{plain_cells} plain cells");
}

/// One of each kind, and some that a guard refuses.
fn requests() -> Vec<Request<'static>> {
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let private_data = &[3; 40][..];
    alloc::vec![
        Request::Bind { addr: peer() },
        Request::Bind { addr: nowhere },
        Request::ResolveAddr { src: None, dst: peer() },
        Request::ResolveAddr { src: Some("[::1]:1".parse().unwrap()), dst: peer() },
        Request::ResolveRoute,
        Request::Listen { backlog: 3 },
        Request::AttachQp,
        Request::DetachQp,
        Request::Connect { param, private_data },
        Request::Connect { param: ConnParam::default(), private_data },
        Request::Connect { param, private_data: &[0; 200] },
        Request::Accept { param, private_data },
        Request::Accept { param: ConnParam::default(), private_data: &[] },
        Request::Reject { reason: RejectReason::Consumer, private_data },
        Request::Establish,
        Request::Disconnect,
        Request::Teardown,
        Request::Notify,
        Request::GetRequest,
        Request::Join { addr: peer(), send_only: false },
        Request::SetOption { option: CmOption::Tos(1) },
        Request::SetOption { option: CmOption::ReuseAddr(true) },
        Request::SetOption { option: CmOption::ReuseAddr(false) },
        Request::SetOption { option: CmOption::AfOnly(true) },
        Request::SetOption { option: CmOption::AckTimeout(9) },
        Request::SetEce { ece: Ece { vendor_id: 5, options: 6 } },
        Request::SetEce { ece: Ece { vendor_id: 0, options: 6 } },
        Request::Destroy,
        Request::DestroyNow,
    ]
}

/// Each with success and with failure.
const OUTCOMES: [Outcome; 3] = [Ok(()), Err(Errno::EINVAL), Err(Errno::ENETUNREACH)];

type Made = Vec<(Call, Vec<u8>)>;

/// The whole request on the long path: its calls, and how it ended.
fn at_length(core: &mut Core, id: IdKey, request: &Request<'_>, outcome: Outcome) -> (Made, Result<(), Failure>) {
    core.submit_any(NOW, id, request, DUE).unwrap();
    let (token, call) = core.poll_call().unwrap();
    let made = alloc::vec![(call, core.call_data(token).to_vec())];
    (made, core.take_outcome(token, outcome).unwrap().unwrap().result)
}

/// The same by `perform`; `None` if there is no short path.
fn at_once(
    core: &mut Core,
    id: IdKey,
    request: &Request<'_>,
    outcome: Outcome,
) -> Option<(Made, Result<(), Failure>)> {
    let mut made = Vec::new();
    let result = core.perform(NOW, id, request, DUE, |call, data| {
        made.push((*call, data.to_vec()));
        outcome
    });
    if result.is_none() {
        assert_eq!(made, [], "a call that nobody learns of");
    }
    result.map(|result| (made, result))
}

#[test]
fn a_request_its_call_and_its_outcome() {
    let mut plain_cells = 0;
    for (state, space, acks) in Stage::every_state() {
        for (request, outcome) in requests().iter().flat_map(|request| OUTCOMES.map(|outcome| (request, outcome))) {
            let mut stage = Stage::in_state(state, space, acks);
            // A destruction would wait for it.
            stage.core.ids.get_mut(stage.id).unwrap().owed = 0;
            let what = alloc::format!("{request:?} while {state}, {space:?}: {outcome:?}");
            let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
            let Some(performed) = at_once(&mut short, stage.id, request, outcome) else {
                assert_same(&short, &stage.core, &what);
                continue;
            };
            plain_cells += 1;
            assert_eq!(performed, at_length(&mut long, stage.id, request, outcome), "{what}");
            assert_same(&short, &long, &what);
        }
    }
    assert!(plain_cells > 1000, "{plain_cells} plain cells");
}

#[test]
fn a_request_in_steps() {
    let mut plain_cells = 0;
    for (state, space, acks) in Stage::every_state() {
        for request in &requests() {
            let stage = Stage::in_state(state, space, acks);
            let what = alloc::format!("{request:?} while {state}, {space:?}");
            let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
            if !short.submit_short(NOW, stage.id, request, DUE) {
                assert_same(&short, &stage.core, &what);
                continue;
            }
            plain_cells += 1;
            long.submit_any(NOW, stage.id, request, DUE).unwrap();
            assert_same(&short, &long, &what);
            let [ours, theirs] = [&mut short, &mut long].map(|core| core.poll_call().unwrap());
            assert_eq!(ours, theirs, "{what}");
            assert_eq!(short.call_data(ours.0), long.call_data(ours.0), "{what}");
            // An event in between, on both: the id is not plain then.
            let raw = RawEvent::new(stage.id, CmEvent::Disconnected);
            let mut interrupted = [short.clone(), long.clone()];
            let admitted = interrupted.each_mut().map(|core| core.handle_event(stage.on, raw));
            assert_eq!(admitted[0], admitted[1], "{what}");
            let ended = interrupted.each_mut().map(|core| core.handle_outcome(ours.0, Ok(())));
            assert_eq!(ended[0], ended[1], "{what}");
            assert_same(&interrupted[0], &interrupted[1], &what);
            if !short.end_short(ours.0) {
                assert_eq!(request.verb(), Verb::Listen, "{what}");
                continue;
            }
            assert_eq!(long.take_outcome(ours.0, Ok(())).unwrap().unwrap().result, Ok(()), "{what}");
            assert_same(&short, &long, &what);
        }
    }
    assert!(plain_cells > 300, "{plain_cells} plain cells");
}

/// A property that takes the short paths from an id, and what it is called.
type Unusual = (&'static str, fn(&mut Id, ChannelKey));

const UNUSUAL: [Unusual; 10] = [
    ("synchronous", |id, _| id.sync = true),
    ("a call under way", |id, _| id.doing = Doing::Answer),
    ("moving", |id, to| id.doing = Doing::Settle { to }),
    ("waiting for an event", |id, _| id.waiting = Waiting::For(Verb::Join)),
    ("an ended request", |id, _| id.waiting = Waiting::Without { timed_out: false }),
    ("a migration that waits", |id, to| id.quiesce = Some(Quiesce { to: Some(to) })),
    ("another line", |id, to| id.line = to),
    ("waived acks", |id, _| id.waived = true),
    ("an overtaken call", |id, _| id.orphaned = true),
    ("an answer that is due", |id, _| id.answer_due = true),
];

#[test]
fn there_is_no_short_path_for_an_id_that_is_not_plain() {
    for (name, make) in UNUSUAL {
        for state in State::ALL {
            let mut stage = Stage::in_state(state, PortSpace::Tcp, Acks::Explicit);
            // It is known as plain before.
            stage.core.ids.get_untouched(stage.id).unwrap().is_plain();
            make(stage.core.ids.get_mut(stage.id).unwrap(), stage.to);
            for code in 0..=20 {
                let mut core = stage.core.clone();
                let raw = RawEvent::new(stage.id, CmEvent::from_code(code));
                assert!(!core.admit_short(stage.on, &raw), "{name}: {} while {state}", raw.kind);
                assert_same(&core, &stage.core, name);
            }
            let migrate = Request::Migrate { to: Some(stage.to) };
            for request in requests().iter().chain([&migrate]) {
                let mut core = stage.core.clone();
                assert_eq!(at_once(&mut core, stage.id, request, Ok(())), None, "{name}: {request:?} while {state}");
                assert!(!core.submit_short(NOW, stage.id, request, DUE), "{name}: {request:?} while {state}");
                assert_same(&core, &stage.core, name);
            }
        }
    }
}

#[test]
fn a_migration_with_events_and_a_destruction() {
    for (events, outcome) in (0..5).flat_map(|events| OUTCOMES.map(|outcome| (events, outcome))) {
        let mut stage = Stage::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
        stage.core.ids.get_mut(stage.id).unwrap().owed = 0;
        let other = stage.core.id_keys().find(|&id| id != stage.id).unwrap();
        // Alone, next to each other, and with events of another id between them.
        for at in 0..events {
            for about in [stage.id, other].into_iter().take(1 + at % 2) {
                stage.core.handle_event(stage.on, RawEvent::new(about, CmEvent::AddrChange)).unwrap();
            }
        }
        let what = alloc::format!("{events} events: {outcome:?}");
        for request in [Request::Migrate { to: Some(stage.to) }, Request::Destroy] {
            let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
            match at_once(&mut short, stage.id, &request, outcome) {
                Some(performed) => assert_eq!(performed, at_length(&mut long, stage.id, &request, outcome), "{what}"),
                None => {
                    assert!(request == Request::Destroy && events > 0, "{what}: {request:?}");
                    long.submit_any(NOW, stage.id, &request, DUE).unwrap();
                    short.submit(NOW, stage.id, request, DUE).unwrap();
                    [&mut short, &mut long].into_iter().for_each(finish);
                }
            }
            assert_same(&short, &long, &what);
            short.check();
            let next = |core: &mut Core| [stage.on, stage.to].map(|on| core.poll_event(on).map(|event| (on, event)));
            for _ in 0..2 * events {
                assert_eq!(next(&mut short), next(&mut long), "{what}");
            }
            assert_same(&short, &long, &what);
        }
    }
}

#[test]
fn what_a_migration_or_a_destruction_waits_for_has_no_short_path() {
    let stage = Stage::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
    assert_eq!(stage.core.owed(stage.id), 1);
    for request in [Request::Migrate { to: Some(stage.to) }, Request::Destroy] {
        assert_eq!(at_once(&mut stage.core.clone(), stage.id, &request, Ok(())), None);
    }
    let mut waiting = Stage::in_state(State::Connecting, PortSpace::Tcp, Acks::Explicit);
    waiting.core.ids.get_mut(waiting.id).unwrap().owed = 0;
    assert_eq!(at_once(&mut waiting.core, waiting.id, &Request::Destroy, Ok(())), None, "it has a deadline");
}

#[test]
fn a_new_id() {
    for outcome in OUTCOMES {
        let stage = Stage::new(Acks::Explicit);
        let (mut short, mut long) = (stage.core.clone(), stage.core);
        let performed = short.perform_create(stage.on, PortSpace::Udp, |_| outcome).unwrap();
        let id = long.create_id(Some(stage.on), PortSpace::Udp).unwrap();
        let (token, _) = long.poll_call().unwrap();
        let ended = long.take_outcome(token, outcome).unwrap().unwrap();
        assert_eq!(performed, ended.result.map(|()| id));
        assert_same(&short, &long, "a new id");
        assert_eq!(short.ids.next_key(), long.ids.next_key());
    }
}
